// One pending request: who asks, why, and the form to answer it; then its outcome.

import { ask, Refused, tell } from "./api.js";
import { Claiming, hinders } from "./claim.js";
import { clean, defect, facts, h, json, pill, put, refill, scrolled, words } from "./dom.js";
import { schemaForm } from "./form.js";
import { waitingHost } from "./hosts.js";
import { conversation, replyForm, rootsForm } from "./sampling.js";
import { callName, hubIsThere, openRequests, state, tables } from "./store.js";
import { ago, left, span } from "./time.js";
import { address, visitForm } from "./visit.js";
import { content } from "./content.js";

// States of a pending request that cannot be claimed.
const OVER = new Set(["ALREADY_ANSWERED", "REQUEST_WITHDRAWN", "REQUEST_EXPIRED"]);

export const KINDS = { elicitation_form: "Form", elicitation_url: "Page to visit", sampling: "Reply as a model", roots: "Directories" };
const DELIVERY = { pending: "on its way to the server", delivered: "arrived at the server", failed: "could not be delivered", late: "arrived, but the call that asked was over already" };
// Fields of a pending request that change while its page is open.
const CHANGES = ["state", "delivery", "answered_by", "answered_at", "reason", "call_id", "cause_source", "candidate_call_ids", "cause_ended", "defect"];

/** The page of a pending request. */
export async function requestPage(main, id) {
  const whole = await ask("request", { id });
  return new RequestPage(main, whole).started();
}

class RequestPage {
  constructor(main, whole) {
    this.whole = whole;
    this.id = whole.id;
    this.claimId = crypto.randomUUID();
    this.claiming = new Claiming((takeOver) => this.ask(takeOver), () => tell("release", { id: this.id, claim_id: this.claimId }), (now) => this.drawClaim(now));
    this.reached = true;
    this.sending = false;
    this.sent = null;
    this.answerId = null;
    this.host = null;
    this.status = h("div", { class: "status" });
    this.reasons = h("div");
    this.ending = h("div", { role: "status" });
    this.claimBar = h("div", { class: "claim" });
    this.claimWords = h("p", { role: "status" });
    this.takeOver = h("button", { type: "button", hidden: true, text: "Answer it here", on: { click: () => this.take() } });
    put(this.claimBar, this.claimWords, this.takeOver);
    this.trouble = h("p", { class: "problem", role: "alert" });
    this.body = h("section", { class: "panel" });
    this.outcome = h("section", { class: "panel outcome", role: "status", "aria-label": "Outcome", hidden: true });
    refill(main, h("div", { class: "crumbs" }, h("a", { href: "#/inbox", text: "Inbox" })),
      h("h1", { text: `${whole.server} asks` }), this.status, this.reasons, this.ending, this.claimBar, this.outcome, this.body);
  }

  started() {
    this.drawStatus();
    this.drawReasons();
    if (this.whole.state === "open") {
      this.drawForm();
      this.claiming.start((tables.request.get(this.id) ?? this.whole).claim);
    } else {
      this.drawOutcome();
      this.drawQuestion();
    }
    this.drawClaim();
    this.findHost();
    this.parting = () => this.part();
    window.addEventListener("pagehide", this.parting);
    return this;
  }

  get open() {
    return this.whole.state === "open";
  }

  /** Apply changes of the store. */
  update() {
    const reached = state.link === "live" && hubIsThere();
    if (reached && !this.reached) this.claiming.happens("back");
    this.reached = reached;
    const short = tables.request.get(this.id);
    if (!short) return;
    // The reply to our answer can be ahead of the stream: what is closed never opens again.
    if (short.state === "open" && !this.open) return;
    if (short.state === "open") this.claiming.hear(short.claim);
    const before = JSON.stringify(CHANGES.map((name) => this.whole[name]));
    const wasOpen = this.open;
    for (const name of CHANGES) this.whole[name] = short[name];
    if (before === JSON.stringify(CHANGES.map((name) => short[name]))) return;
    this.drawStatus();
    this.drawReasons();
    if (this.open) this.findHost();
    else if (wasOpen) this.settled();
    else this.drawOutcome();
  }

  leave() {
    window.removeEventListener("pagehide", this.parting);
    this.part();
  }

  part() {
    this.gone = true;
    this.claiming.happens("left");
  }

  /** Return whether the person has begun to write. */
  get dirty() {
    return this.open && this.touched === true;
  }

  /** Look for the host whose call asks. */
  async findHost() {
    if (!this.open || !this.whole.call_id || this.host) return;
    this.host = await waitingHost(this.whole.call_id);
    if (this.host && !this.gone) this.drawReasons();
  }

  drawReasons() {
    const it = this.whole;
    const call = it.call_id && h("span", {}, callLink(it.call_id), it.cause_source === "inferred" ? " (the only call that it can be)" : "");
    const task = it.task_id && h("a", { href: `#/task/${encodeURIComponent(it.task_id)}`, text: it.task_id });
    refill(this.reasons, defect(it), facts(["What", KINDS[it.kind] ?? it.kind], ["Because of", call || candidates(it) || "not known"], ["Called by", it.caller], ["Host", this.host],
      ["As the task", task], ["Asked", ago(it.created_at)]));
    refill(this.ending, this.open && it.cause_ended
      ? h("p", { class: "warning", text: `${it.cause_ended[0].toUpperCase()}${it.cause_ended.slice(1)}: an answer may come too late.` }) : null);
  }

  drawStatus() {
    const it = this.whole;
    refill(this.status, pill(it.state, it.state === "open" ? "waits for an answer" : it.state), it.state === "open" ? left(it.deadline) : null);
  }

  drawForm() {
    const params = this.whole.request ?? {};
    const send = (answer) => this.answer(answer);
    const refuse = h("div", { class: "row refuse" });
    const kind = this.whole.kind;
    if (kind === "elicitation_form") {
      this.form = elicitationForm(params, send);
    } else if (kind === "elicitation_url") {
      this.form = visitForm(params, send);
    } else {
      this.form = kind === "sampling" ? replyForm(send) : rootsForm(send);
    }
    if (kind.startsWith("elicitation")) {
      put(refuse, h("button", { type: "button", text: "Decline", on: { click: () => send({ decline: true }) } }),
        h("button", { type: "button", class: "plain", text: "Dismiss without a choice", on: { click: () => send({ cancel: true }) } }));
    } else {
      put(refuse, h("button", { type: "button", text: "Refuse", on: { click: () => send({ reject: "User rejected the request" }) } }));
    }
    this.form.element.addEventListener("input", () => { this.touched = true; });
    refill(this.body, this.question(), this.form.element, this.trouble, refuse);
  }

  drawQuestion() {
    const it = this.whole;
    refill(this.body, h("h2", { text: "What was asked" }), this.question(), it.kind === "elicitation_url" ? address(String(it.request?.url ?? "")) : null,
      story(it), h("details", { class: "aside" }, h("summary", { text: "As JSON" }), json(it.request, "Request as JSON")));
  }

  question() {
    const params = this.whole.request ?? {};
    if (this.whole.kind === "sampling") return conversation(params);
    if (this.whole.kind === "roots") return h("p", { class: "ask", text: "Which directories may it use?" });
    return words(params.message, { class: "ask", ...scrolled(params.message, "What is asked") });
  }

  /** Claim the pending request, or renew the claim; return the claim. */
  async ask(takeOver) {
    try {
      return (await ask("claim", { id: this.id, claim_id: this.claimId, take_over: takeOver })).claim;
    } catch (error) {
      if (error instanceof Refused && OVER.has(error.reason)) this.claiming.happens("closed");
      throw error;
    }
  }

  take() {
    this.claiming.happens("wanted");
    // The button disappears, so the form gets the focus.
    this.form.element.querySelector("input, select, textarea, button")?.focus();
  }

  drawClaim(now = this.claiming.state) {
    const says = this.open ? this.claimSays(now) : "";
    if (this.claimWords.textContent !== says) this.claimWords.textContent = says;
    this.claimBar.hidden = !says;
    this.claimBar.classList.toggle("other", hinders(now));
    this.takeOver.hidden = now !== "elsewhere";
    this.drawButtons();
  }

  claimSays(now) {
    if (now === "mine") return "You are answering this; others see that you do.";
    if (now === "elsewhere") return "You are answering this in another window or program.";
    return now === "theirs" ? clean(`Being answered by ${this.claiming.by}. You can answer when it becomes free.`) : "";
  }

  /** Disabled buttons keep the focus; `answer` says why they do nothing. */
  drawButtons() {
    const rest = this.sending || (this.open && hinders(this.claiming.state));
    for (const button of this.body.querySelectorAll("button[type=submit], .refuse button")) {
      if (rest) button.setAttribute("aria-disabled", "true");
      else button.removeAttribute("aria-disabled");
    }
  }

  async answer(answer) {
    if (this.sending) return;
    if (hinders(this.claiming.state)) {
      this.trouble.textContent = `${this.claimSays(this.claiming.state)} What you have written stays here.`;
      return;
    }
    const body = JSON.stringify(answer);
    // Idempotency key: the same answer sent again after a broken connection is still one answer.
    if (this.sent !== body) this.answerId = crypto.randomUUID();
    this.sent = body;
    this.busy(true);
    this.trouble.textContent = "";
    try {
      Object.assign(this.whole, await ask("answer", { id: this.id, answer_id: this.answerId, claim_id: this.claimId, ...answer }));
      this.ours = true;
      this.busy(false);
      this.settled();
    } catch (error) {
      this.busy(false);
      await this.refused(error);
    }
  }

  async refused(error) {
    if (!(error instanceof Refused)) {
      this.trouble.textContent = "The bridge cannot be reached. Nothing is lost: send it again in a moment.";
    } else if (OVER.has(error.reason)) {
      this.late = true;
      await this.settled();
    } else if (error.violations.length) {
      const others = this.form.show(error.violations);
      this.trouble.textContent = others.map(([place, problem]) => `${place}: ${problem}`).join("; ") || "Please look at the marked fields.";
    } else {
      this.trouble.textContent = error.message;
      if (error.metadata.claimed_by) this.claiming.happens("back");
    }
  }

  busy(is) {
    this.sending = is;
    this.body.setAttribute("aria-busy", String(is));
    this.drawButtons();
  }

  /** Show that it is not open any more, closed by us or by somebody else. */
  async settled() {
    this.claiming.happens("closed");
    const unsent = this.dirty && !this.ours;
    if (!this.ours) {
      try {
        this.whole = await ask("request", { id: this.id });
      } catch (error) {
        if (!(error instanceof Refused)) throw error;
      }
    }
    if (this.gone) return;
    if (unsent || this.late) this.lost = true;
    this.drawStatus();
    this.drawReasons();
    this.drawClaim();
    this.drawOutcome();
    this.drawQuestion();
    this.outcome.querySelector("h2")?.focus();
  }

  drawOutcome() {
    const it = this.whole;
    this.outcome.hidden = false;
    const title = it.state === "answered"
      ? this.ours ? "You have answered" : `${this.lost ? "Somebody was faster: " : ""}${it.answered_by ?? "somebody"} has answered`
      : it.state === "expired" ? "Nobody answered in time" : "The server does not ask any more";
    const next = openRequests().find((each) => each.id !== this.id && !each.claim);
    // Drawing it again, because the answer has arrived, keeps the focus.
    const focused = this.outcome.contains(document.activeElement);
    refill(this.outcome, h("h2", { text: title, tabindex: "-1" }),
      this.lost ? h("p", { class: "warning", text: "Your answer was not sent." }) : null,
      it.answered_at ? h("p", { class: "help" }, ago(it.answered_at)) : null,
      it.answer ? answered(it) : null,
      facts(["The answer", DELIVERY[it.delivery]], ["Because", it.reason]),
      h("div", { class: "row" }, next ? h("a", { class: "button", href: `#/request/${encodeURIComponent(next.id)}`, text: "Next request" }) : null,
        h("a", { class: "button plain", href: "#/inbox", text: "Back to the inbox" })));
    if (focused) this.outcome.querySelector("h2").focus();
  }
}

function elicitationForm(params, send) {
  const form = schemaForm(params.requestedSchema, "content");
  const element = h("form", { on: { submit: (event) => {
    event.preventDefault();
    const values = form.values();
    if (values) send({ accept: values });
  } } },
  form.empty ? h("p", { class: "help", text: "There is nothing to fill in: accept, or decline." }) : null, form.element,
  h("div", { class: "row" }, h("button", { class: "primary", type: "submit", text: form.empty ? "Accept" : "Send answer" })));
  // The page checks fields itself, and shows problems at the field.
  element.noValidate = true;
  return { element, show: form.show };
}

/** Render the given answer. */
function answered(it) {
  const answer = it.answer;
  if (answer.error) return h("p", { text: `Refused: ${answer.error.message}` });
  if (it.kind === "sampling") return h("div", {}, content(answer.content), facts(["Model", answer.model], ["Why it ends", answer.stopReason]));
  if (it.kind === "roots") return json(answer, "The answer");
  const action = { accept: "Accepted", decline: "Declined", cancel: "Dismissed without a choice" }[answer.action] ?? answer.action;
  const properties = it.request?.requestedSchema?.properties ?? {};
  const given = Object.entries(answer.content ?? {}).slice(0, 200);
  return h("div", {}, h("p", { text: action }),
    facts(...given.map(([name, value]) => [String(properties[name]?.title ?? name).slice(0, 300), words(Array.isArray(value) ? value.join(", ") : value)])));
}

function callLink(id) {
  return h("a", { href: `#/call/${encodeURIComponent(id)}`, text: callName(id) });
}

// Candidates that are named.
const NAMED = 8;

/** Links to the calls of which one caused a pending request; null if there are none. A last one that is left is not certain either. */
function candidates(it) {
  const ids = it.candidate_call_ids ?? [];
  if (!ids.length) return null;
  const named = ids.slice(0, NAMED).map((id, at) => [at ? ", " : "", callLink(id)]);
  return h("span", {}, ids.length === 1 ? "perhaps " : "one of ", named, ids.length > NAMED ? ` and ${ids.length - NAMED} more` : "");
}

/** The same for a list, in words. */
export function causeInWords(it) {
  if (it.call_id) return `because of ${callName(it.call_id)}`;
  const ids = it.candidate_call_ids ?? [];
  if (!ids.length) return "";
  return `${ids.length === 1 ? "perhaps because of " : "because of one of "}${ids.slice(0, NAMED).map(callName).join(", ")}${ids.length > NAMED ? ` and ${ids.length - NAMED} more` : ""}`;
}

const HAPPENED = { shown: "shown to", claimed: "claimed by", released: "given back by", lapsed: "left by", answered: "answered by", not_counted: "not counted, of" };

/** Render who was shown it, claimed it and answered it, and how long after it was asked. */
function story(it) {
  if (!it.moments.length) return null;
  const asked = Date.parse(it.created_at);
  return h("section", { "aria-label": "What happened" }, h("h2", { text: "What happened" }), h("ol", { class: "moments" }, it.moments.map((each) =>
    h("li", {}, h("span", { class: "quiet", text: span(Date.parse(each.at) - asked) }),
      h("span", { text: each.what === "delivered" && it.delivery === "late" ? "delivered too late" : each.by && HAPPENED[each.what] ? `${HAPPENED[each.what]} ${each.agent ? "the agent " : ""}${each.by}${each.via ? ` via ${each.via}` : ""}` : each.what ?? "unknown" })))));
}
