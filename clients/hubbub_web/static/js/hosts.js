// Hosts: who uses the hub as an MCP server, and what each waits for. The hub lists them, and does not tell of changes.

import { runAction, Refused } from "./api.js";
import { clean, factList, uniqueId, h, pill, refill } from "./dom.js";
import { entryLink, rowList, searchBox } from "./list.js";
import { callName, tables } from "./store.js";
import { ago } from "./time.js";

const REFRESH_MS = 2000;
// Reading takes at most one part in so many of the time.
const SHARE = 10;
const LONGEST_MS = 10000;

/** Open the page of all hosts. */
export async function hostsPage(main) {
  const list = rowList(hostRow, { name: "Hosts", empty: h("p", { text: "No host has these words." }) });
  const search = searchBox("Search", draw);
  const all = h("input", { type: "checkbox", id: uniqueId("gone"), on: { change: draw } });
  const howMany = h("label", { for: all.id });
  const withGone = h("div", { class: "check" }, all, howMany);
  const filters = h("div", { class: "filters", role: "search" }, search.element);
  const note = h("p", { class: "help" });
  const emptyPlace = h("div");
  let hosts = [];
  let words = {};
  refill(main, h("h1", { text: "Hosts" }), filters, withGone, note, list.element, emptyPlace);

  /** Draw the hosts that match, or how to connect the first one. */
  function draw() {
    const gone = hosts.filter((host) => host.gone).length;
    withGone.hidden = !gone;
    howMany.textContent = `Show those that have probably gone, too (${gone.toLocaleString()})`;
    const none = all.checked ? !hosts.length : gone === hosts.length;
    filters.hidden = list.element.hidden = none;
    if (!none) emptyPlace.replaceChildren();
    else if (words.refused) refill(emptyPlace, h("p", { class: "none", text: words.refused }));
    else if (!emptyPlace.querySelector(".panel")) refill(emptyPlace, noHosts(words));
    list.show(hosts.filter((host) => (all.checked || !host.gone) && search.matches(host.name, host.version, host.principal, host.sees, host.id)));
  }

  /** Read the hosts and draw them. */
  async function read() {
    const found = await runAction("hosts");
    note.textContent = found.more ? `The newest ${found.hosts.length.toLocaleString()} are shown; hubbub mcp sessions has all.` : "";
    hosts = keepUnchanged(hosts, (found.hosts ?? []).map((host) => ({ ...host, state: shownHostState(host), waits: waitText(host) })));
    words = found;
    draw();
  }

  await read();
  return { update() {}, leave: readRepeatedly(read), list };
}

/** Open the page of one host. */
export async function hostPage(main, id) {
  const title = h("h1");
  const box = h("div");
  let host = null;
  let seen = "";
  refill(main, h("div", { class: "crumbs" }, h("a", { href: "#/hosts", text: "Hosts" })), title, box);

  /** Read the host and draw it, or that it is not connected. */
  async function read() {
    const found = await runAction("host", { id });
    host = found.host ?? (host && { ...host, requests: [], state: "gone" });
    if (host) draw();
    else {
      refill(title, "Host");
      refill(box, h("p", { class: "none", text: found.refused ?? "This host is not connected any more." }), h("p", {}, h("a", { class: "button", href: "#/hosts", text: "Back to hosts" })));
    }
  }

  /** Draw the host if what is shown of it has changed; the focus stays at its link. */
  function draw() {
    const now = JSON.stringify([host, host.requests.map((request) => [requestTitle(request), request.pending_request_ids.map(questionText), candidateRequestIds(request).map(questionText)])]);
    if (now === seen) return;
    seen = now;
    const focused = box.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    refill(title, [host.name, host.version].filter(Boolean).join(" "));
    refill(box, h("div", { class: "status" }, hostPill(shownHostState(host))),
      factList(["Acts for", host.principal], ["Sees", endpointLink(host)], ["Over", host.transport], ["MCP revision", host.protocol_version],
        [host.has_session ? "Connected" : "First seen", ago(host.created_at)], ["Last seen", ago(host.last_used_at)], ["Stream", host.stream], ["Id", host.id]),
      h("section", { class: "panel" }, h("h2", { text: "What it waits for" }),
        host.requests.length ? h("ul", { class: "cards" }, host.requests.map(requestCard)) : h("p", { class: "quiet", text: "Nothing at the moment." }),
        h("p", { class: "help" }, "A call that it was given a ticket or a task for goes on without it, and is among ", h("a", { href: "#/calls", text: "the calls" }), ".")));
    if (focused) box.querySelector(`[href="${CSS.escape(focused)}"]`)?.focus();
  }

  await read();
  // Names of calls and the words of questions may come later than the host itself.
  return { update: () => { if (host) draw(); }, leave: readRepeatedly(read) };
}

/** Render a link to the host that waits for a call; nothing if none does, or it cannot be known. */
export async function waitingHostLink(callId) {
  try {
    const { host } = await runAction("waiting_host", { call_id: callId });
    return host && h("a", { href: `#/host/${encodeURIComponent(host.id)}`, text: host.name, dir: "auto" });
  } catch {
    return null;
  }
}

/** Render the row of a host. */
function hostRow(host) {
  return [entryLink(`#/host/${encodeURIComponent(host.id)}`, {
    title: [host.name, host.version].filter(Boolean).join(" "), right: hostPill(host.state), chips: [`for ${host.principal}`],
    more: [host.waits ? h("span", { class: "claimed", dir: "auto", text: host.waits }) : null, h("span", {}, "last seen ", ago(host.last_used_at)),
      host.stream_open ? h("span", { text: "stream open" }) : null, h("span", { text: host.sees }), h("span", { text: `${host.transport} · ${host.protocol_version}` })],
  })];
}

/** Return which calls a host waits for, and the first question of these, in a line; empty if it waits for none. */
function waitText(host) {
  const calls = host.requests.filter((each) => each.call_id);
  if (!calls.length) return "";
  const others = calls.length + host.open - host.requests.length - 1;
  const asks = calls.flatMap((each) => [...each.pending_request_ids, ...candidateRequestIds(each)]).map(questionText)[0];
  return `waits for ${requestTitle(calls[0])}${others ? ` and ${others} more` : ""}${asks ? `: ${asks}` : ""}`;
}

const STATES = { connected: "good", quiet: "", "probably gone": "", gone: "" };

/** Return the state of a host as it is shown; "perhaps" if one of its calls may wait for a person. */
function shownHostState(host) {
  return host.state === "in_progress" && host.requests.some((each) => candidateRequestIds(each).length) ? "perhaps" : host.state;
}

/** Render the state of a host. */
function hostPill(state) {
  return state in STATES ? h("span", { class: `pill ${STATES[state]}`, text: state === "gone" ? "not connected any more" : state }) : pill(state);
}

/** Render which endpoint a host uses: a link to its server, or the profile in words. */
function endpointLink(host) {
  const [kind, name] = [host.endpoint.slice(0, 1), host.endpoint.slice(2)];
  return kind === "s" ? h("span", {}, "server ", h("a", { href: `#/server/${encodeURIComponent(name)}`, text: name })) : host.sees;
}

/** Render an open request, with links to its call and to what that waits for. */
function requestCard(request) {
  const name = requestTitle(request);
  return h("li", { class: "card" },
    h("span", { class: "line" }, request.call_id ? h("a", { href: `#/call/${encodeURIComponent(request.call_id)}`, text: name, dir: "auto" }) : h("strong", { text: name }),
      name === request.method ? null : h("span", { class: "kind", text: request.method }), ago(request.created_at)),
    request.pending_request_ids.map((id) => questionLink(id, "Waits for an answer: ")), candidateRequestIds(request).map((id) => questionLink(id, "Waits for an answer, perhaps: ")));
}

/** Render a link to a pending request, after some words. */
function questionLink(id, before) {
  return h("span", { class: "what" }, before, h("a", { href: `#/request/${encodeURIComponent(id)}`, text: questionText(id), dir: "auto" }));
}

/** Return what a request is about: its call, or its method. */
function requestTitle(request) {
  return tables.call.has(request.call_id) ? callName(request.call_id) : request.method;
}

/** Return the open pending requests that the call of a request may have caused, where the cause is unknown. */
function candidateRequestIds(request) {
  const call = tables.call.get(request.call_id);
  return call && !call.done ? call.perhaps_pending_ids ?? [] : [];
}

/** Return the question of a pending request; its id if the page does not know it. */
function questionText(id) {
  return tables.request.get(id)?.question || id;
}

/** Render how to connect the first host; `words` are texts of the bridge. */
function noHosts(words) {
  return h("section", { class: "panel" }, h("h2", { text: "No host is connected" }), h("p", { text: words.empty }),
    h("p", { class: "address", text: words.paste }), h("p", { class: "help", text: words.others }));
}

/** Return the records of `now`; one that is as before is the same object as before, so that it is not drawn again. */
function keepUnchanged(before, now) {
  const known = new Map(before.map((each) => [each.id, each]));
  return now.map((each) => (JSON.stringify(known.get(each.id)) === JSON.stringify(each) ? known.get(each.id) : each));
}

/** Call `read` again and again while the page can be seen; return a function that ends it. What fails is tried again. */
function readRepeatedly(read) {
  let timer = 0;
  let over = false;
  /** Read if the page can be seen, and again after a pause that grows with the time it took. */
  async function readAndWait() {
    const began = Date.now();
    if (!document.hidden) {
      await read().catch((error) => { if (!(error instanceof Refused || error instanceof TypeError)) throw error; });
    }
    if (!over) timer = setTimeout(readAndWait, Math.min(Math.max(REFRESH_MS, SHARE * (Date.now() - began)), LONGEST_MS));
  }
  timer = setTimeout(readAndWait, REFRESH_MS);
  return () => { over = true; clearTimeout(timer); };
}

/** Return which hosts were asked a question, and why others were not, in a line; empty if none was. */
export function hostsAsked(request) {
  return (request.hosts ?? []).map((each) => clean(`${each.host}: ${each.why_not ? `not asked, ${each.why_not}` : "asked"}`)).join("; ");
}
