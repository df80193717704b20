// The inbox: open pending requests, and closed ones.

import { defectPill, h, pill, refill } from "./dom.js";
import { cards, chooser, searchBox } from "./list.js";
import { causeInWords, KINDS } from "./request.js";
import { newestFirst, openRequests, tables } from "./store.js";
import { ago, left } from "./time.js";

/** The page of open pending requests. */
export function inboxPage(main) {
  const list = cards(openCard, { name: "Open requests", empty: "Nothing waits for you." });
  return listPage(main, "Inbox", list, () => openRequests());
}

/** The page of closed pending requests. */
export function historyPage(main) {
  const list = cards(settledCard, { name: "Settled requests", empty: "Nothing has been settled yet." });
  return listPage(main, "History", list, () => newestFirst(tables.request).filter((request) => request.state !== "open"));
}

function listPage(main, title, list, records) {
  const search = searchBox("Search", draw);
  const server = chooser("All servers", draw);
  const kind = chooser("All kinds", draw);
  kind.offer(Object.keys(KINDS));
  refill(main, h("h1", { text: title }), h("div", { class: "filters", role: "search" }, search.element, server.element, kind.element), list.element);
  function draw() {
    const all = records();
    server.offer([...tables.server.keys()].sort());
    list.show(all.filter((each) => (!server.value || each.server === server.value) && (!kind.value || each.kind === kind.value)
      && search.matches(each.question, each.server, each.id)));
  }
  draw();
  return { update: draw, leave() {} };
}

function openCard(request) {
  const why = [causeInWords(request), request.caller && `called by ${request.caller}`].filter(Boolean).join(", ");
  return h("a", { class: "card", "data-role": "open", href: `#/request/${encodeURIComponent(request.id)}` },
    h("span", { class: "line" }, h("strong", { text: request.server, dir: "auto" }), h("span", { class: "kind", text: KINDS[request.kind] ?? request.kind }), defectPill(request), left(request.deadline)),
    h("span", { class: "what", dir: "auto", text: request.question || "(says nothing)" }),
    h("span", { class: "line quiet" }, why ? h("span", { text: why, dir: "auto" }) : null, ago(request.created_at),
      request.cause_ended ? h("span", { class: "ended", text: "its call is over" }) : null,
      request.claim ? h("span", { class: "claimed", text: `being answered by ${request.claim.by}` }) : null));
}

function settledCard(request) {
  const by = request.answered_by ? `by ${request.answered_by}` : request.reason ?? "";
  return h("a", { class: "card", "data-role": "open", href: `#/request/${encodeURIComponent(request.id)}` },
    h("span", { class: "line" }, h("strong", { text: request.server, dir: "auto" }), h("span", { class: "kind", text: KINDS[request.kind] ?? request.kind }),
      defectPill(request), pill(request.state), request.delivery === "late" ? pill("late", "came too late") : null, request.delivery === "failed" ? pill("failed", "not delivered") : null),
    h("span", { class: "what", dir: "auto", text: request.question || "(says nothing)" }),
    h("span", { class: "line quiet" }, h("span", { text: by, dir: "auto" }), ago(request.answered_at ?? request.created_at)));
}
