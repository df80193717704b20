// The page of a call to approve: as that of any pending request, but more than one person may have to answer, what is asked may
// change meanwhile, and some people may only look.

import { runAction } from "./api.js";
import { ApprovalForm, approvalCard, approvalTitle } from "./approval.js";
import { clean, refill } from "./dom.js";
import { requestHistory } from "./outcome.js";
import { RequestPage } from "./request.js";
import { oneAtATime } from "./store.js";
import { CHANGED, CLOSED, EXPIRED, approvalVerdict, WITHDRAWN } from "./wording.js";

/** Open the page of a pending request, of whatever kind. */
export async function requestPage(main, id) {
  const whole = await runAction("request", { id });
  return new (whole.approval ? ApprovalPage : RequestPage)(main, whole).start();
}

class ApprovalPage extends RequestPage {
  WITHDRAWN = WITHDRAWN;
  readAgain = oneAtATime(() => this.reload());

  /** Return the question, as text. */
  questionText() {
    return clean(this.whole.question).trim();
  }

  /** Render who wants to run what. */
  renderHeading() {
    return approvalTitle(this.whole);
  }

  /** Draw the page; claim the request only if this person may approve it. */
  start() {
    // Who may not approve it does not hold it either.
    if (this.whole.approval.obstacle) this.claiming.handle("closed");
    return super.start();
  }

  /** Return why it is asked, as pairs of name and value, without the caller: the heading names the caller. */
  causeFacts() {
    return super.causeFacts().filter(([name]) => name !== "Called by");
  }

  /** Do nothing: the card shows already what the call is sent with. */
  async showCallArguments() {}

  /** Draw the call with the buttons that answer. */
  drawForm() {
    this.form = new ApprovalForm(this.whole, { send: (answer) => this.sendAnswer(answer), say: (text) => { this.trouble.textContent = text; }, redraw: () => this.drawButtons() });
    this.form.bar.prepend(this.trouble);
    this.form.element.setAttribute("aria-labelledby", this.heading.id);
    this.form.element.addEventListener("input", () => { this.touched = true; });
    refill(this.body, this.form.element);
    this.drawButtons();
  }

  /** Draw the call without buttons, and what happened to it. */
  drawQuestion() {
    this.form?.stop();
    refill(this.body, approvalCard(this.whole), requestHistory(this.whole));
  }

  /** Release the claim, and draw nothing any more. */
  stop() {
    this.form?.stop();
    super.stop();
  }

  /** Note what the list says of the request. If others have approved it or changed its arguments, read it again; until then no button acts. */
  onListed(short) {
    super.onListed(short);
    const it = this.whole.approval;
    if (short.approved_by.length === it.approvals.length && (short.arguments_digest || it.digest) === it.digest) return;
    this.form?.pause();
    this.readAgain();
  }

  /** Read the pending request again and show it. */
  async reload() {
    const whole = await runAction("request", { id: this.id });
    if (this.gone || !this.isOpen || whole.state !== "open") return;
    const changed = whole.approval.digest !== this.whole.approval.digest;
    const begun = this.form.opened;
    const focused = this.form.element.contains(document.activeElement);
    this.whole = whole;
    this.touched = false;
    this.form.update(whole);
    if (focused) this.heading.focus({ preventScroll: true });
    this.drawReasons();
    this.trouble.textContent = [changed ? CHANGED : "", begun ? CLOSED : ""].join(" ").trim();
  }

  /** Show that the approval counts: the outcome, or that more people have to approve. */
  onAccepted() {
    if (!this.isOpen) return super.onAccepted();
    // More people have to approve.
    this.claiming.handle("closed");
    this.touched = false;
    this.form.update(this.whole);
    return this.heading.focus({ preventScroll: true });
  }

  /** Show why the hub refused the answer; read the request again if it has changed. */
  async onRefused(error) {
    if (error.reason === "NOT_AN_APPROVER") this.form.forbid(error.message);
    else await super.onRefused(error);
    if (error.reason === "ARGUMENTS_CHANGED" || error.reason === "ALREADY_APPROVED") this.readAgain();
  }

  /** Return who approved or denied the call, as a heading. */
  verdict() {
    return approvalVerdict(this.whole, this.ours);
  }

  /** Return that nobody approved in time; null if somebody answered. */
  deliveryText() {
    return this.whole.state === "expired" ? EXPIRED : null;
  }
}
