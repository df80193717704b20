// A call to approve: who wants to run what, with exactly which arguments, and the ways to say yes or no.

import { ask, Refused } from "./api.js";
import { changePanel } from "./change.js";
import { clean, code, fresh, h, refill, words } from "./dom.js";
import { guardEnter } from "./form.js";
import { argumentList } from "./given.js";
import { ago } from "./time.js";
import { afresh, CHANGED, consequence, obstacle, remembering, suggesting, WAIT } from "./wording.js";

// After a change of what is shown, so long nothing can be pressed: a finger on its way was meant for what was there before.
const REST_MS = 500;

/** Render who wants to do what: names that others chose are marked as such. */
export function approvalTitle({ approval: it }) {
  return [h("bdi", { text: it.caller || "Somebody" }), it.host ? h("span", { class: "quiet" }, " through ", h("bdi", { text: it.host })) : null,
    " wants to run ", marked(it.tool), " on ", marked(it.server)];
}

function marked(text) {
  return h("code", { class: "name", dir: "ltr", text });
}

/** Render all that is known of a call to approve. */
export function approvalCard(whole) {
  const it = whole.approval;
  return h("div", { class: "approval" },
    h("p", { class: "hints" }, it.hints.map(({ text, tone }) => h("span", { class: `pill ${tone}`, title: `The server ${it.server} says so`, text }))),
    ruleWords(it),
    it.changes ? h("section", { class: "aside", "aria-label": "What has been changed" }, h("h2", { class: "small", text: it.changed }), argumentList(it.changes, "Nothing is different.")) : null,
    h("section", { class: "aside", "aria-label": "What is sent" }, h("h2", { class: "small", text: it.changes ? "What is sent now" : "What is sent" }), it.folder ? h("p", { class: "help" }, "In the folder ", marked(it.folder)) : null, argumentList(it.arguments, "No arguments.")),
    h("details", { class: "aside" }, h("summary", { text: "As JSON" }), code(it.text, "JSON")),
    serverWords(it),
    before(whole));
}

/** Render what the rule and the hub say. */
function ruleWords(it) {
  return h("section", { class: "rule", "aria-label": "The rule" },
    h("p", { dir: "auto" }, h("strong", { text: it.rule ? `Rule “${it.rule}”` : "The rules ask" }), it.message ? [": ", it.message] : null),
    it.reason ? h("p", { dir: "auto", text: it.reason }) : null,
    it.progress ? h("p", { dir: "auto", text: it.progress }) : null,
    it.approvals.filter((each) => each.comment).map((each) => h("p", { class: "help", dir: "auto" }, h("bdi", { text: each.by }), ": ", each.comment)),
    h("p", { class: "help", dir: "auto", text: `May approve: ${it.who}.` }));
}

/** Render what the server says of its tool, marked as its words. */
function serverWords(it) {
  if (!it.description && !it.title) return null;
  return h("details", { class: "aside foreign" }, h("summary", {}, "What ", h("bdi", { text: it.server }), " says of this tool"),
    it.title ? words(it.title, { class: "title" }) : null, words(it.description));
}

/** Render what the caller called before of this server, read when it is wanted. */
function before({ id, approval: it }) {
  if (!it.before.length) return null;
  const list = h("ul", { class: "earlier" });
  async function read() {
    if (!box.open || list.children.length) return;
    try {
      const { calls } = await ask("before", { id });
      refill(list, calls.length ? calls.map(earlier) : h("li", { class: "quiet", text: "They are not kept any more." }));
    } catch (error) {
      refill(list, h("li", { class: "problem", text: error instanceof Refused ? error.message : "The bridge cannot be reached." }));
    }
  }
  const box = h("details", { class: "aside", on: { toggle: read } }, h("summary", {}, "What ", h("bdi", { text: it.caller || "the caller" }), ` did before on ${it.server} (${it.before.length})`), list);
  return box;
}

function earlier(call) {
  return h("li", {}, h("a", { href: `#/call/${encodeURIComponent(call.id)}`, text: call.tool ?? call.method, dir: "auto" }), " ", h("span", { class: "quiet" }, `${call.outcome.replaceAll("_", " ")}, `, ago(call.created_at)),
    call.given ? words(call.given, { class: "mono quiet" }) : null);
}

/** The card of an open call to approve, with its buttons. `send(answer)` sends an answer, `say` shows a problem, `redraw` the state of buttons. */
export class ApprovalForm {
  constructor(whole, { send, say, redraw }) {
    this.send = send;
    this.say = say;
    this.redraw = redraw;
    this.card = h("div");
    this.panel = h("div");
    this.buttons = h("div", { class: "row ways" });
    this.note = h("p", { class: "help", id: fresh("note") });
    this.bar = h("div", { class: "bar" }, this.note, this.buttons);
    this.element = h("div", { role: "group" }, this.card, this.panel, this.bar);
    this.renew(whole);
  }

  /** Show it as it is now. The buttons are new ones: what was pressed before and is let go now presses none of them. */
  renew(whole) {
    this.whole = whole;
    this.open(null);
    refill(this.card, approvalCard(whole));
    this.drawButtons();
    this.rest();
  }

  /** Let nothing be pressed for a moment: what is shown has changed. */
  rest() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.setResting(false), REST_MS);
    this.setResting(true);
  }

  setResting(is) {
    this.resting = is;
    for (const each of this.buttons.querySelectorAll("[data-opens]")) {
      if (is) each.setAttribute("aria-disabled", "true");
      else each.removeAttribute("aria-disabled");
    }
    this.redraw();
  }

  drawButtons() {
    const { approval: it } = this.whole;
    const why = it.obstacle;
    const may = !why;
    this.note.textContent = clean(why ? obstacle(why, it) : consequence(it));
    const of = clean(`: ${it.tool} on ${it.server}`);
    refill(this.buttons,
      may ? h("button", { type: "button", class: it.destructive ? "primary grave" : "primary", "data-sends": "yes", "aria-label": `Approve${of}`, "aria-describedby": this.note.id, text: "Approve", on: { click: this.does(() => this.approve({})) } }) : null,
      may && it.remember.length ? this.opener("remember", it.remember.length === 1 ? `Approve for ${it.remember[0].label}…` : "Approve for longer…") : null,
      may && it.suggestions.length ? this.opener("session", it.suggestions.some((each) => each.lasting) ? "Approve and allow more…" : "Approve for this session…") : null,
      (may || why === "again") && it.may_change ? this.opener("change", "Change…") : null,
      may || why === "again" || why === "caller" ? this.opener("deny", "Deny…") : null);
  }

  /** A button that unfolds one of the panels. */
  opener(name, text) {
    return h("button", { type: "button", class: name === "deny" ? "danger" : null, "data-opens": name, text, on: { click: this.does(() => this.open(name)) } });
  }

  /** Return a listener that acts only on what was meant: not on what has just come under the finger, nor on the second of two clicks. */
  does(act) {
    return (event) => {
      if (event.detail > 1) return undefined;
      return this.resting ? this.say(WAIT) : act();
    };
  }

  /** Unfold a panel, or none. */
  open(name) {
    const was = this.opened;
    this.opened = name;
    this.editor = null;
    this.buttons.hidden = this.note.hidden = Boolean(name);
    this.bar.classList.toggle("folded", Boolean(name));
    if (!name) {
      const focused = this.panel.contains(document.activeElement);
      this.panel.replaceChildren();
      if (focused) this.buttons.querySelector(`[data-opens=${was}]`)?.focus();
      return;
    }
    this.say("");
    const made = this[`${name}Panel`]();
    const panel = h("form", { class: "panel inner", "aria-label": made.label, on: { submit: (event) => { event.preventDefault(); this.does(made.submit)(event); }, keydown: (event) => this.leave(event) } }, made.content);
    panel.noValidate = true;
    guardEnter(panel, (text) => this.say(text));
    refill(this.panel, panel);
    this.redraw();
    (panel.querySelector("input:checked, input, textarea") ?? panel).focus({ preventScroll: true });
    panel.scrollIntoView({ block: "nearest" });
  }

  leave(event) {
    if (event.key !== "Escape") return;
    event.preventDefault();
    this.open(null);
  }

  rememberPanel() {
    const { approval: it } = this.whole;
    const spans = it.remember;
    const group = fresh("span");
    const inputs = spans.map((_, at) => h("input", { type: "radio", name: group, id: fresh("span"), checked: at === 0 }));
    const same = h("input", { type: "checkbox", id: fresh("same"), checked: true });
    const comment = this.comment();
    const send = h("button", { type: "submit", class: "primary" });
    const chosen = () => spans[inputs.findIndex((each) => each.checked)];
    const draw = () => { send.textContent = `Approve for ${chosen().label}`; };
    for (const each of inputs) each.addEventListener("change", draw);
    draw();
    return {
      label: "Approve for longer",
      submit: () => this.approve({ remember_s: chosen().seconds, same_arguments: same.checked, comment: comment.input.value }),
      content: [h("fieldset", { class: "field" }, h("legend", {}, "For how long may ", h("bdi", { text: it.caller || "the caller" }), " run ", marked(it.tool), " on ", marked(it.server), " without asking?"),
        inputs.map((input, at) => h("div", { class: "check" }, input, h("label", { for: input.id, text: spans[at].label })))),
      h("div", { class: "check" }, same, h("label", { for: same.id, text: "With the same arguments only" })), comment.element,
      h("p", { class: "help", text: remembering(it) }), h("div", { class: "row" }, send, this.back())],
    };
  }

  sessionPanel() {
    const { approval: it } = this.whole;
    const ticks = it.suggestions.map(() => h("input", { type: "checkbox", id: fresh("suggestion") }));
    const comment = this.comment();
    return {
      label: "Approve and allow more",
      submit: () => {
        const taken = it.suggestions.filter((_, at) => ticks[at].checked).map((each) => each.index);
        return taken.length ? this.approve({ suggestions: taken, comment: comment.input.value }) : this.say("Tick what else is allowed, or go back.");
      },
      content: [h("fieldset", { class: "field" }, h("legend", {}, "What else may ", h("bdi", { text: it.host || it.caller || "the caller" }), " do without asking?"),
        it.suggestions.map((each, at) => h("div", { class: "check" }, ticks[at], h("label", { for: ticks[at].id, dir: "auto" }, each.lasting ? h("strong", { text: each.label }) : each.label)))),
      comment.element, h("p", { class: "help", text: suggesting(it) }), h("div", { class: "row" }, h("button", { type: "submit", class: "primary", text: "Approve with these" }), this.back())],
    };
  }

  changePanel() {
    this.editor = changePanel(this.whole, { say: this.say, redraw: this.redraw, changed: () => this.say(CHANGED) });
    const comment = this.comment();
    return {
      label: "Change the arguments",
      submit: async () => {
        const given = await this.editor.next();
        if (given) this.approve({ arguments: given, comment: comment.input.value });
      },
      content: [this.editor.element, comment.element, h("p", { class: "help", text: afresh(this.whole.approval) }), h("div", { class: "row" }, this.editor.button, this.back())],
    };
  }

  denyPanel() {
    const id = fresh("reason");
    const input = h("textarea", { id, rows: 3, dir: "auto", "aria-describedby": `${id}-help` });
    return {
      label: "Deny",
      submit: () => this.send({ deny: input.value.trim() }),
      content: [h("div", { class: "field" }, h("label", { for: id }, "Why? ", h("span", { class: "optional", text: "optional" })), h("p", { class: "help", id: `${id}-help`, text: "The caller and its model read this, with your name. Nothing is sent." }), input),
        h("div", { class: "row" }, h("button", { type: "submit", class: "danger", text: "Deny" }), this.back())],
    };
  }

  back() {
    return h("button", { type: "button", class: "plain", text: "Back", on: { click: () => this.open(null) } });
  }

  comment() {
    const input = h("input", { type: "text", id: fresh("comment"), autocomplete: "off", dir: "auto" });
    return { input, element: h("div", { class: "field" }, h("label", { for: input.id }, "Comment for the record ", h("span", { class: "optional", text: "optional" })), input) };
  }

  /** Approve what is shown, by its digest. */
  approve(how) {
    const { comment, ...more } = how;
    return this.send({ approve: this.whole.approval.digest, ...more, ...(comment?.trim() ? { comment: comment.trim() } : {}) });
  }

  /** Put problems of the hub at the fields of the editor; return those that belong to none. */
  show(violations) {
    return this.editor ? this.editor.show(violations) : violations;
  }

  /** Say why this person cannot approve, as the hub says. */
  forbid(message) {
    this.whole.approval.obstacle = message;
    this.open(null);
    this.drawButtons();
  }

  gone() {
    clearTimeout(this.timer);
  }
}
