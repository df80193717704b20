// The inbox: open pending requests, and closed ones.

import { runAction, Refused } from "./api.js";
import { causeInWords } from "./cause.js";
import { confirmAction } from "./dialogs.js";
import { clean, defectPill, uniqueId, h, pill, refill } from "./dom.js";
import { chooser, entryLink, rowList, searchBox } from "./list.js";
import { myName } from "./person.js";
import { KINDS, REFUSAL } from "./request.js";
import { isSeen, newestFirst, openRequests, tables } from "./store.js";
import { ago, timeLeft } from "./time.js";

/** The list of open pending requests: a page of its own, and on wide screens beside one of them. */
export class Inbox {
  constructor(dialog) {
    this.dialog = dialog;
    this.picked = new Set();
    this.picking = false;
    this.none = h("div");
    this.list = rowList((request) => this.row(request), { name: "Open requests", empty: this.none });
    const filtered = () => this.update();
    this.search = searchBox("Search", filtered);
    this.server = chooser("All servers", filtered);
    this.kind = chooser("All kinds", filtered);
    this.kind.addChoices(Object.keys(KINDS), KINDS);
    this.head = h("span");
    this.count = h("span", { class: "quiet" });
    this.pick = h("button", { type: "button", class: "plain", "aria-pressed": "false", text: "Select", on: { click: () => this.setPicking(!this.picking) } });
    this.all = h("button", { type: "button", class: "plain", text: "All", on: { click: () => this.pickAll() } });
    this.decline = h("button", { type: "button", class: "danger", on: { click: () => this.declinePicked() } });
    this.bar = h("div", { class: "picking", hidden: true }, this.decline, this.all);
    this.said = h("p", { class: "help", role: "status" });
    this.trouble = h("p", { class: "problem", role: "alert" });
    this.sending = new Set();
    this.top = 0;
    this.element = h("section", { class: "listing", "aria-label": "Open requests" },
      h("div", { class: "heading" }, this.head, this.count, this.pick),
      h("div", { class: "filters", role: "search" }, this.search.element, this.server.element, this.kind.element),
      this.bar, this.trouble, this.said, this.list.element);
    // Elements that are moved forget it.
    this.element.addEventListener("scroll", () => { this.top = this.element.scrollTop; });
  }

  /** Put the list into a box, under a heading of some level. */
  moveTo(box, level) {
    refill(this.head, h(level, { text: "Inbox" }));
    box.append(this.element);
    this.element.scrollTop = this.top;
    this.update();
  }

  /** Return the open pending requests that match the search and the filters. */
  get shownRequests() {
    return openRequests().filter((each) => (!this.server.value || each.server === this.server.value) && (!this.kind.value || each.kind === this.kind.value)
      && this.search.matches(each.question, each.server, each.id));
  }

  /** Draw the list by the tables. */
  update() {
    this.server.addChoices([...tables.server.keys()].sort());
    for (const id of this.picked) if (tables.request.get(id)?.state !== "open") this.picked.delete(id);
    const { shownRequests: shown } = this;
    const count = `${shown.length.toLocaleString()} open`;
    if (this.count.textContent !== count) this.count.textContent = count;
    this.list.show(shown);
    this.drawEmpty();
    this.drawBar();
  }

  /** Draw why there are no rows. */
  drawEmpty() {
    const why = openRequests().length ? "filtered" : "nothing";
    if (this.none.dataset.why === why) return;
    this.none.dataset.why = why;
    refill(this.none, NONE[why]());
  }

  /** Render the children of a request's row: the link, and the buttons beside it. */
  row(request) {
    const why = request.kind === "approval" ? this.approvalStatus(request) : [causeInWords(request), request.caller && `called by ${request.caller}`].filter(Boolean).join(", ");
    const link = entryLink(`#/request/${encodeURIComponent(request.id)}`, {
      title: rowTitle(request), unread: !isSeen(request.id), right: timeLeft(request.deadline) ?? ago(request.created_at),
      chips: [request.server, KINDS[request.kind] ?? request.kind],
      more: [defectPill(request), request.cause_ended ? h("span", { class: "ended", text: "its call is over" }) : null,
        request.claim ? h("span", { class: "claimed", text: request.claim.host ? `held for ${clean(request.claim.host)}` : request.claim.by === myName() ? "you are answering" : `being answered by ${request.claim.by}` }) : null,
        why ? h("span", { text: why, dir: "auto" }) : null],
    });
    return [link, this.picking ? this.selectBox(request) : null, this.picking || request.claim || !request.yes_or_no ? null : this.quickAnswer(request)];
  }

  /** Return who calls, and how many have approved so far. */
  approvalStatus({ caller, approved_by: by, needed }) {
    return [caller && `for ${caller}`, by.length && `${by.length} of ${needed} said yes`].filter(Boolean).join(" · ");
  }

  /** Render the box that selects a request. */
  selectBox(request) {
    const input = h("input", { type: "checkbox", class: "pick", "aria-label": `Select: ${clean(request.question)}`, checked: this.picked.has(request.id) });
    input.addEventListener("change", () => this.toggle(request.id, input.checked));
    return input;
  }

  /** Render Yes and No, for a form that asks for nothing else. */
  quickAnswer(request) {
    const id = uniqueId("quick");
    const { name, title } = request.yes_or_no;
    // For the pointer: who types a word, Tab and Enter in the list must answer nothing. Enter on the row opens the form.
    /** Render the button that answers with a value. */
    const button = (text, value) => h("button", { type: "button", text, tabindex: "-1", "aria-describedby": id,
      "aria-label": `${text}: ${clean(request.question)}`, on: { click: (event) => this.answerQuickly(event, request, { accept: { [name]: value } }, text) } });
    return h("span", { class: "quick" }, h("span", { id, class: "quiet", dir: "auto", text: title }), button("Yes", true), button("No", false));
  }

  /** Send Yes or No at once if all that is asked can be read in the row; else show the question whole first. */
  async answerQuickly(event, request, answer, text) {
    // The second click of two meets the row that has come to this place.
    if (event.detail > 1 || this.sending.has(request.id)) return;
    const { question, yes_or_no: { title } } = request;
    const read = [...event.target.closest(".item").querySelectorAll(".what, .quick .quiet")].every(isFullyVisible);
    if (!read && !await confirmAction(this.dialog, `Answer “${text}”?`, [h("p", { dir: "auto", text: question }), h("p", { dir: "auto", text: `${title}: ${text}` })], text, "primary")) return;
    this.sending.add(request.id);
    await this.sendAnswer(request, answer, text);
    this.sending.delete(request.id);
  }

  /** Send an answer, and show what was sent or why it was refused. */
  async sendAnswer(request, answer, said) {
    this.trouble.textContent = "";
    try {
      await runAction("answer", { id: request.id, answer_id: crypto.randomUUID(), ...answer });
      this.said.textContent = clean(`“${request.question}”: ${said}.`);
    } catch (error) {
      this.trouble.textContent = clean(`“${request.question}”: ${errorText(error)}`);
    }
  }

  /** Turn the selection of several requests on or off. */
  setPicking(picking) {
    this.picking = picking;
    if (!picking) this.picked.clear();
    this.pick.textContent = picking ? "Done" : "Select";
    this.pick.setAttribute("aria-pressed", String(picking));
    this.list.redrawAll();
    this.drawBar();
  }

  /** Select a request, or not any more. */
  toggle(id, on = !this.picked.has(id)) {
    if (on) this.picked.add(id);
    else this.picked.delete(id);
    this.drawBar();
  }

  /** Select the row with the focus, or not any more. */
  pickCurrent() {
    const request = this.list.current();
    if (!request) return;
    if (!this.picking) this.setPicking(true);
    this.toggle(request.id);
    this.list.redrawAll();
  }

  /** Select all requests that are shown. */
  pickAll() {
    for (const request of this.shownRequests) this.picked.add(request.id);
    this.list.redrawAll();
    this.drawBar();
  }

  /** Draw the buttons for what is selected. */
  drawBar() {
    this.bar.hidden = !this.picking;
    this.decline.textContent = this.picked.size ? `Decline ${this.picked.size.toLocaleString()}` : "Decline";
    this.decline.disabled = !this.picked.size;
  }

  /** Decline what is selected, or else the row with the focus, after asking. */
  async declinePicked() {
    const current = this.list.current();
    const ids = this.picked.size ? [...this.picked] : current ? [current.id] : [];
    const those = ids.map((id) => tables.request.get(id)).filter((each) => each?.state === "open");
    if (!those.length) return;
    const title = those.length === 1 ? (those[0].kind === "approval" ? "Deny this call?" : "Decline this question?") : `Decline ${those.length.toLocaleString()} questions?`;
    if (!await confirmAction(this.dialog, title, those.length === 1 ? `“${those[0].question}”` : "Each server gets your refusal at once.", "Decline")) return;
    this.trouble.textContent = "";
    const refused = [];
    for (const each of those) {
      try {
        await runAction("answer", { id: each.id, answer_id: crypto.randomUUID(), ...refusalAnswer(each.kind) });
      } catch (error) {
        refused.push(`“${each.question}”: ${errorText(error)}`);
      }
    }
    this.said.textContent = `${those.length - refused.length} declined.`;
    this.trouble.textContent = clean(refused.slice(0, 3).join(" ") + (refused.length > 3 ? ` And ${refused.length - 3} more.` : ""));
    this.setPicking(false);
  }
}

/** Return the title of a request's row: the question; of a call to approve the tool, since many begin alike. */
function rowTitle(request) {
  return (request.tool ? `Run ${request.tool}?` : request.question) || "(says nothing)";
}

/** Return the answer that refuses a pending request of a kind. */
function refusalAnswer(kind) {
  if (kind === "approval") return { deny: "" };
  return kind.startsWith("elicitation") ? { decline: true } : { reject: REFUSAL };
}

/** Return in words why an action failed. */
function errorText(error) {
  return error instanceof Refused ? `${error.message}.` : "The bridge cannot be reached. Try again in a moment.";
}

/** Return whether nothing of an element's text is cut off. */
function isFullyVisible(element) {
  return element.checkVisibility() && element.scrollWidth <= element.clientWidth;
}

const NONE = {
  filtered: () => h("p", { text: "No open question is as you look for." }),
  nothing: () => [h("p", { class: "big", text: "Nothing waits for you." }), h("p", { text: "Questions of your servers appear here as they come." }),
    h("p", {}, h("a", { href: "#/catalog", text: "Call a tool" }), " or see ", h("a", { href: "#/history", text: "what was answered" }), ".")],
};

/** Open the page of closed pending requests. */
export function historyPage(main) {
  const list = rowList(settledRow, { name: "Settled requests", empty: h("p", {}, "Nothing has been answered yet. Open questions are in the ", h("a", { href: "#/inbox", text: "inbox" }), ".") });
  const search = searchBox("Search", draw);
  const server = chooser("All servers", draw);
  const kind = chooser("All kinds", draw);
  kind.addChoices(Object.keys(KINDS), KINDS);
  refill(main, h("h1", { text: "History" }), h("div", { class: "filters", role: "search" }, search.element, server.element, kind.element), list.element);
  /** Draw the closed requests that match the search and the filters. */
  function draw() {
    server.addChoices([...tables.server.keys()].sort());
    list.show(newestFirst(tables.request).filter((each) => each.state !== "open" && (!server.value || each.server === server.value)
      && (!kind.value || each.kind === kind.value) && search.matches(each.question, each.server, each.id)));
  }
  draw();
  return { update: draw, leave() {}, list };
}

/** Render the row of a closed pending request. */
function settledRow(request) {
  const by = request.answered_by ? `by ${request.answered_by}` : request.reason ?? "";
  return [entryLink(`#/request/${encodeURIComponent(request.id)}`, {
    title: rowTitle(request), right: [request.delivery === "late" ? pill("late", "came too late") : null,
      request.delivery === "failed" ? pill("failed", "not delivered") : null, pill(request.outcome)],
    chips: [request.server, KINDS[request.kind] ?? request.kind],
    more: [defectPill(request), h("span", { text: by, dir: "auto" }), ago(request.answered_at ?? request.created_at)],
  })];
}
