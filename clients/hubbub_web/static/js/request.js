// One pending request: who asks, why, and the form to answer it; then its outcome.

import { agentCard } from "./agent.js";
import { ask, Refused, tell } from "./api.js";
import { callLink, candidates } from "./cause.js";
import { Claiming, hinders } from "./claim.js";
import { sent } from "./content.js";
import { clean, coded, defect, facts, fresh, h, json, pill, put, refill, scrolled, words } from "./dom.js";
import { elicitationForm, firstField, guardEnter, refusals } from "./form.js";
import { hostsAsked, waitingHost } from "./hosts.js";
import { answered, returned, story, unlessGiven } from "./outcome.js";
import { conversation, replyForm, rootsForm } from "./sampling.js";
import { isKnown, openRequests, see, tables } from "./store.js";
import { ago, timeLeft } from "./time.js";
import { address, visitForm } from "./visit.js";

// States of a pending request that cannot be claimed.
const OVER = new Set(["ALREADY_ANSWERED", "REQUEST_WITHDRAWN", "REQUEST_EXPIRED"]);

/** What a server is told that asks for no form, when a person refuses. */
export const REFUSAL = "User rejected the request";

export const KINDS = { elicitation_form: "Form", elicitation_url: "Page to visit", sampling: "Reply as a model", roots: "Directories", approval: "Approval" };
// What has become of the news that nobody answered.
const TOLD = { pending: "The server is being told so.", delivered: "The server has been told so.", failed: "The server could not be told so.", late: "The server was told so when its call was over already." };
const DELIVERY = { pending: "on its way to the server", delivered: "arrived at the server", failed: "could not be delivered", late: "arrived, but the call that asked was over already" };
// A question of up to this length is the heading as it is; of a longer one the beginning.
const HEADING = 160;
// A device of which fingers are the only pointer.
const TOUCHED = matchMedia("(hover: none) and (pointer: coarse)");
// Fields of a pending request that change while its page is open.
const CHANGES = ["state", "outcome", "delivery", "answered_by", "answered_at", "reason", "call_id", "cause_source", "candidate_call_ids", "cause_ended", "defect", "hosts", "caller_left_at"];

/** The page of a pending request that a server has sent. */
export class RequestPage {
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
    this.status = h("span", { class: "status" });
    this.reasons = h("div");
    this.sentBy = h("div");
    this.ending = h("div", { role: "status" });
    this.claimBar = h("div", { class: "claim" });
    this.claimWords = h("p", { role: "status" });
    this.takeOver = h("button", { type: "button", hidden: true, text: "Answer it here", on: { click: () => this.take() } });
    put(this.claimBar, this.claimWords, this.takeOver);
    this.trouble = h("p", { class: "problem", role: "alert" });
    this.body = h("section", { class: "panel", "aria-label": "The question" });
    this.outcome = h("section", { class: "panel outcome", "aria-label": "Outcome", hidden: true });
    this.returned = returned();
    const told = this.told();
    // The bridge has cut code of several lines to its first, and a long text.
    const short = clean(whole.question).trim();
    this.title = titleOf(short && !told.startsWith(short.slice(0, -1)) ? short : told || short, whole);
    this.isWhole = this.title === told || !told;
    this.heading = h("h1", { id: fresh("question"), class: this.isWhole ? "ask" : null, tabindex: "-1", dir: "auto" }, this.headline());
    refill(main, h("div", { class: "eyebrow" }, h("a", { class: "crumbs", href: "#/inbox", text: "Inbox" }),
      h("span", { class: "chip", dir: "auto", text: whole.server }), h("span", { class: "chip", text: KINDS[whole.kind] ?? whole.kind }), this.status),
    this.reasons, this.heading, this.ending, this.claimBar, this.outcome, this.body);
  }

  started() {
    see(this.id);
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
    this.findCall();
    this.findHost();
    this.parting = () => this.part();
    window.addEventListener("pagehide", this.parting);
    return this;
  }

  /** Return all that is asked, as far as it is a text. */
  told() {
    return clean(this.whole.request?.message ?? "").trim();
  }

  headline() {
    return coded(this.title);
  }

  get open() {
    return this.whole.state === "open";
  }

  /** Apply changes of the store. */
  update() {
    const reached = isKnown();
    if (reached && !this.reached) this.claiming.happens("back");
    this.reached = reached;
    this.followCall();
    const short = tables.request.get(this.id);
    if (!short) return;
    // The reply to our answer can be ahead of the stream: what is closed never opens again.
    if (short.state === "open" && !this.open) return;
    if (short.state === "open") this.heard(short);
    const before = JSON.stringify(CHANGES.map((name) => this.whole[name]));
    const wasOpen = this.open;
    for (const name of CHANGES) this.whole[name] = short[name];
    if (before === JSON.stringify(CHANGES.map((name) => short[name]))) return;
    this.drawStatus();
    this.drawReasons();
    this.findCall();
    if (this.open) this.findHost();
    else if (wasOpen) this.settled();
    else this.drawOutcome();
  }

  /** Take note of what the list says of the open request. */
  heard(short) {
    this.claiming.hear(short.claim);
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

  /** Show what the call was sent with that asks, or perhaps asks: who approves it has to know. */
  async findCall() {
    const { call_id: id, candidate_call_ids: ids } = this.whole;
    const asked = id ?? (ids?.length === 1 ? ids[0] : null);
    if (!asked || this.known === asked) return;
    this.known = asked;
    const call = await ask("sent", { id: asked }).catch(() => null);
    if (call && !this.gone) refill(this.sentBy, sent(call));
  }

  /** Look for the host whose call asks. */
  async findHost() {
    if (!this.open || !this.whole.call_id || this.host) return;
    this.host = await waitingHost(this.whole.call_id);
    if (this.host && !this.gone) this.drawReasons();
  }

  WITHDRAWN = "The server does not ask any more";

  drawReasons() {
    const it = this.whole;
    const why = facts(...this.why(), ["Asked", ago(it.created_at)], ["Hosts", hostsAsked(it)]);
    why.classList.add("folded");
    refill(this.reasons, defect(it), why);
    refill(this.ending, this.open && it.cause_ended
      ? h("p", { class: "warning", text: `${it.cause_ended[0].toUpperCase()}${it.cause_ended.slice(1)}: an answer may come too late.` })
      : this.open && it.caller_left_at ? h("p", { class: "warning", text: "The host that made the call has hung up: perhaps nobody hears of the result." }) : null);
  }

  /** Why it is asked, as names and values. */
  why() {
    const it = this.whole;
    const call = it.call_id && h("span", {}, callLink(it.call_id), it.cause_source === "inferred" ? " (the only call that runs)" : "");
    const task = it.task_id && h("a", { href: `#/task/${encodeURIComponent(it.task_id)}`, text: "a task" });
    return [[!call && it.candidate_call_ids?.length === 1 ? "Perhaps because of" : "Because of", call || candidates(it) || "an unknown call"], ["Called by", it.caller], ["Host", this.host], ["Asked as", task]];
  }

  drawStatus() {
    const it = this.whole;
    refill(this.status, it.state === "open" ? timeLeft(it.deadline) : pill(it.outcome));
  }

  drawForm() {
    const params = this.whole.request ?? {};
    const send = (answer) => this.answer(answer);
    const kind = this.whole.kind;
    if (kind === "elicitation_form") {
      this.form = elicitationForm(params, send, this.whole.agent?.decisions ?? []);
    } else if (kind === "elicitation_url") {
      this.form = visitForm(params, send);
    } else {
      this.form = kind === "sampling" ? replyForm(send) : rootsForm(send);
    }
    const { bar } = this.form;
    put(bar, refusals(kind, this.whole.agent?.decisions ?? [], () => this.decline(), () => send({ cancel: true })));
    bar.prepend(this.trouble);
    this.form.element.setAttribute("aria-label", "Your answer");
    this.form.element.setAttribute("aria-describedby", this.heading.id);
    this.form.element.addEventListener("input", () => { this.touched = true; });
    guardEnter(this.form.element, (text) => { this.trouble.textContent = text; });
    // The bar with the buttons stays in sight over all of what it is about, as long as that is within the form.
    this.form.element.prepend(...[this.question(), agentCard(this.whole), this.sentBy].filter(Boolean));
    refill(this.body, this.form.element);
  }

  /** Say no. */
  decline() {
    return this.answer(this.whole.kind.startsWith("elicitation") ? { decline: true } : { reject: REFUSAL });
  }

  /**
   * Put the keyboard at the first field: never at a button, so that what is typed at once answers nothing. On a phone, where a
   * field with the focus brings up keys that hide the question, at the question.
   */
  focus() {
    const field = TOUCHED.matches ? null : this.form && firstField(this.form.element);
    (field ?? this.heading).focus({ preventScroll: true });
  }

  drawQuestion() {
    const it = this.whole;
    const asked = [this.question(), it.kind === "elicitation_url" ? address(String(it.request?.url ?? "")) : null].filter(Boolean);
    refill(this.body, asked.length ? h("h2", { text: "What was asked" }) : null, asked, agentCard(it), this.sentBy,
      story(it), h("details", { class: "aside" }, h("summary", { text: "As JSON" }), json(it.request, "Request as JSON")));
  }

  /** Render what the heading does not say. */
  question() {
    const params = this.whole.request ?? {};
    if (this.whole.kind === "sampling") return conversation(params);
    if (this.whole.kind === "roots" || this.isWhole) return null;
    return words(params.message, { class: "ask", ...scrolled(params.message, "What is asked") }, coded);
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
    // The button disappears.
    this.focus();
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
    if (now !== "theirs") return "";
    const held = this.claiming.heard;
    return clean(held?.host ? `Held for ${held.host} until ${new Date(held.expires_at).toLocaleTimeString()}, which is asked first. You can answer when it becomes free.`
      : `Being answered by ${this.claiming.by}. You can answer when it becomes free.`);
  }

  /** Disabled buttons keep the focus; `answer` says why they do nothing. */
  drawButtons() {
    const rest = this.sending || (this.open && (hinders(this.claiming.state) || this.form?.resting));
    for (const button of this.body.querySelectorAll("button[type=submit], button.refuse, [data-sends]")) {
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
      this.busy(false);
      this.taken();
    } catch (error) {
      this.busy(false);
      await this.refused(error);
    }
  }

  /** Show that the answer has been accepted. */
  taken() {
    this.ours = true;
    this.settled();
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
    this.outcome.querySelector("h2")?.focus({ preventScroll: true });
    window.scrollTo(0, 0);
  }

  /** Show what the call returns whose question was answered. */
  followCall() {
    if (this.whole.state === "answered") this.returned.update(this.whole.call_id);
  }

  /** Say who has answered, and what, if that is not what was asked for. */
  verdict() {
    return `${this.ours ? "You have answered" : `${this.whole.answered_by ?? "somebody"} has answered`}${unlessGiven(this.whole)}`;
  }

  /** Say whether the server has heard of it. */
  delivered() {
    const it = this.whole;
    return it.state === "expired" ? TOLD[it.delivery] : DELIVERY[it.delivery] ? `${it.answered_at ? " · " : ""}The answer ${DELIVERY[it.delivery]}.` : null;
  }

  drawOutcome() {
    const it = this.whole;
    this.outcome.hidden = false;
    this.outcome.dataset.came = it.outcome;
    const title = it.state === "answered" ? `${this.lost && !this.ours ? "Somebody was faster: " : ""}${this.verdict()}`
      : it.state === "expired" ? "Nobody answered in time" : this.WITHDRAWN;
    const next = openRequests().filter((each) => each.id !== this.id && !each.claim).sort((a, b) => (b.call_id === it.call_id) - (a.call_id === it.call_id))[0];
    // Drawing it again, because the answer has arrived, keeps the focus.
    const focused = this.outcome.contains(document.activeElement);
    refill(this.outcome, h("h2", { text: title, tabindex: "-1" }),
      this.lost ? h("p", { class: "warning", text: "Your answer was not sent." }) : null,
      it.answer ? answered(it) : null,
      h("p", { class: "help" }, it.answered_at ? ["Answered ", ago(it.answered_at)] : null, this.delivered()),
      facts(["Because", it.reason]), this.returned.element,
      h("div", { class: "row" }, next ? h("a", { class: "button primary", href: `#/request/${encodeURIComponent(next.id)}`, text: "Next question" }) : null,
        h("a", { class: next ? "button plain" : "button primary", href: "#/inbox", text: "Back to the inbox" })));
    this.followCall();
    if (focused && !this.outcome.contains(document.activeElement)) this.outcome.querySelector("h2").focus({ preventScroll: true });
  }
}

/** Return the heading of a question: all of a short one, else its beginning. */
function titleOf(text, whole) {
  if (!text) return `${whole.server} asks`;
  const [line] = text.split("\n");
  return line.length <= HEADING ? line : `${line.slice(0, HEADING).replace(/\s+\S*$/, "")}…`;
}
