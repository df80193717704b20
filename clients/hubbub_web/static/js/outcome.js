// What came of a pending request: the answer in words, and what the call returned.

import { ask, Refused } from "./api.js";
import { clean, facts, h, json, refill, words } from "./dom.js";
import { content, fault, result } from "./content.js";
import { choicesOf } from "./form.js";
import { callName, oneAtATime, tables } from "./store.js";
import { span } from "./time.js";
import { lasting } from "./wording.js";

const MOST = 200;
const HAPPENED = { shown: "shown to", claimed: "claimed by", released: "given back by", lapsed: "left by", answered: "answered by", approved: "approved by", not_counted: "not counted, of" };

/** Render what was given as answer, below a heading that says whether it was: fields by their titles, choices by their labels. */
export function answered(it) {
  const answer = it.answer;
  if (answer.error) return facts(["Reason", answer.error.message]);
  if (it.kind === "approval") return facts(["Reason", answer.reason], ["Remembered for", answer.remember_s && `${lasting(answer.remember_s)}${answer.same_arguments ? ", the same arguments only" : ""}`], ["Allowed as well", it.approval?.suggestions.filter((each) => answer.suggestions?.includes(each.index)).map((each) => each.label).join("; ")], ["Comment", answer.comment]);
  if (it.kind === "sampling") return h("div", {}, content(answer.content), facts(["Model", answer.model], ["Why it ends", answer.stopReason]));
  if (it.kind === "roots") return json(answer, "The answer");
  if (it.agent?.decided) return h("p", { text: `${it.agent.decided[0].toUpperCase()}${it.agent.decided.slice(1)}` });
  const properties = it.request?.requestedSchema?.properties ?? {};
  const given = Object.entries(answer.content ?? {}).slice(0, MOST);
  return h("div", {}, answer.action === "accept" && !given.length ? h("p", { text: "Accepted" }) : null,
    facts(...given.map(([name, value]) => [clean(properties[name]?.title ?? name).slice(0, 300), words(inWords(value, properties[name] ?? {}))])));
}

/** Return a value of a form as people read it. */
export function inWords(value, spec) {
  if (Array.isArray(value)) {
    const choices = new Map(choicesOf(spec.items ?? {}));
    return value.map((each) => choices.get(each) ?? inWords(each, {})).join(", ") || "nothing";
  }
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "object" && value !== null) return JSON.stringify(value);
  if (spec.format === "date-time" && !Number.isNaN(Date.parse(value))) return new Date(value).toLocaleString();
  return new Map(choicesOf(spec)).get(value) ?? String(value);
}

/** Follows the call that asked until it ends, and shows what it returned. `update(id)` tells it of changes. */
export function returned() {
  const element = h("div", { class: "returned", role: "status" });
  let over = false;
  let asked = null;

  const read = oneAtATime(async () => {
    if (over || !asked) return;
    const call = await whole(asked);
    if (!call) {
      over = true;
      return;
    }
    const name = call.params?.name ?? call.method;
    if (!call.completed_at) return goesOn(name);
    over = true;
    const wrong = Boolean(call.error) || call.outcome === "tool error";
    element.classList.toggle("wrong", wrong);
    refill(element, h("h3", { dir: "auto", text: call.state === "cancelled" ? `${name} was cancelled` : call.error ? `${name} failed` : wrong ? `${name} says that it failed` : `${name} returned` }), call.error ? fault(call.error) : result(call.method, call.result));
  });

  /** Return the call; null if the hub has it no more, or does not show it. */
  async function whole(id) {
    try {
      return (await ask("call", { id })).call;
    } catch (error) {
      if (error instanceof Refused && [403, 404].includes(error.status)) return null;
      throw error;
    }
  }

  function goesOn(name) {
    const says = clean(`${name} goes on. What it returns is shown here.`);
    if (element.textContent !== says) refill(element, h("p", { class: "quiet", text: says }));
  }

  function update(id) {
    if (over || !id) return;
    const call = tables.call.get(id);
    if (asked === id && call && !call.done) return goesOn(callName(id));
    asked = id;
    read();
  }

  return { element, update };
}

/** Render who was shown it, claimed it and answered it, and how long after it was asked. */
export function story(it) {
  if (!it.moments.length) return null;
  const asked = Date.parse(it.created_at);
  return h("section", { "aria-label": "What happened" }, h("h2", { text: "What happened" }), h("ol", { class: "moments" }, it.moments.map((each) =>
    h("li", {}, h("span", { class: "quiet", text: span(Date.parse(each.at) - asked) }), h("span", { text: moment(it, each) })))));
}

/** Return what an answer was that gives nothing, as ": declined"; empty for one that gives what was asked for. */
export function unlessGiven(it) {
  return it.state === "answered" && it.outcome !== "answered" ? `: ${it.outcome}` : "";
}

function moment(it, each) {
  if (each.what === "delivered" && it.delivery === "late") return "delivered too late";
  if (!each.by || !HAPPENED[each.what]) return each.what ?? "unknown";
  const how = each.what === "answered" ? unlessGiven(it) : "";
  return `${HAPPENED[each.what]} ${each.agent ? "the agent " : ""}${each.by}${each.via ? ` via ${each.via}` : ""}${how}`;
}
