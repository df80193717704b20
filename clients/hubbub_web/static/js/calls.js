// Calls: the list, and one call with its time and its pending requests.

import { runAction, Refused } from "./api.js";
import { defectWarning, defectPill, factList, h, jsonBlock, pill, refill } from "./dom.js";
import { faultDetails, renderResult } from "./content.js";
import { argumentList } from "./given.js";
import { waitingHostLink } from "./hosts.js";
import { chooser, entryLink, rowList, searchBox } from "./list.js";
import { newestFirst, oneAtATime, tables } from "./store.js";
import { ago, duration } from "./time.js";
import { repeatAddress, isUsable } from "./use.js";
import { timeline } from "./timeline.js";

// Pending requests of a call that its short form names.
const SEEN = 100;
const REFRESH_MS = 5000;

/** Open the page of all calls. */
export function callsPage(main) {
  const list = rowList(callRow, { name: "Calls", empty: h("p", {}, "Nothing has been called yet. ", h("a", { href: "#/catalog", text: "Call a tool" }), ".") });
  const search = searchBox("Search", draw);
  const server = chooser("All servers", draw);
  const wanted = chooser("All states", draw);
  wanted.addChoices(["queued", "in_progress", "waiting_input", "completed", "tool error", "failed", "cancelled"]);
  refill(main, h("h1", { text: "Calls" }), h("div", { class: "filters", role: "search" }, search.element, server.element, wanted.element), list.element);
  /** Draw the calls that match the search and the filters. */
  function draw() {
    server.addChoices([...tables.server.keys()].sort());
    list.show(newestFirst(tables.call).filter((call) => (!server.value || call.server === server.value)
      && (!wanted.value || [call.state, call.outcome].includes(wanted.value)) && search.matches(call.tool, call.method, call.server, call.id)));
  }
  draw();
  return { update: draw, leave() {}, list };
}

/** Render the row of a call in a list. */
function callRow(call) {
  const took = call.completed_at ? duration(Date.parse(call.completed_at) - Date.parse(call.created_at)) : null;
  const waits = call.state === "waiting_input" ? `${call.pending_ids.length} question${call.pending_ids.length === 1 ? "" : "s"}` : null;
  return [entryLink(`#/call/${encodeURIComponent(call.id)}`, {
    title: call.tool ?? call.method, right: [defectPill(call), pill(stateWord(call))], chips: [call.server],
    more: [call.error ? h("span", { class: "ended", text: `${call.error.code}: ${call.error.message ?? ""}` }) : null, ago(call.created_at),
      took ? h("span", { text: `took ${took}` }) : null, waits ? h("span", { text: waits }) : null],
  })];
}

/** Return the ids of the open pending requests that this call may have caused, where the cause is unknown; null for none. */
function candidateRequestIds(call) {
  const ids = call.completed_at ? [] : call.perhaps_pending_ids ?? [];
  return ids.length ? ids : null;
}

/** Return the state or the outcome of a call, in a word. */
function stateWord(call) {
  return candidateRequestIds(call) && call.state !== "waiting_input" ? "perhaps waiting" : call.outcome;
}

/** Render links to the pending requests that a call is perhaps waiting for; null for none. */
function candidateRequestLinks(call) {
  const ids = candidateRequestIds(call);
  if (!ids) return null;
  return h("p", { class: "warning" }, ids.length === 1 ? "This open request may be of this call: " : "These open requests may be of this call: ",
    ids.slice(0, SEEN).map((id, at) => [at ? " · " : "", h("a", { href: `#/request/${encodeURIComponent(id)}`, text: tables.request.get(id)?.question || id, dir: "auto" })]));
}

/** Open the page of one call. */
export async function callPage(main, id) {
  let { call, requests, timeline: spent } = await runAction("call", { id });
  let seen = shownState(call, (each) => requests.find((request) => request.id === each));
  const status = h("div", { class: "status" });
  const perhaps = h("div");
  const progress = h("div", { class: "progress" });
  const time = h("section", { class: "panel", "aria-label": "Time" });
  const asked = h("section", { class: "panel" });
  const approved = h("section", { class: "panel approval", "aria-label": "Approval" });
  const outcome = h("section", { class: "panel" });
  const trouble = h("p", { class: "problem", role: "alert" });
  const about = factList(["Server", h("a", { href: `#/server/${encodeURIComponent(call.server)}`, text: call.server })], ["Method", call.method],
      ["Id", call.id], ["Task", call.task_id && h("a", { href: `#/task/${encodeURIComponent(call.task_id)}`, text: call.task_id })], ["Called", ago(call.created_at)],
      ["Made by", call.origin?.app ? "a page of an app, not a model" : null]);
  refill(main, h("div", { class: "crumbs" }, h("a", { href: "#/calls", text: "Calls" })), h("h1", { text: call.params?.name ?? call.method, dir: "auto" }),
    status, perhaps, progress, about, trouble, outcome, asked, approved, time,
    h("section", { class: "panel" }, h("h2", { text: call.approval?.changed_arguments ? "What was asked for" : "What was sent" }), jsonBlock(call.params, "Params as JSON")));

  /** Cancel the call, or show why the hub refuses that. */
  async function cancel() {
    try {
      await runAction("cancel_call", { id });
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      trouble.textContent = error.message;
    }
  }

  /** Draw all of the call. */
  function draw() {
    const running = !call.completed_at;
    refill(perhaps, defectWarning(call), candidateRequestLinks(call));
    refill(status, pill(stateWord(call)), running ? h("button", { type: "button", class: "danger", text: "Cancel call", on: { click: cancel } })
      : isUsable(call) ? h("a", { class: "button", href: repeatAddress(call), text: "Call again" }) : null);
    asked.hidden = !requests.length;
    refill(asked, h("h2", { text: "Questions" }), h("ul", { class: "rows" }, requests.map((request) => h("li", { class: "item" }, entryLink(`#/request/${encodeURIComponent(request.id)}`, {
      title: request.question || request.kind, right: pill(request.outcome), more: request.answered_by ? [h("span", { text: `by ${request.answered_by}` }), ago(request.answered_at)] : ago(request.created_at),
    })))));
    outcome.hidden = running;
    refill(outcome, h("h2", { text: call.error ? "Why it ended" : "Result" }), call.error ? faultDetails(call.error) : renderResult(call.method, call.result));
    drawApproval();
    drawTime();
  }

  /** Draw the approval that the call needed, if it did. */
  function drawApproval() {
    const it = call.approval;
    approved.hidden = !it;
    if (it) refill(approved, approvalFacts(it, call));
  }

  /** Draw where the time of the call went. */
  function drawTime() {
    refill(time, h("h2", { text: "Where the time went" }), timeline(spent, (each) => tables.request.get(each.id)?.question || each.kind));
  }

  /** Read and draw the time of a running call again. */
  async function refresh() {
    if (call.completed_at || document.hidden) return;
    spent = await runAction("call_time", { id });
    drawTime();
  }

  /** Draw the progress; read the call again and draw it if it has changed. */
  async function update() {
    const short = tables.call.get(id);
    drawProgress(progress, short);
    const now = short ? shownState(short, (each) => tables.request.get(each)) : seen;
    if (now === seen) return;
    ({ call, requests, timeline: spent } = await runAction("call", { id }));
    seen = now;
    draw();
  }

  draw();
  if (!call.completed_at) waitingHostLink(id).then((host) => about.append(...factList(["Host", host]).children));
  const timer = setInterval(oneAtATime(refresh), REFRESH_MS);
  return { update: oneAtATime(update), leave: () => clearInterval(timer), title: String(call.params?.name ?? call.method) };
}

/** Render by which rule a call needed an approval, who gave it, and what was changed before it was sent. */
function approvalFacts(approval, call) {
  const request = approval.pending_request_id && h("a", { href: `#/request/${encodeURIComponent(approval.pending_request_id)}`, text: "what was asked" });
  const given = approval.approved_by.length ? approval.approved_by.join(", ") : null;
  return [h("h2", { text: "Approval" }),
    factList(["Rule", approval.rule], [approval.granted ? "Approved by" : "Approved so far by", given], ["When", approval.granted ? ago(approval.granted_at) : null], ["State", approval.granted ? null : call.completed_at ? "not approved, and never sent" : "waits for approval"],
      ["Asked", request], ["Remembered", approval.remembered_id ? h("a", { href: "#/approvals", text: "by an earlier approval" }) : null]),
    approval.changes?.length ? [h("h3", { text: "What was changed before it was sent" }), argumentList(approval.changes)] : null];
}

/** Return a value that changes when the page must be drawn again; `find` returns a pending request by its id. */
function shownState(call, find) {
  const ids = call.pending_ids.slice(-SEEN);
  return JSON.stringify([call.state, ids, call.perhaps_pending_ids?.slice(-SEEN), call.defect, call.approval?.approved_by?.length, ids.map(find).map((request) => request && [request.state, request.moments.length])]);
}

/** Draw the progress of a call that is under way; `short` is its record in the tables. */
function drawProgress(box, short) {
  const it = short?.done ? null : short?.progress;
  if (!it) return box.replaceChildren();
  const meter = it.total > 0 ? h("progress", { value: it.progress, max: it.total, "aria-label": "Progress" }) : null;
  refill(box, meter, h("span", { text: `${it.progress}${it.total ? ` of ${it.total}` : ""} ${it.message ?? ""}`, dir: "auto" }));
}
