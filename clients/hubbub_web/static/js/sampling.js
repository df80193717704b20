// Sampling: a text to write as a model would.

import { h, factList, uniqueId, jsonBlock, textBlock } from "./dom.js";
import { messageList } from "./content.js";

/** Render the messages of a sampling, its system prompt, and the preferences of the server. */
export function conversation(params) {
  const messages = Array.isArray(params.messages) ? params.messages : [];
  return h("div", {},
    params.systemPrompt ? h("section", { class: "aside" }, h("h2", { class: "small", text: "System prompt" }), textBlock(params.systemPrompt)) : null,
    messageList(messages),
    modelPreferences(params));
}

/** Render which model and limits the server prefers, and the tools that the reply may use. */
function modelPreferences(params) {
  const wanted = params.modelPreferences ?? {};
  const hints = Array.isArray(wanted.hints) ? wanted.hints.map((each) => each?.name).filter(Boolean).slice(0, 20).join(", ") : null;
  const list = factList(["Longest reply", params.maxTokens && `${params.maxTokens} tokens`], ["Models it has in mind", hints],
    ["Low cost", priorityMeter(wanted.costPriority, "Low cost")], ["Speed", priorityMeter(wanted.speedPriority, "Speed")],
    ["Intelligence", priorityMeter(wanted.intelligencePriority, "Intelligence")], ["Temperature", params.temperature],
    ["Stop at", Array.isArray(params.stopSequences) ? params.stopSequences.slice(0, 20).join(" · ") : null], ["Context", params.includeContext]);
  const tools = Array.isArray(params.tools) && params.tools.length
    ? h("details", { class: "aside" }, h("summary", { text: `Tools that the reply may use (${params.tools.length})` }), jsonBlock(params.tools, "Tools")) : null;
  return h("div", {}, list.children.length ? h("h2", { class: "small", text: "Preferences" }) : null, list, tools);
}

/** Render a priority between 0 and 1 as a meter; null for none. */
function priorityMeter(value, name) {
  if (typeof value !== "number") return null;
  const share = Math.min(1, Math.max(0, value));
  return h("span", { class: "priority" }, h("meter", { min: 0, max: 1, value: share, "aria-label": `${name}: ${Math.round(share * 100)} %` }),
    ` ${Math.round(share * 100)} %`);
}

/** Make the form that answers a sampling; `send(answer)` sends it. */
export function replyForm(send) {
  const id = uniqueId("reply");
  const text = h("textarea", { id, rows: 7, "aria-describedby": `${id}-problem`, dir: "auto" });
  const model = h("input", { type: "text", id: `${id}-model`, autocomplete: "off", value: "human" });
  const stop = h("select", { id: `${id}-stop` }, ["endTurn", "stopSequence", "maxTokens"].map((each) => h("option", { value: each, text: each })));
  const raw = h("textarea", { id: `${id}-raw`, rows: 10, class: "code", spellcheck: "false", dir: "ltr" });
  const problem = h("p", { class: "problem", id: `${id}-problem`, hidden: true });
  const details = h("details", { class: "aside" }, h("summary", { text: "Model, stop reason, whole result" }),
    h("div", { class: "field" }, h("label", { for: model.id, text: "Model that is said to have written it" }), model),
    h("div", { class: "field" }, h("label", { for: stop.id, text: "Why it ends" }), stop),
    h("div", { class: "field" }, h("label", { for: raw.id, text: "Whole MCP result as JSON (used instead, if not empty)" }), raw,
      h("button", { type: "button", class: "plain", text: "Start from the reply above", on: { click: () => { raw.value = JSON.stringify(buildResult(), null, 2); } } })));

  /** Return the MCP result that the fields make. */
  function buildResult() {
    return { role: "assistant", content: { type: "text", text: text.value }, model: model.value || "human", stopReason: stop.value };
  }

  /** Show a problem at the input `where`; an empty one removes it. */
  function showProblem(message, where) {
    problem.hidden = !message;
    problem.textContent = message;
    where.setAttribute("aria-invalid", String(Boolean(message)));
    if (message) where.focus();
  }

  /** Send the reply, or the whole result if one is written; show what is wrong. */
  function submit(event) {
    event.preventDefault();
    showProblem("", text);
    showProblem("", raw);
    if (raw.value.trim()) {
      try {
        return send({ result: JSON.parse(raw.value) });
      } catch {
        details.setAttribute("open", "");
        return showProblem("The whole result is not JSON.", raw);
      }
    }
    if (!text.value) return showProblem("Please write a reply.", text);
    return send(model.value === "human" && stop.value === "endTurn" ? { text: text.value } : { result: buildResult() });
  }

  const bar = h("div", { class: "row bar" }, h("button", { class: "primary", type: "submit", text: "Send reply" }));
  const element = h("form", { on: { submit } },
    h("div", { class: "field" }, h("label", { for: id, text: "Your reply" }), text, problem), details, bar);
  return {
    element,
    bar,
    /** Show all violations below the reply, and mark it, or the whole result if one is written; return none. */
    showProblems(violations) {
      if (!violations.length) return [];
      showProblem(violations.map(([place, what]) => `${place.replace(/^result\./, "")}: ${what}`).join("; "), raw.value.trim() ? raw : text);
      return [];
    },
  };
}

/** Make the form that answers a request for roots; `send(answer)` sends it. */
export function rootsForm(send) {
  const id = uniqueId("roots");
  const input = h("textarea", { id, rows: 4, class: "code", "aria-describedby": `${id}-help ${id}-problem`, spellcheck: "false", dir: "ltr" });
  const problem = h("p", { class: "problem", id: `${id}-problem`, hidden: true });
  const bar = h("div", { class: "row bar" }, h("button", { class: "primary", type: "submit", text: "Send" }));
  const element = h("form", { on: { submit: (event) => {
    event.preventDefault();
    send({ result: { roots: input.value.split("\n").map((line) => line.trim()).filter(Boolean).map((uri) => ({ uri })) } });
  } } },
  h("div", { class: "field" }, h("label", { for: id, text: "Directories, one a line" }),
    h("p", { class: "help", id: `${id}-help`, text: "Such as file:///srv/project. None is an answer too." }), input, problem), bar);
  return {
    element,
    bar,
    /** Show all violations below the field, by their lines; return none. */
    showProblems(violations) {
      problem.hidden = !violations.length;
      problem.textContent = violations.map(([place, what]) => `${place.replace(/^result\.roots\.(\d+)\.uri$/, (_, at) => `Line ${Number(at) + 1}`)}: ${what}`).join("; ");
      input.setAttribute("aria-invalid", String(violations.length > 0));
      if (violations.length) input.focus();
      return [];
    },
  };
}
