// One session of a coding agent, as it goes on: what it waits for, its plan, what it says and did, and what comes next.

import { followSessions, statePill, agentCalls } from "./agents.js";
import { agentCard } from "./agent.js";
import { runAction, Refused } from "./api.js";
import { clean, renderCodeSpans, factList, uniqueId, h, refill, textBlock } from "./dom.js";
import { guardEnter, optionButtons } from "./form.js";
import { oneAtATime, openRequests } from "./store.js";
import { ago } from "./time.js";

// A prompt of up to this length is the heading as it is; of a longer one the beginning.
const HEADING = 100;
// Steps and files that are shown at first.
const FIRST = 10;
const MARKS = { completed: "✓", in_progress: "▸", failed: "✗" };
const SPOKEN = { completed: "done: ", in_progress: "under way: ", failed: "failed: ", pending: "to do: " };
const GOING = new Set(["working", "waiting"]);

/** Open the page of a session. */
export function sessionPage(main, server, id) {
  const control = new AbortController();
  const heading = h("h1", { dir: "auto", text: "Session" });
  const [status, about, plan, steps, changed] = ["status", "about", "plan", "steps", "changed"].map((name) => h("div", { "data-part": name }));
  const trouble = h("p", { class: "problem", role: "alert" });
  const lost = h("p", { class: "problem", role: "alert" });
  const asked = questionBox(server, id);
  const said = textBox();
  const turn = agentCalls(trouble);
  const next = promptForm((prompt) => turn.start(server, "continue", { session: id, prompt }));
  const seen = new Map();
  let session = null;
  refill(main, h("div", { class: "crumbs" }, h("a", { href: "#/agents", text: "Agents" }), " / ", h("span", { text: server, dir: "auto" })), heading, status, lost, trouble,
    asked.element, about, plan, said.element, next.element, steps, changed);

  /** Draw a part again only if the value that it shows has changed: a person may be reading it, or have the focus there. `make()` returns its children. */
  function redrawIfChanged(box, value, make) {
    const now = JSON.stringify(value);
    if (seen.get(box) === now) return;
    seen.set(box, now);
    refill(box, make());
  }

  /** Draw the parts of the session that have changed. */
  function draw() {
    const it = session;
    redrawIfChanged(heading, it.title, () => clean(it.title.length > HEADING ? `${it.title.slice(0, HEADING)}…` : it.title));
    redrawIfChanged(status, [it.state], () => h("div", { class: "status" }, statePill(it.state), GOING.has(it.state) ? h("button", { type: "button", class: "danger", text: "Stop this turn", on: { click: stop } }) : null));
    redrawIfChanged(about, [it.end, it.agent, it.cwd, it.started_at, it.updated_at, it.turns], () => [it.end ? h("p", { class: "warning", dir: "auto", text: it.end }) : null,
      factList(["Agent", it.agent], ["Folder", h("code", { class: "name", dir: "ltr", text: it.cwd })], ["Started", ago(it.started_at)], ["Last change", ago(it.updated_at)], ["Prompts", it.turns])]);
    redrawIfChanged(plan, it.plan, () => titledPanel("Plan", it.plan.length && h("ol", { class: "plan" }, it.plan.map((each) => h("li", { "data-status": each.status }, statusMark(each.status), h("span", { dir: "auto", text: each.content }))))));
    redrawIfChanged(steps, it.tools, () => titledPanel("What it did", it.tools.length && foldedList([...it.tools].reverse().map(toolCallItem), "ul")));
    redrawIfChanged(changed, it.changed, () => titledPanel("Files changed", it.changed.length && foldedList(it.changed.map((path) => h("li", {}, h("code", { dir: "ltr", text: path }))), "ul")));
    said.show(it.text);
    next.show(it.state);
    asked.update(it);
  }

  /** Cancel the turn that is under way. */
  async function stop() {
    trouble.textContent = "";
    await turn.start(server, "cancel", { session: id });
  }

  /** Draw each state that the bridge streams, until the page is left. */
  async function follow() {
    for await (const line of followSessions({ server, id }, control.signal, (text) => { lost.textContent = text; })) {
      lost.textContent = line.problem ?? "";
      if (!line.session) continue;
      ({ session } = line);
      draw();
    }
  }
  follow();
  /** Draw what waits for an answer, and why the last call failed. */
  function update() {
    turn.update();
    if (session) asked.update(session);
  }
  return { update, leave: () => control.abort(), get isDirty() { return next.isDirty; }, title: `Session of ${server}` };
}

/** Render content under a title; null if there is no content. */
function titledPanel(title, content) {
  return content ? h("section", { class: "panel", "aria-label": title }, h("h2", { text: title }), content) : null;
}

/** Render the sign of a status, and its words for screen readers. */
function statusMark(status) {
  return [h("span", { class: "mark", "aria-hidden": "true", text: MARKS[status] ?? "·" }), h("span", { class: "unseen", text: SPOKEN[status] ?? "" })];
}

/** Render a tool call of the agent as an item of a list. */
function toolCallItem(each) {
  const places = each.paths.filter((path) => !each.title.includes(path)).slice(0, 3);
  return h("li", { "data-status": each.status }, statusMark(each.status), h("span", { dir: "auto" }, renderCodeSpans(each.title), places.map((path) => [" ", h("code", { class: "path", dir: "ltr", text: path })])));
}

/** Render a list of which the first items are shown, and a button for the others. */
function foldedList(items, tag) {
  const list = h(tag, { class: "plan" }, items.slice(0, FIRST));
  const more = h("button", { type: "button", class: "more", text: `Show all (${items.length - FIRST} more)`, on: { click: () => { more.remove(); list.append(...items.slice(FIRST)); } } });
  return h("div", {}, list, items.length > FIRST ? more : null);
}

/** Make the box with what the agent says; while its end is in sight, it stays so. */
function textBox() {
  const box = h("div", { class: "message tall", tabindex: "0", role: "group", "aria-label": "What it says" });
  const element = h("section", { class: "panel", "aria-label": "The text so far", hidden: true }, h("h2", { text: "What it says" }), box);
  let shown = "";
  return {
    element,
    /** Show the text so far; hide the box while there is none. */
    show(text) {
      element.hidden = !text;
      if (text === shown) return;
      const atEnd = box.scrollTop + box.clientHeight >= box.scrollHeight - 30;
      shown = text;
      refill(box, textBlock(text));
      if (atEnd) box.scrollTop = box.scrollHeight;
    },
  };
}

/** Make the form that sends the next prompt, when no turn is under way. */
function promptForm(send) {
  const id = uniqueId("prompt");
  const prompt = h("textarea", { id, rows: 3, dir: "auto", "aria-describedby": `${id}-help` });
  const button = h("button", { type: "submit", class: "primary", text: "Send" });
  const help = h("p", { class: "help", id: `${id}-help` });
  const element = h("form", { class: "panel", "aria-label": "Go on", hidden: true, on: { submit } }, h("div", { class: "field" }, h("label", { for: id, text: "Go on with" }), help, prompt), h("div", { class: "row" }, button));
  element.noValidate = true;
  guardEnter(element, () => {});
  let going = false;
  /** Send the prompt, if no turn is under way. */
  async function submit(event) {
    event.preventDefault();
    const text = prompt.value.trim();
    if (!text || going) return;
    button.disabled = true;
    if (await send(text)) prompt.value = "";
    button.disabled = false;
  }
  return {
    element,
    get isDirty() { return prompt.value !== ""; },
    /** Show the form for a session in this state: nothing can be sent while a turn is under way. */
    show(state) {
      element.hidden = false;
      going = GOING.has(state);
      help.textContent = going ? "It works on your last prompt. You can send the next one when that is done." : state === "lost" ? "The agent has lost this session; it may be able to load it again." : "";
      button.toggleAttribute("disabled", going);
    },
  };
}

/** Make the box with the first question that the session waits for, and the buttons that answer it. Looking at it claims nothing. */
function questionBox(server, id) {
  const element = h("section", { class: "panel waits", "aria-label": "It waits for an answer", hidden: true });
  let shown = "";
  let sending = false;

  /** Read and draw the first open question, if another one is first, or its claim or the number of questions has changed. */
  const update = oneAtATime(async () => {
    const open = openRequests().filter((each) => each.server === server && each.coding_session === id);
    const [first] = open;
    const now = JSON.stringify([first?.id, open.length, first?.claim?.by]);
    if (now === shown) return;
    shown = now;
    if (!first) {
      element.hidden = true;
      element.replaceChildren();
      return;
    }
    const whole = await runAction("request", { id: first.id });
    draw(whole, open.length, first.claim);
  });

  /** Draw the question with its buttons; `count` is how many wait, `claim` who answers it. */
  function draw(whole, count, claim) {
    const trouble = h("p", { class: "problem", role: "alert" });
    const choices = (whole.agent?.decisions ?? []).filter((each) => each.is_field);
    /** Send an answer, or show why it is refused. */
    async function send(answer) {
      if (sending) return;
      sending = true;
      trouble.textContent = "";
      try {
        await runAction("answer", { id: whole.id, answer_id: crypto.randomUUID(), ...answer });
        element.hidden = true;
      } catch (error) {
        trouble.textContent = error instanceof Refused ? error.message : "The bridge cannot be reached. Try again in a moment.";
      } finally {
        sending = false;
      }
    }
    const at = `#/request/${encodeURIComponent(whole.id)}`;
    refill(element, h("h2", { text: count > 1 ? `It waits for ${count} answers` : "It waits for your answer" }), claim ? h("p", { class: "help", dir: "auto", text: `Being answered by ${claim.by}.` }) : null,
      textBlock(whole.request?.message ?? "", { class: "ask" }, renderCodeSpans), agentCard(whole), trouble,
      h("div", { class: "row bar four" }, choices.length ? optionButtons(choices, send) : null, h("a", { class: choices.length ? "button plain" : "button primary", href: at, text: choices.length ? "Open" : "Answer it" })));
    element.hidden = false;
  }
  return { element, update };
}
