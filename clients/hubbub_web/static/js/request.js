// One pending request: who asks, why, and the form to answer it; then its outcome.

import { agentCard } from "./agent.js";
import { runAction, Refused, sendAction } from "./api.js";
import { callLink, candidateLinks } from "./cause.js";
import { Claiming, blocksAnswer } from "./claim.js";
import { sentArguments } from "./content.js";
import { clean, renderCodeSpans, defectWarning, factList, uniqueId, h, jsonBlock, pill, append, refill, scrollAttributes, textBlock } from "./dom.js";
import { elicitationForm, firstField, guardEnter, refusalButtons } from "./form.js";
import { hostsAsked, waitingHostLink } from "./hosts.js";
import { answerDetails, returnedResult, requestHistory, refusalSuffix } from "./outcome.js";
import { conversation, replyForm, rootsForm } from "./sampling.js";
import { areTablesCurrent, openRequests, markSeen, tables } from "./store.js";
import { ago, timeLeft } from "./time.js";
import { renderAddress, visitForm } from "./visit.js";

// States of a pending request that cannot be claimed.
const OVER = new Set(["ALREADY_ANSWERED", "REQUEST_WITHDRAWN", "REQUEST_EXPIRED"]);

/** What a server gets that asks for no form, when a person refuses. */
export const REFUSAL = "User rejected the request";

export const KINDS = { elicitation_form: "Form", elicitation_url: "Page to visit", sampling: "Reply as a model", roots: "Directories", approval: "Approval" };
// What has become of the news that nobody answered.
const TOLD = { pending: "The server is being notified.", delivered: "The server has been notified.", failed: "The server could not be notified.", late: "The server was notified when its call was over already." };
const DELIVERY = { pending: "on its way to the server", delivered: "arrived at the server", failed: "could not be delivered", late: "arrived, but the call that asked was over already" };
// A question of up to this length is the heading as it is; of a longer one the beginning.
const HEADING = 160;
// A device of which fingers are the only pointer.
const TOUCHED = matchMedia("(hover: none) and (pointer: coarse)");
// Fields of a pending request that change while its page is open.
const CHANGES = ["state", "outcome", "delivery", "answered_by", "answered_at", "reason", "call_id", "cause_source", "candidate_call_ids", "cause_ended", "defect", "hosts", "caller_left_at"];

/** The page of a pending request: `update`, `leave` and `focus` are for the frame around it. */
export class RequestPage {
  constructor(main, whole) {
    this.whole = whole;
    this.id = whole.id;
    this.claimId = crypto.randomUUID();
    this.claiming = new Claiming((takeOver) => this.requestClaim(takeOver), () => sendAction("release", { id: this.id, claim_id: this.claimId }), (now) => this.drawClaim(now));
    this.reached = true;
    this.sending = false;
    this.sent = null;
    this.answerId = null;
    this.host = null;
    this.status = h("span", { class: "status" });
    this.reasons = h("div");
    this.callArguments = h("div");
    this.ending = h("div", { role: "status" });
    this.claimBar = h("div", { class: "claim" });
    this.claimWords = h("p", { role: "status" });
    this.takeOver = h("button", { type: "button", hidden: true, text: "Answer it here", on: { click: () => this.takeOverClaim() } });
    append(this.claimBar, this.claimWords, this.takeOver);
    this.trouble = h("p", { class: "problem", role: "alert" });
    this.body = h("section", { class: "panel", "aria-label": "The question" });
    this.outcome = h("section", { class: "panel outcome", "aria-label": "Outcome", hidden: true });
    this.returned = returnedResult();
    const told = this.questionText();
    // The bridge has cut code of several lines to its first, and a long text.
    const short = clean(whole.question).trim();
    this.title = headingText(short && !told.startsWith(short.slice(0, -1)) ? short : told || short, whole);
    this.isWhole = this.title === told || !told;
    this.heading = h("h1", { id: uniqueId("question"), class: this.isWhole ? "ask" : null, tabindex: "-1", dir: "auto" }, this.renderHeading());
    refill(main, h("div", { class: "eyebrow" }, h("a", { class: "crumbs", href: "#/inbox", text: "Inbox" }),
      h("span", { class: "chip", dir: "auto", text: whole.server }), h("span", { class: "chip", text: KINDS[whole.kind] ?? whole.kind }), this.status),
    this.reasons, this.heading, this.ending, this.claimBar, this.outcome, this.body);
  }

  /** Draw the page, claim the request if it is open, and return the page. */
  start() {
    markSeen(this.id);
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
    this.showCallArguments();
    this.showWaitingHost();
    this.onPageHide = () => this.stop();
    window.addEventListener("pagehide", this.onPageHide);
    return this;
  }

  /** Return the whole question, as far as it is text. */
  questionText() {
    return clean(this.whole.request?.message ?? "").trim();
  }

  /** Render the heading: the question or its beginning. */
  renderHeading() { return renderCodeSpans(this.title); }

  /** Return whether the request waits for an answer, as far as this page knows. */
  get isOpen() { return this.whole.state === "open"; }

  /** Apply changes of the tables. */
  update() {
    const reached = areTablesCurrent();
    if (reached && !this.reached) this.claiming.handle("back");
    this.reached = reached;
    this.updateReturned();
    const short = tables.request.get(this.id);
    if (!short) return;
    // The reply to our answer can be ahead of the stream: what is closed never opens again.
    if (short.state === "open" && !this.isOpen) return;
    if (short.state === "open") this.onListed(short);
    const before = JSON.stringify(CHANGES.map((name) => this.whole[name]));
    const wasOpen = this.isOpen;
    for (const name of CHANGES) this.whole[name] = short[name];
    if (before === JSON.stringify(CHANGES.map((name) => short[name]))) return;
    this.drawStatus();
    this.drawReasons();
    this.showCallArguments();
    if (this.isOpen) this.showWaitingHost();
    else if (wasOpen) this.onClosed();
    else this.drawOutcome();
  }

  /** Compare the claim of this page with the one that the list shows for the open request. */
  onListed(short) { this.claiming.onListed(short.claim); }

  /** Leave the page, and release the claim. */
  leave() {
    window.removeEventListener("pagehide", this.onPageHide);
    this.stop();
  }

  /** Release the claim, and draw nothing any more. */
  stop() {
    this.gone = true;
    this.claiming.handle("left");
  }

  /** Return whether the person has begun to write an answer. */
  get isDirty() { return this.isOpen && this.touched === true; }

  /** Show the arguments of the call that asks, or perhaps asks: who approves it has to know them. */
  async showCallArguments() {
    const { call_id: id, candidate_call_ids: ids } = this.whole;
    const asked = id ?? (ids?.length === 1 ? ids[0] : null);
    if (!asked || this.known === asked) return;
    this.known = asked;
    const call = await runAction("sent", { id: asked }).catch(() => null);
    if (call && !this.gone) refill(this.callArguments, sentArguments(call));
  }

  /** Show the host whose call asks, if one waits for it. */
  async showWaitingHost() {
    if (!this.isOpen || !this.whole.call_id || this.host) return;
    this.host = await waitingHostLink(this.whole.call_id);
    if (this.host && !this.gone) this.drawReasons();
  }

  WITHDRAWN = "The server does not ask any more";

  /** Draw why it is asked, and warnings if an answer may come too late. */
  drawReasons() {
    const it = this.whole;
    const why = factList(...this.causeFacts(), ["Asked", ago(it.created_at)], ["Hosts", hostsAsked(it)]);
    why.classList.add("folded");
    refill(this.reasons, defectWarning(it), why);
    refill(this.ending, this.isOpen && it.cause_ended
      ? h("p", { class: "warning", text: `${it.cause_ended[0].toUpperCase()}${it.cause_ended.slice(1)}: an answer may come too late.` })
      : this.isOpen && it.caller_left_at ? h("p", { class: "warning", text: "The host that made the call has hung up: perhaps nobody hears of the result." }) : null);
  }

  /** Return why it is asked, as pairs of name and value. */
  causeFacts() {
    const it = this.whole;
    const call = it.call_id && h("span", {}, callLink(it.call_id), it.cause_source === "inferred" ? " (the only call that runs)" : "");
    const task = it.task_id && h("a", { href: `#/task/${encodeURIComponent(it.task_id)}`, text: "a task" });
    return [[!call && it.candidate_call_ids?.length === 1 ? "Perhaps because of" : "Because of", call || candidateLinks(it) || "an unknown call"], ["Called by", it.caller], ["Host", this.host], ["Asked as", task]];
  }

  /** Draw the time that is left, or what came of the request. */
  drawStatus() {
    const it = this.whole;
    refill(this.status, it.state === "open" ? timeLeft(it.deadline) : pill(it.outcome));
  }

  /** Draw the question with the form that answers it, and the buttons that refuse. */
  drawForm() {
    const params = this.whole.request ?? {};
    const send = (answer) => this.sendAnswer(answer);
    const kind = this.whole.kind;
    if (kind === "elicitation_form") {
      this.form = elicitationForm(params, send, this.whole.agent?.decisions ?? []);
    } else if (kind === "elicitation_url") {
      this.form = visitForm(params, send);
    } else {
      this.form = kind === "sampling" ? replyForm(send) : rootsForm(send);
    }
    const { bar } = this.form;
    append(bar, refusalButtons(kind, this.whole.agent?.decisions ?? [], () => this.decline(), () => send({ cancel: true })));
    bar.prepend(this.trouble);
    this.form.element.setAttribute("aria-label", "Your answer");
    this.form.element.setAttribute("aria-describedby", this.heading.id);
    this.form.element.addEventListener("input", () => { this.touched = true; });
    guardEnter(this.form.element, (text) => { this.trouble.textContent = text; });
    // The bar with the buttons stays in sight over all of what it is about, as long as that is within the form.
    this.form.element.prepend(...[this.renderQuestion(), agentCard(this.whole), this.callArguments].filter(Boolean));
    refill(this.body, this.form.element);
  }

  /** Send the answer that refuses. */
  decline() {
    return this.sendAnswer(this.whole.kind.startsWith("elicitation") ? { decline: true } : { reject: REFUSAL });
  }

  /** Focus the first field, never a button: what is typed at once answers nothing. On a phone, where keys would hide the question, the heading. */
  focus() {
    const field = TOUCHED.matches ? null : this.form && firstField(this.form.element);
    (field ?? this.heading).focus({ preventScroll: true });
  }

  /** Draw the question without a form, and what happened to it: the request is not open any more. */
  drawQuestion() {
    const it = this.whole;
    const asked = [this.renderQuestion(), it.kind === "elicitation_url" ? renderAddress(String(it.request?.url ?? "")) : null].filter(Boolean);
    refill(this.body, asked.length ? h("h2", { text: "What was asked" }) : null, asked, agentCard(it), this.callArguments,
      requestHistory(it), h("details", { class: "aside" }, h("summary", { text: "As JSON" }), jsonBlock(it.request, "Request as JSON")));
  }

  /** Render the part of the question that the heading does not say; null if there is none. */
  renderQuestion() {
    const params = this.whole.request ?? {};
    if (this.whole.kind === "sampling") return conversation(params);
    if (this.whole.kind === "roots" || this.isWhole) return null;
    return textBlock(params.message, { class: "ask", ...scrollAttributes(params.message, "What is asked") }, renderCodeSpans);
  }

  /** Claim the pending request, or renew the claim; return the claim. */
  async requestClaim(takeOver) {
    try {
      return (await runAction("claim", { id: this.id, claim_id: this.claimId, take_over: takeOver })).claim;
    } catch (error) {
      if (error instanceof Refused && OVER.has(error.reason)) this.claiming.handle("closed");
      throw error;
    }
  }

  /** Claim it from another window of the same person. */
  takeOverClaim() {
    this.claiming.handle("wanted");
    // The button disappears.
    this.focus();
  }

  /** Draw who answers; `now` is the state of the claim. */
  drawClaim(now = this.claiming.state) {
    const says = this.isOpen ? this.claimText(now) : "";
    if (this.claimWords.textContent !== says) this.claimWords.textContent = says;
    this.claimBar.hidden = !says;
    this.claimBar.classList.toggle("other", blocksAnswer(now));
    this.takeOver.hidden = now !== "elsewhere";
    this.drawButtons();
  }

  /** Return who holds the claim, in words; empty if nothing is to be said. */
  claimText(now) {
    if (now === "mine") return "You are answering this; others see that you do.";
    if (now === "elsewhere") return "You are answering this in another window or program.";
    if (now !== "theirs") return "";
    const held = this.claiming.listed;
    return clean(held?.host ? `Held for ${held.host} until ${new Date(held.expires_at).toLocaleTimeString()}, which is asked first. You can answer when it becomes free.`
      : `Being answered by ${this.claiming.by}. You can answer when it becomes free.`);
  }

  /** Show whether buttons act. Disabled ones keep the focus; `sendAnswer` shows why they do nothing. */
  drawButtons() {
    const rest = this.sending || (this.isOpen && (blocksAnswer(this.claiming.state) || this.form?.isPaused));
    for (const button of this.body.querySelectorAll("button[type=submit], button.refuse, [data-sends]")) {
      if (rest) button.setAttribute("aria-disabled", "true");
      else button.removeAttribute("aria-disabled");
    }
  }

  /** Send an answer, and show whether it was accepted. */
  async sendAnswer(answer) {
    if (this.sending) return;
    if (blocksAnswer(this.claiming.state)) {
      this.trouble.textContent = `${this.claimText(this.claiming.state)} What you have written stays here.`;
      return;
    }
    const body = JSON.stringify(answer);
    // Idempotency key: the same answer sent again after a broken connection is still one answer.
    if (this.sent !== body) this.answerId = crypto.randomUUID();
    this.sent = body;
    this.setBusy(true);
    this.trouble.textContent = "";
    try {
      Object.assign(this.whole, await runAction("answer", { id: this.id, answer_id: this.answerId, claim_id: this.claimId, ...answer }));
      this.setBusy(false);
      this.onAccepted();
    } catch (error) {
      this.setBusy(false);
      await this.onRefused(error);
    }
  }

  /** Show that the answer has been accepted. */
  onAccepted() {
    this.ours = true;
    this.onClosed();
  }

  /** Show why the answer was refused. */
  async onRefused(error) {
    if (!(error instanceof Refused)) {
      this.trouble.textContent = "The bridge cannot be reached. Nothing is lost: send it again in a moment.";
    } else if (OVER.has(error.reason)) {
      this.late = true;
      await this.onClosed();
    } else if (error.violations.length) {
      const others = this.form.showProblems(error.violations);
      this.trouble.textContent = others.map(([place, problem]) => `${place}: ${problem}`).join("; ") || "Please look at the marked fields.";
    } else {
      this.trouble.textContent = error.message;
      if (error.metadata.claimed_by) this.claiming.handle("back");
    }
  }

  /** Set whether an answer is under way; meanwhile no button acts. */
  setBusy(isBusy) {
    this.sending = isBusy;
    this.body.setAttribute("aria-busy", String(isBusy));
    this.drawButtons();
  }

  /** Show that the request is not open any more, whether this page or somebody else has closed it. */
  async onClosed() {
    this.claiming.handle("closed");
    const unsent = this.isDirty && !this.ours;
    if (!this.ours) {
      try {
        this.whole = await runAction("request", { id: this.id });
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

  /** Once the question is answered, show what the call returns that asked it. */
  updateReturned() {
    if (this.whole.state === "answered") this.returned.update(this.whole.call_id);
  }

  /** Return who has answered, and how, if that is not what was asked for. */
  verdict() {
    return `${this.ours ? "You have answered" : `${this.whole.answered_by ?? "somebody"} has answered`}${refusalSuffix(this.whole)}`;
  }

  /** Return whether the answer has reached the server, in words; null if that is unknown. */
  deliveryText() {
    const it = this.whole;
    return it.state === "expired" ? TOLD[it.delivery] : DELIVERY[it.delivery] ? `${it.answered_at ? " · " : ""}The answer ${DELIVERY[it.delivery]}.` : null;
  }

  /** Draw what came of the request: who answered what, whether it arrived, and where to go next. */
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
      it.answer ? answerDetails(it) : null,
      h("p", { class: "help" }, it.answered_at ? ["Answered ", ago(it.answered_at)] : null, this.deliveryText()),
      factList(["Because", it.reason]), this.returned.element,
      h("div", { class: "row" }, next ? h("a", { class: "button primary", href: `#/request/${encodeURIComponent(next.id)}`, text: "Next question" }) : null,
        h("a", { class: next ? "button plain" : "button primary", href: "#/inbox", text: "Back to the inbox" })));
    this.updateReturned();
    if (focused && !this.outcome.contains(document.activeElement)) this.outcome.querySelector("h2").focus({ preventScroll: true });
  }
}

/** Return the heading of a question: all of a short one, else its beginning. */
function headingText(text, whole) {
  if (!text) return `${whole.server} asks`;
  const [line] = text.split("\n");
  return line.length <= HEADING ? line : `${line.slice(0, HEADING).replace(/\s+\S*$/, "")}…`;
}
