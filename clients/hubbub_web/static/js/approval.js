// A call to approve: who wants to run what, with exactly which arguments, and the ways to say yes or no.

import { runAction, Refused } from "./api.js";
import { changePanel } from "./change.js";
import { clean, codeBlock, uniqueId, h, refill, textBlock } from "./dom.js";
import { guardEnter } from "./form.js";
import { argumentList } from "./given.js";
import { ago } from "./time.js";
import { changeEffect, CHANGED, approveEffect, obstacleText, rememberHelp, suggestionHelp, WAIT } from "./wording.js";

// After a change of what is shown, so long nothing can be pressed: a finger on its way was meant for what was there before.
const REST_MS = 500;

/** Render who wants to run what, as a heading; names that others chose are marked as such. */
export function approvalTitle({ approval }) {
  return [h("bdi", { text: approval.caller || "Somebody" }), approval.host ? h("span", { class: "quiet" }, " through ", h("bdi", { text: approval.host })) : null,
    " wants to run ", nameCode(approval.tool), " on ", nameCode(approval.server)];
}

/** Render a name as code. */
function nameCode(text) {
  return h("code", { class: "name", dir: "ltr", text });
}

/** Render all that is known of a call to approve. */
export function approvalCard(whole) {
  const it = whole.approval;
  return h("div", { class: "approval" },
    h("p", { class: "hints" }, it.hints.map(({ text, tone }) => h("span", { class: `pill ${tone}`, title: `The server ${it.server} says so`, text }))),
    ruleSection(it),
    it.changes ? h("section", { class: "aside", "aria-label": "What has been changed" }, h("h2", { class: "small", text: it.changed }), argumentList(it.changes, "Nothing is different.")) : null,
    h("section", { class: "aside", "aria-label": "What is sent" }, h("h2", { class: "small", text: it.changes ? "What is sent now" : "What is sent" }), it.folder ? h("p", { class: "help" }, "In the folder ", nameCode(it.folder)) : null, argumentList(it.arguments, "No arguments.")),
    h("details", { class: "aside" }, h("summary", { text: "As JSON" }), codeBlock(it.text, "JSON")),
    serverDescription(it),
    earlierCalls(whole));
}

/** Render why the call needs approval, who has approved it, and who may. */
function ruleSection(approval) {
  return h("section", { class: "rule", "aria-label": "The rule" },
    h("p", { dir: "auto" }, h("strong", { text: approval.rule ? `Rule “${approval.rule}”` : "The rules ask" }), approval.message ? [": ", approval.message] : null),
    approval.reason ? h("p", { dir: "auto", text: approval.reason }) : null,
    approval.progress ? h("p", { dir: "auto", text: approval.progress }) : null,
    approval.approvals.filter((each) => each.comment).map((each) => h("p", { class: "help", dir: "auto" }, h("bdi", { text: each.by }), ": ", each.comment)),
    h("p", { class: "help", dir: "auto", text: `May approve: ${approval.who}.` }));
}

/** Render what the server says of its tool, marked as its words; null if it says nothing. */
function serverDescription(approval) {
  if (!approval.description && !approval.title) return null;
  return h("details", { class: "aside foreign" }, h("summary", {}, "What ", h("bdi", { text: approval.server }), " says of this tool"),
    approval.title ? textBlock(approval.title, { class: "title" }) : null, textBlock(approval.description));
}

/** Render what the caller called before on this server, read once it is unfolded; null if nothing. */
function earlierCalls({ id, approval }) {
  if (!approval.before.length) return null;
  const list = h("ul", { class: "earlier" });
  /** Read the calls when the box is opened for the first time. */
  async function read() {
    if (!box.open || list.children.length) return;
    try {
      const { calls } = await runAction("before", { id });
      refill(list, calls.length ? calls.map(earlierCall) : h("li", { class: "quiet", text: "They are not kept any more." }));
    } catch (error) {
      refill(list, h("li", { class: "problem", text: error instanceof Refused ? error.message : "The bridge cannot be reached." }));
    }
  }
  const box = h("details", { class: "aside", on: { toggle: read } }, h("summary", {}, "What ", h("bdi", { text: approval.caller || "the caller" }), ` did before on ${approval.server} (${approval.before.length})`), list);
  return box;
}

/** Render one earlier call. */
function earlierCall(call) {
  return h("li", {}, h("a", { href: `#/call/${encodeURIComponent(call.id)}`, text: call.tool ?? call.method, dir: "auto" }), " ", h("span", { class: "quiet" }, `${call.outcome.replaceAll("_", " ")}, `, ago(call.created_at)),
    call.given ? textBlock(call.given, { class: "mono quiet" }) : null);
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
    this.note = h("p", { class: "help", id: uniqueId("note") });
    this.bar = h("div", { class: "bar" }, this.note, this.buttons);
    this.element = h("div", { role: "group" }, this.card, this.panel, this.bar);
    this.update(whole);
  }

  /** Show it as it is now. The buttons are new ones: what was pressed before and is let go now presses none of them. */
  update(whole) {
    this.whole = whole;
    this.openPanel(null);
    refill(this.card, approvalCard(whole));
    this.drawButtons();
    this.pause();
  }

  /** Let no button act for a moment: what is shown has changed. */
  pause() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.setPaused(false), REST_MS);
    this.setPaused(true);
  }

  /** Set whether buttons act, and show it. */
  setPaused(isPaused) {
    this.isPaused = isPaused;
    for (const each of this.buttons.querySelectorAll("[data-opens]")) {
      if (isPaused) each.setAttribute("aria-disabled", "true");
      else each.removeAttribute("aria-disabled");
    }
    this.redraw();
  }

  /** Draw the buttons that this person may press, and what pressing Approve does. */
  drawButtons() {
    const { approval: it } = this.whole;
    const why = it.obstacle;
    const may = !why;
    this.note.textContent = clean(why ? obstacleText(why, it) : approveEffect(it));
    const of = clean(`: ${it.tool} on ${it.server}`);
    refill(this.buttons,
      may ? h("button", { type: "button", class: it.destructive ? "primary grave" : "primary", "data-sends": "yes", "aria-label": `Approve${of}`, "aria-describedby": this.note.id, text: "Approve", on: { click: this.onPress(() => this.approve({})) } }) : null,
      may && it.remember.length ? this.panelButton("remember", it.remember.length === 1 ? `Approve for ${it.remember[0].label}…` : "Approve for longer…") : null,
      may && it.suggestions.length ? this.panelButton("session", it.suggestions.some((each) => each.lasting) ? "Approve and allow more…" : "Approve for this session…") : null,
      (may || why === "again") && it.may_change ? this.panelButton("change", "Change…") : null,
      may || why === "again" || why === "caller" ? this.panelButton("deny", "Deny…") : null);
  }

  /** Render a button that unfolds one of the panels. */
  panelButton(name, text) {
    return h("button", { type: "button", class: name === "deny" ? "danger" : null, "data-opens": name, text, on: { click: this.onPress(() => this.openPanel(name)) } });
  }

  /** Return a listener that calls `act` only for what was meant: not for what has just come under the finger, nor for the second of two clicks. */
  onPress(act) {
    return (event) => {
      if (event.detail > 1) return undefined;
      return this.isPaused ? this.say(WAIT) : act();
    };
  }

  /** Unfold a panel by its name; null folds it. */
  openPanel(name) {
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
    const panel = h("form", { class: "panel inner", "aria-label": made.label, on: { submit: (event) => { event.preventDefault(); this.onPress(made.submit)(event); }, keydown: (event) => this.closeOnEscape(event) } }, made.content);
    panel.noValidate = true;
    guardEnter(panel, (text) => this.say(text));
    refill(this.panel, panel);
    this.redraw();
    (panel.querySelector("input:checked, input, textarea") ?? panel).focus({ preventScroll: true });
    panel.scrollIntoView({ block: "nearest" });
  }

  /** Fold the panel if the key is Escape. */
  closeOnEscape(event) {
    if (event.key !== "Escape") return;
    event.preventDefault();
    this.openPanel(null);
  }

  /** Return the panel that approves later calls too: label, submit and content. */
  rememberPanel() {
    const { approval: it } = this.whole;
    const spans = it.remember;
    const group = uniqueId("span");
    const inputs = spans.map((_, at) => h("input", { type: "radio", name: group, id: uniqueId("span"), checked: at === 0 }));
    const same = h("input", { type: "checkbox", id: uniqueId("same"), checked: true });
    const comment = this.commentField();
    const send = h("button", { type: "submit", class: "primary" });
    /** Return the chosen length of time. */
    const chosen = () => spans[inputs.findIndex((each) => each.checked)];
    /** Write the chosen length of time on the button. */
    const draw = () => { send.textContent = `Approve for ${chosen().label}`; };
    for (const each of inputs) each.addEventListener("change", draw);
    draw();
    return {
      label: "Approve for longer",
      submit: () => this.approve({ remember_s: chosen().seconds, same_arguments: same.checked, comment: comment.input.value }),
      content: [h("fieldset", { class: "field" }, h("legend", {}, "For how long may ", h("bdi", { text: it.caller || "the caller" }), " run ", nameCode(it.tool), " on ", nameCode(it.server), " without asking?"),
        inputs.map((input, at) => h("div", { class: "check" }, input, h("label", { for: input.id, text: spans[at].label })))),
      h("div", { class: "check" }, same, h("label", { for: same.id, text: "With the same arguments only" })), comment.element,
      h("p", { class: "help", text: rememberHelp(it) }), h("div", { class: "row" }, send, this.backButton())],
    };
  }

  /** Return the panel that approves with suggestions of the host. */
  sessionPanel() {
    const { approval: it } = this.whole;
    const ticks = it.suggestions.map(() => h("input", { type: "checkbox", id: uniqueId("suggestion") }));
    const comment = this.commentField();
    return {
      label: "Approve and allow more",
      /** Approve with the ticked suggestions; say so if none is ticked. */
      submit: () => {
        const taken = it.suggestions.filter((_, at) => ticks[at].checked).map((each) => each.index);
        return taken.length ? this.approve({ suggestions: taken, comment: comment.input.value }) : this.say("Tick what else is allowed, or go back.");
      },
      content: [h("fieldset", { class: "field" }, h("legend", {}, "What else may ", h("bdi", { text: it.host || it.caller || "the caller" }), " do without asking?"),
        it.suggestions.map((each, at) => h("div", { class: "check" }, ticks[at], h("label", { for: ticks[at].id, dir: "auto" }, each.lasting ? h("strong", { text: each.label }) : each.label)))),
      comment.element, h("p", { class: "help", text: suggestionHelp(it) }), h("div", { class: "row" }, h("button", { type: "submit", class: "primary", text: "Approve with these" }), this.backButton())],
    };
  }

  /** Return the panel that changes the arguments. */
  changePanel() {
    this.editor = changePanel(this.whole, { say: this.say, redraw: this.redraw, changed: () => this.say(CHANGED) });
    const comment = this.commentField();
    return {
      label: "Change the arguments",
      /** Show what is different, and approve the changed arguments once that is shown. */
      submit: async () => {
        const given = await this.editor.next();
        if (given) this.approve({ arguments: given, comment: comment.input.value });
      },
      content: [this.editor.element, comment.element, h("p", { class: "help", text: changeEffect(this.whole.approval) }), h("div", { class: "row" }, this.editor.button, this.backButton())],
    };
  }

  /** Return the panel that denies the call, with a reason. */
  denyPanel() {
    const id = uniqueId("reason");
    const input = h("textarea", { id, rows: 3, dir: "auto", "aria-describedby": `${id}-help` });
    return {
      label: "Deny",
      submit: () => this.send({ deny: input.value.trim() }),
      content: [h("div", { class: "field" }, h("label", { for: id }, "Why? ", h("span", { class: "optional", text: "optional" })), h("p", { class: "help", id: `${id}-help`, text: "The caller and its model read this, with your name. Nothing is sent." }), input),
        h("div", { class: "row" }, h("button", { type: "submit", class: "danger", text: "Deny" }), this.backButton())],
    };
  }

  /** Render the button that folds the panel. */
  backButton() {
    return h("button", { type: "button", class: "plain", text: "Back", on: { click: () => this.openPanel(null) } });
  }

  /** Make the field for a comment: its input and its element. */
  commentField() {
    const input = h("input", { type: "text", id: uniqueId("comment"), autocomplete: "off", dir: "auto" });
    return { input, element: h("div", { class: "field" }, h("label", { for: input.id }, "Comment for the record ", h("span", { class: "optional", text: "optional" })), input) };
  }

  /** Send an approval of what is shown, by its digest; `how` has what else it says. */
  approve(how) {
    const { comment, ...more } = how;
    return this.send({ approve: this.whole.approval.digest, ...more, ...(comment?.trim() ? { comment: comment.trim() } : {}) });
  }

  /** Show the hub's violations at the fields of the editor; return those that belong to none. */
  showProblems(violations) {
    return this.editor ? this.editor.showProblems(violations) : violations;
  }

  /** Show that this person cannot approve, with the hub's reason. */
  forbid(message) {
    this.whole.approval.obstacle = message;
    this.openPanel(null);
    this.drawButtons();
  }

  /** End the pause without redrawing: the form is not shown any more. */
  stop() {
    clearTimeout(this.timer);
  }
}
