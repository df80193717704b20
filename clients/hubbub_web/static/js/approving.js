// The page of a call to approve: as that of any pending request, but more than one person may have to answer, what is asked may
// change meanwhile, and some people may only look.

import { ask } from "./api.js";
import { ApprovalForm, approvalCard, approvalTitle } from "./approval.js";
import { clean, refill } from "./dom.js";
import { story } from "./outcome.js";
import { RequestPage } from "./request.js";
import { oneAtATime } from "./store.js";
import { CHANGED, CLOSED, EXPIRED, verdict, WITHDRAWN } from "./wording.js";

/** The page of a pending request, whatever is asked. */
export async function requestPage(main, id) {
  const whole = await ask("request", { id });
  return new (whole.approval ? ApprovalPage : RequestPage)(main, whole).started();
}

class ApprovalPage extends RequestPage {
  WITHDRAWN = WITHDRAWN;
  readAgain = oneAtATime(() => this.renew());

  told() {
    return clean(this.whole.question).trim();
  }

  headline() {
    return approvalTitle(this.whole);
  }

  started() {
    // Who may not approve it does not hold it either.
    if (this.whole.approval.obstacle) this.claiming.happens("closed");
    return super.started();
  }

  /** The heading says who calls. */
  why() {
    return super.why().filter(([name]) => name !== "Called by");
  }

  /** The card shows what the call is sent with. */
  async findCall() {}

  drawForm() {
    this.form = new ApprovalForm(this.whole, { send: (answer) => this.answer(answer), say: (text) => { this.trouble.textContent = text; }, redraw: () => this.drawButtons() });
    this.form.bar.prepend(this.trouble);
    this.form.element.setAttribute("aria-labelledby", this.heading.id);
    this.form.element.addEventListener("input", () => { this.touched = true; });
    refill(this.body, this.form.element);
    this.drawButtons();
  }

  drawQuestion() {
    this.form?.gone();
    refill(this.body, approvalCard(this.whole), story(this.whole));
  }

  part() {
    this.form?.gone();
    super.part();
  }

  /** Read it again when others have approved it or changed its arguments; until then nothing can be pressed. */
  heard(short) {
    super.heard(short);
    const it = this.whole.approval;
    if (short.approved_by.length === it.approvals.length && (short.arguments_digest || it.digest) === it.digest) return;
    this.form?.rest();
    this.readAgain();
  }

  /** Show it as it is by now. */
  async renew() {
    const whole = await ask("request", { id: this.id });
    if (this.gone || !this.open || whole.state !== "open") return;
    const changed = whole.approval.digest !== this.whole.approval.digest;
    const begun = this.form.opened;
    const focused = this.form.element.contains(document.activeElement);
    this.whole = whole;
    this.touched = false;
    this.form.renew(whole);
    if (focused) this.heading.focus({ preventScroll: true });
    this.drawReasons();
    this.trouble.textContent = [changed ? CHANGED : "", begun ? CLOSED : ""].join(" ").trim();
  }

  taken() {
    if (!this.open) return super.taken();
    // More people have to approve.
    this.claiming.happens("closed");
    this.touched = false;
    this.form.renew(this.whole);
    return this.heading.focus({ preventScroll: true });
  }

  async refused(error) {
    if (error.reason === "NOT_AN_APPROVER") this.form.forbid(error.message);
    else await super.refused(error);
    if (error.reason === "ARGUMENTS_CHANGED" || error.reason === "ALREADY_APPROVED") this.readAgain();
  }

  verdict() {
    return verdict(this.whole, this.ours);
  }

  delivered() {
    return this.whole.state === "expired" ? EXPIRED : null;
  }
}
