// The page as a whole: login, routes, the frame around each page, and notifications.

import { login, Refused } from "./api.js";
import { addPage } from "./add.js";
import { agentsPage } from "./agents.js";
import { approvalsPage } from "./approvals.js";
import { requestPage } from "./approving.js";
import { callPage, callsPage } from "./calls.js";
import { catalogPage } from "./catalog.js";
import { clean, h, refill } from "./dom.js";
import { parseLoginLink, linkProblem } from "./enter.js";
import { eventsPage } from "./events.js";
import { hostPage, hostsPage } from "./hosts.js";
import { historyPage, Inbox } from "./inbox.js";
import { listenToKeys } from "./keys.js";
import { drawNav, markCurrentPage } from "./nav.js";
import { fetchName, loginPage, openPersonDialog, wantsNotifications } from "./person.js";
import { startWorker } from "./push.js";
import { serverPage, serversPage } from "./servers.js";
import { sessionPage } from "./session.js";
import { follow, isHubReachable, openRequests, followBridge, state } from "./store.js";
import { taskPage, tasksPage } from "./tasks.js";
import { usePage } from "./use.js";

// By the first part of the address: what opens the page, its title, and the page above it. A page has `update()`, called after each change
// of the tables, and `leave()`; some have `title`, `list`, `focus()` and `isDirty`.
const ROUTES = {
  inbox: [inboxPage, "Inbox"], add: [addPage, "Add a server", "servers"], request: [requestPage, "Request", "inbox"], calls: [callsPage, "Calls"], call: [callPage, "Call", "calls"],
  servers: [serversPage, "Servers"], server: [serverPage, "Server", "servers"], tasks: [tasksPage, "Tasks"], task: [taskPage, "Task", "tasks"],
  agents: [agentsPage, "Agents"], session: [sessionPage, "Session", "agents"], catalog: [catalogPage, "Catalog"], hosts: [hostsPage, "Hosts"], host: [hostPage, "Host", "hosts"], tool: [usePage("tool"), "Tool", "catalog"],
  resource: [usePage("resource"), "Resource", "catalog"], template: [usePage("template"), "Template", "catalog"],
  prompt: [usePage("prompt"), "Prompt", "catalog"], skill: [usePage("skill"), "Skill", "catalog"], events: [eventsPage, "Events"], history: [historyPage, "History"], approvals: [approvalsPage, "Approvals"],
};
// From this width on the inbox stays beside what was opened from it.
const wide = matchMedia("(min-width: 1200px)");
// Screen readers get what is new at most so often.
const ANNOUNCE_MS = 5000;

const [main, side, nav, banner, link, person, dialog, arrivals, skip] =
  ["main", "side", "nav", "banner", "link", "person", "dialog", "arrivals", "skip"].map((id) => document.getElementById(id));

let page = null;
let title = "Hubbub";
// Counts the pages that were opened: only the latest is shown.
let visits = 0;
let name = null;
// Whether the first snapshot is complete; before that nothing is new.
let isLoaded = false;
// The ids of the pending requests that were open at the last change.
let known = new Set();
let inbox = null;
// New pending requests that were not announced yet.
let fresh = [];
let announceTimer = 0;

/** Open the page of the inbox; the list stays as it is while one goes from it to a request and back. */
function inboxPage(box) {
  return { box, update: () => inbox?.update(), leave() {}, get list() { return inbox?.list; } };
}

/** Move the inbox where it belongs: on its page, beside a request, or nowhere. */
function placeInbox() {
  const route = currentRoute();
  const beside = route === "request" && wide.matches;
  if (route !== "inbox" && route !== "request") inbox = null;
  else if (route === "inbox" || beside) inbox ??= new Inbox(dialog);
  document.body.classList.toggle("split", Boolean(inbox) && wide.matches);
  side.hidden = !beside;
  if (beside) {
    inbox.list.select(page?.id ?? null);
    inbox.moveTo(side, "h2");
  } else {
    side.replaceChildren();
    if (route === "inbox" && page?.box) {
      page.box.replaceChildren();
      inbox.list.select(null);
      inbox.moveTo(page.box, "h1");
      page.box.append(h("div", { class: "nothing" }, h("p", { class: "quiet" }, "Choose a question. ", h("kbd", { text: "j" }), " and ", h("kbd", { text: "k" }), " move, ", h("kbd", { text: "Enter" }), " opens, ", h("kbd", { text: "?" }), " shows all keys.")));
    }
  }
}

/** Return the first part of the address, which names the page. */
function currentRoute() {
  return location.hash.replace(/^#\/?/, "").split("/")[0] || "inbox";
}

/** Open the page of the address. */
async function openPage() {
  if (location.hash.startsWith("#login=")) return useLoginLink();
  if (state.link === "out" || !isLoaded) return undefined;
  const route = currentRoute();
  const [make, pageTitle, under] = Object.hasOwn(ROUTES, route) ? ROUTES[route] : [noSuchPage, "Not found"];
  const mine = ++visits;
  page?.leave();
  page = null;
  title = pageTitle;
  markCurrentPage(nav, under ?? route);
  // Rendered detached, so that a slow page never draws over a later one.
  const box = h("div", { class: "page", "data-route": location.hash });
  try {
    const made = await make(box, ...location.hash.split("/").slice(2).map(decodeURIComponent));
    if (mine !== visits) return made.leave();
    page = made;
    page.update();
  } catch (error) {
    if (mine !== visits) return undefined;
    const missing = error instanceof URIError || error.status === 404;
    title = missing ? "Not found" : pageTitle;
    refill(box, missing ? notFoundPage(pageTitle, under ?? route) : failedPage(pageTitle, error));
  }
  if (page?.title) ({ title } = page);
  main.replaceChildren(box);
  placeInbox();
  drawFrame();
  window.scrollTo(0, 0);
  if (mine > 1 || page?.focus) focusPage();
  return undefined;
}

/** Put the focus where the page wants it, or at its beginning. */
function focusPage() {
  (page?.focus ? page : main).focus({ preventScroll: true });
}

/** Open the page for an address that no page has. */
function noSuchPage(box) {
  refill(box, h("h1", { text: "There is no such page" }), h("p", { text: "The address may be from another version, or not whole." }), backLink("inbox"));
  return { update() {}, leave() {} };
}

/** Render the page for a record that does not exist. */
function notFoundPage(pageTitle, under) {
  let id = location.hash.split("/").slice(2).join("/");
  try {
    id = decodeURIComponent(id);
  } catch {
    // It is shown as it is.
  }
  id = id.length > 100 ? `${id.slice(0, 100)}…` : id;
  return [h("h1", { text: `No ${pageTitle.toLowerCase()} “${id}”` }), h("p", { text: "It may have been removed: old records are deleted after a while. Or you may not see it." }), backLink(under)];
}

/** Render the page for a record that could not be read, with a button that tries again. */
function failedPage(pageTitle, error) {
  return [h("h1", { text: pageTitle }), h("p", { class: "warning", text: error instanceof Refused ? error.message : "This cannot be shown now. Try again in a moment." }),
    h("div", { class: "row" }, h("button", { type: "button", text: "Try again", on: { click: openPage } }))];
}

/** Render the link back to the page above. */
function backLink(under) {
  const [, pageTitle] = ROUTES[under] ?? ROUTES.inbox;
  return h("div", { class: "row" }, h("a", { class: "button primary", href: `#/${under}`, text: `Back to ${pageTitle === "Inbox" ? "the inbox" : pageTitle.toLowerCase()}` }));
}

/** Draw what is around a page: the title, the number of open requests, and whether the hub can be reached. */
function drawFrame() {
  const waiting = openRequests().length;
  document.title = `${waiting ? `(${waiting}) ` : ""}${clean(title)} · Hubbub`;
  const badge = nav.querySelector("[data-role=count]");
  if (badge) {
    badge.hidden = !waiting;
    badge.textContent = waiting > 999 ? "999+" : String(waiting);
    badge.setAttribute("aria-label", `${waiting} open`);
  }
  const trouble = state.link === "lost" ? "The bridge does not answer: reconnecting. If it was ended, run hubbub web again and open its link."
    : state.link === "live" && !isHubReachable() ? "The hub does not answer: reconnecting. Nothing is lost." : "";
  if (banner.textContent !== trouble) banner.textContent = trouble;
  banner.classList.toggle("shown", Boolean(trouble));
  link.textContent = trouble ? "Reconnecting…" : state.link === "live" ? "Live" : "";
  link.className = trouble ? "off" : "on";
}

/** Notify people who do not see the page, or look elsewhere, of new pending requests. */
function announce() {
  const open = openRequests();
  const ids = new Set(open.map((request) => request.id));
  const arrived = open.filter((request) => !known.has(request.id));
  known = ids;
  if (!arrived.length) return;
  fresh.push(...arrived);
  if (!announceTimer) announceFresh();
}

/** Announce what is new, and then for a while nothing: what comes meanwhile is announced together. */
function announceFresh() {
  announceTimer = 0;
  if (!fresh.length) return;
  const text = clean(fresh.length === 1 ? (fresh[0].kind === "approval" ? fresh[0].question : `${fresh[0].server} asks: ${fresh[0].question}`) : `${fresh.length} new requests`);
  fresh = [];
  arrivals.textContent = text;
  if (document.hidden && wantsNotifications()) new Notification("Hubbub", { body: text, tag: "hubbub" });
  announceTimer = setTimeout(announceFresh, ANNOUNCE_MS);
}

/** Draw what the tables have now; the first time, open the page of the address. */
function onChange() {
  if (state.link === "out") return showLogin("You are logged out: the bridge was started again.");
  if (state.link === "live" && !isLoaded) {
    isLoaded = true;
    known = new Set(openRequests().map((request) => request.id));
    openPage();
  }
  drawFrame();
  if (isLoaded) announce();
  page?.update();
  if (!side.hidden) inbox?.update();
  return undefined;
}

/** Leave the page, and show the login page with a problem in words. */
function showLogin(problem) {
  state.link = "out";
  visits += 1;
  page?.leave();
  page = null;
  inbox = null;
  side.hidden = true;
  side.replaceChildren();
  fresh = [];
  document.body.className = "out";
  nav.hidden = true;
  person.hidden = true;
  title = "Log in";
  drawFrame();
  loginPage(main, problem);
}

/** Log in with the one-time link in the address, and remove it from there. */
async function useLoginLink() {
  const { secret, to } = parseLoginLink(location.hash);
  history.replaceState(null, "", `#/${to}`);
  // Where somebody is logged in already, a link of a notification is used up, and leads to its place in any case.
  const inside = isLoaded && state.link !== "out";
  try {
    return await login(secret) && inside ? openPage() : start();
  } catch (error) {
    if (inside) return openPage();
    return error instanceof Refused ? start(linkProblem(error)) : showLogin(linkProblem(error));
  }
}

/** Show the pages of a person who is logged in, and follow the hub; else the login page, with `problem`. */
async function start(problem) {
  try {
    showName(await fetchName());
  } catch (error) {
    if (error instanceof Refused && error.status === 401) return showLogin(problem);
    showName(null);
  }
  document.body.className = "";
  nav.hidden = false;
  drawNav(nav, ROUTES);
  if (!name) openPersonDialog(dialog, null, showName);
  state.link = "loading";
  isLoaded = false;
  startWorker();
  return followBridge();
}

/** Show the name of the person; null hides it. */
function showName(now) {
  name = now;
  person.hidden = !name;
  refill(person, h("span", { class: "unseen", text: "You are " }), name ?? "");
}

skip.addEventListener("click", () => main.focus());
person.addEventListener("click", () => openPersonDialog(dialog, name, showName));
// After a dialog, the focus returns to what had it before, or to the page.
dialog.addEventListener("close", () => {
  const at = document.activeElement;
  if (at === document.body || dialog.contains(at)) focusPage();
});
// A page from the browser's back/forward cache has released its claims, and starts again.
window.addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
window.addEventListener("hashchange", openPage);
wide.addEventListener("change", () => { if (page) placeInbox(); });
listenToKeys({
  dialog,
  list: () => page?.list ?? (isSideFocused() ? inbox.list : null),
  inbox: () => (inbox && (page?.list || isSideFocused()) ? inbox : null),
  search: () => [...document.querySelectorAll("#main input[type=search], #side input[type=search]")].find((each) => each.checkVisibility()),
  /** Go back to the inbox, unless the person has begun to write. */
  back() {
    if (!page?.isDirty && location.hash.startsWith("#/request/")) location.hash = "#/inbox";
  },
});

/** Return whether the list beside a request has the focus. */
function isSideFocused() {
  return !side.hidden && side.contains(document.activeElement);
}
follow(onChange);
if (location.hash.startsWith("#login=")) useLoginLink();
else start();
