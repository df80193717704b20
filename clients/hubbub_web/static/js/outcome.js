// What came of a pending request: the answer in words, and what the call returned.

import { runAction, Refused } from "./api.js";
import { clean, factList, h, jsonBlock, refill, textBlock } from "./dom.js";
import { renderContent, faultDetails, renderResult } from "./content.js";
import { choicesOf } from "./form.js";
import { callName, oneAtATime, tables } from "./store.js";
import { duration } from "./time.js";
import { durationInWords } from "./wording.js";

const MOST = 200;
const HAPPENED = { shown: "shown to", claimed: "claimed by", released: "given back by", lapsed: "left by", answered: "answered by", approved: "approved by", not_counted: "not counted, of" };

/** Render what was given as answer: fields by their titles, choices by their labels. The heading above says whether anything was given. */
export function answerDetails(request) {
  const answer = request.answer;
  if (answer.error) return factList(["Reason", answer.error.message]);
  if (request.kind === "approval") return factList(["Reason", answer.reason], ["Remembered for", answer.remember_s && `${durationInWords(answer.remember_s)}${answer.same_arguments ? ", the same arguments only" : ""}`], ["Allowed as well", request.approval?.suggestions.filter((each) => answer.suggestions?.includes(each.index)).map((each) => each.label).join("; ")], ["Comment", answer.comment]);
  if (request.kind === "sampling") return h("div", {}, renderContent(answer.content), factList(["Model", answer.model], ["Why it ends", answer.stopReason]));
  if (request.kind === "roots") return jsonBlock(answer, "The answer");
  if (request.agent?.decided) return h("p", { text: `${request.agent.decided[0].toUpperCase()}${request.agent.decided.slice(1)}` });
  const properties = request.request?.requestedSchema?.properties ?? {};
  const given = Object.entries(answer.content ?? {}).slice(0, MOST);
  return h("div", {}, answer.action === "accept" && !given.length ? h("p", { text: "Accepted" }) : null,
    factList(...given.map(([name, value]) => [clean(properties[name]?.title ?? name).slice(0, 300), textBlock(valueInWords(value, properties[name] ?? {}))])));
}

/** Return a value of a form as people read it. */
export function valueInWords(value, spec) {
  if (Array.isArray(value)) {
    const choices = new Map(choicesOf(spec.items ?? {}));
    return value.map((each) => choices.get(each) ?? valueInWords(each, {})).join(", ") || "nothing";
  }
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "object" && value !== null) return JSON.stringify(value);
  if (spec.format === "date-time" && !Number.isNaN(Date.parse(value))) return new Date(value).toLocaleString();
  return new Map(choicesOf(spec)).get(value) ?? String(value);
}

/** Make the element that shows what the call that asked returned, once it has ended; `update(id)` is called after each change of the tables. */
export function returnedResult() {
  const element = h("div", { class: "returned", role: "status" });
  let over = false;
  let asked = null;

  /** Read the call, and show what it returned, or that it goes on. */
  const read = oneAtATime(async () => {
    if (over || !asked) return;
    const call = await readCall(asked);
    if (!call) {
      over = true;
      return;
    }
    const name = call.params?.name ?? call.method;
    if (!call.completed_at) return showRunning(name);
    over = true;
    const wrong = Boolean(call.error) || call.outcome === "tool error";
    element.classList.toggle("wrong", wrong);
    refill(element, h("h3", { dir: "auto", text: call.state === "cancelled" ? `${name} was cancelled` : call.error ? `${name} failed` : wrong ? `${name} says that it failed` : `${name} returned` }), call.error ? faultDetails(call.error) : renderResult(call.method, call.result));
  });

  /** Return the call; null if the hub has it no more, or does not show it. */
  async function readCall(id) {
    try {
      return (await runAction("call", { id })).call;
    } catch (error) {
      if (error instanceof Refused && [403, 404].includes(error.status)) return null;
      throw error;
    }
  }

  /** Show that the call goes on. */
  function showRunning(name) {
    const says = clean(`${name} goes on. What it returns is shown here.`);
    if (element.textContent !== says) refill(element, h("p", { class: "quiet", text: says }));
  }

  /** Follow the call with this id: read it once it has ended. */
  function update(id) {
    if (over || !id) return;
    const call = tables.call.get(id);
    if (asked === id && call && !call.done) return showRunning(callName(id));
    asked = id;
    read();
  }

  return { element, update };
}

/** Render who was shown it, claimed it and answered it, and how long after it was asked; null if nothing is known. */
export function requestHistory(request) {
  if (!request.moments.length) return null;
  const asked = Date.parse(request.created_at);
  return h("section", { "aria-label": "What happened" }, h("h2", { text: "What happened" }), h("ol", { class: "moments" }, request.moments.map((each) =>
    h("li", {}, h("span", { class: "quiet", text: duration(Date.parse(each.at) - asked) }), h("span", { text: describeMoment(request, each) })))));
}

/** Return how a request was refused, as `: declined`; empty if it was answered with what it asked for. */
export function refusalSuffix(request) {
  return request.state === "answered" && request.outcome !== "answered" ? `: ${request.outcome}` : "";
}

/** Return what happened to a request at one moment, in words. */
function describeMoment(request, moment) {
  if (moment.what === "delivered" && request.delivery === "late") return "delivered too late";
  if (!moment.by || !HAPPENED[moment.what]) return moment.what ?? "unknown";
  const how = moment.what === "answered" ? refusalSuffix(request) : "";
  return `${HAPPENED[moment.what]} ${moment.agent ? "the agent " : ""}${moment.by}${moment.via ? ` via ${moment.via}` : ""}${how}`;
}
