// The page as a whole: login, routes, the frame around each page, and notifications.

import { login, Refused } from "./api.js";
import { callPage, callsPage } from "./calls.js";
import { catalogPage } from "./catalog.js";
import { clean, h, icon, refill } from "./dom.js";
import { linkIn, wordsForLink } from "./enter.js";
import { eventsPage } from "./events.js";
import { hostPage, hostsPage } from "./hosts.js";
import { historyPage, inboxPage } from "./inbox.js";
import { knownName, loginPage, openDialog, wantsNotifications } from "./person.js";
import { startWorker } from "./push.js";
import { requestPage } from "./request.js";
import { serverPage, serversPage } from "./servers.js";
import { follow, hubIsThere, openRequests, run, state } from "./store.js";
import { taskPage, tasksPage } from "./tasks.js";
import { usePage } from "./use.js";

const ROUTES = {
  inbox: [inboxPage, "Inbox"], request: [requestPage, "Request", "inbox"], calls: [callsPage, "Calls"], call: [callPage, "Call", "calls"],
  servers: [serversPage, "Servers"], server: [serverPage, "Server", "servers"], tasks: [tasksPage, "Tasks"], task: [taskPage, "Task", "tasks"],
  catalog: [catalogPage, "Catalog"], hosts: [hostsPage, "Hosts"], host: [hostPage, "Host", "hosts"], tool: [usePage("tool"), "Tool", "catalog"],
  resource: [usePage("resource"), "Resource", "catalog"], template: [usePage("template"), "Template", "catalog"],
  prompt: [usePage("prompt"), "Prompt", "catalog"], events: [eventsPage, "Events"], history: [historyPage, "History"],
};
const PAGES = ["inbox", "calls", "servers", "tasks", "catalog", "hosts", "events", "history"];

const [main, nav, banner, link, person, dialog, arrivals, skip] =
  ["main", "nav", "banner", "link", "person", "dialog", "arrivals", "skip"].map((id) => document.getElementById(id));

let page = null;
let title = "Hubbub";
let visits = 0;
let name = null;
// Whether the first snapshot is complete; before that nothing is new.
let begun = false;
let known = new Set();

/** Show the page of the address. */
async function visit() {
  if (location.hash.startsWith("#login=")) return enter();
  if (state.link === "out" || !begun) return undefined;
  const [route, ...rest] = location.hash.replace(/^#\//, "").split("/");
  const [make, called, under] = ROUTES[route] ?? ROUTES.inbox;
  const mine = ++visits;
  page?.leave();
  page = null;
  title = called;
  mark(under ?? (ROUTES[route] ? route : "inbox"));
  // Rendered detached, so that a slow page never draws over a later one.
  const box = h("div", { class: "page", "data-route": location.hash });
  try {
    const made = await make(box, ...rest.map(decodeURIComponent));
    if (mine !== visits) return made.leave();
    page = made;
    page.update();
  } catch (error) {
    if (mine !== visits) return undefined;
    refill(box, h("h1", { text: called }), h("p", { class: "warning", text: error instanceof Refused ? error.message : "This cannot be shown now; try again in a moment." }),
      h("button", { type: "button", text: "Try again", on: { click: visit } }));
  }
  main.replaceChildren(box);
  drawAround();
  window.scrollTo(0, 0);
  if (mine > 1) main.focus({ preventScroll: true });
  return undefined;
}

function mark(current) {
  for (const each of nav.querySelectorAll("a")) {
    if (each.dataset.page === current) each.setAttribute("aria-current", "page");
    else each.removeAttribute("aria-current");
  }
}

function drawNav() {
  refill(nav, PAGES.map((each) => h("a", { href: `#/${each}`, "data-page": each }, icon(each), h("span", { text: ROUTES[each][1] }),
    each === "inbox" ? h("span", { class: "badge", hidden: true, "data-role": "count" }) : null)));
}

function drawAround() {
  const waiting = openRequests().length;
  document.title = `${waiting ? `(${waiting}) ` : ""}${title} · Hubbub`;
  const badge = nav.querySelector("[data-role=count]");
  if (badge) {
    badge.hidden = !waiting;
    badge.textContent = waiting > 999 ? "999+" : String(waiting);
    badge.setAttribute("aria-label", `${waiting} open`);
  }
  const trouble = state.link === "lost" ? "The bridge does not answer: reconnecting. If it was ended, run hubbub web again and open its link."
    : state.link === "live" && !hubIsThere() ? "The hub does not answer: reconnecting. Nothing is lost." : "";
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
  const text = arrived.length === 1 ? `${arrived[0].server} asks: ${arrived[0].question}` : `${arrived.length} new requests`;
  arrivals.textContent = clean(text);
  if (document.hidden && wantsNotifications()) new Notification("Hubbub", { body: clean(text), tag: "hubbub" });
}

function changed() {
  if (state.link === "out") return leave("You are logged out: the bridge was started anew.");
  if (state.link === "live" && !begun) {
    begun = true;
    known = new Set(openRequests().map((request) => request.id));
    visit();
  }
  drawAround();
  if (begun) announce();
  page?.update();
  return undefined;
}

function leave(problem) {
  state.link = "out";
  visits += 1;
  page?.leave();
  page = null;
  nav.hidden = true;
  person.hidden = true;
  title = "Log in";
  drawAround();
  loginPage(main, problem);
}

/** Use the one-time link in the address, and remove it from there. */
async function enter() {
  const { secret, to } = linkIn(location.hash);
  history.replaceState(null, "", `#/${to}`);
  // Where somebody is logged in already, a link of a notification is used up, and leads to its place in any case.
  const inside = begun && state.link !== "out";
  try {
    return await login(secret) && inside ? visit() : begin();
  } catch (error) {
    if (inside) return visit();
    return error instanceof Refused ? begin(wordsForLink(error)) : leave(wordsForLink(error));
  }
}

async function begin(problem) {
  try {
    named(await knownName());
  } catch (error) {
    if (error instanceof Refused && error.status === 401) return leave(problem);
    named(null);
  }
  nav.hidden = false;
  drawNav();
  if (!name) openDialog(dialog, null, named);
  state.link = "loading";
  begun = false;
  startWorker();
  return run();
}

function named(now) {
  name = now;
  person.hidden = !name;
  refill(person, h("span", { class: "unseen", text: "You are " }), name ?? "");
}

skip.addEventListener("click", () => main.focus());
person.addEventListener("click", () => openDialog(dialog, name, named));
// After a dialog, the focus returns to what had it before, or to the page.
dialog.addEventListener("close", () => {
  const at = document.activeElement;
  if (at === document.body || dialog.contains(at)) main.focus({ preventScroll: true });
});
// A page from the browser's back/forward cache has released its claims, and starts again.
window.addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
window.addEventListener("hashchange", visit);
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || dialog.open || page?.dirty || !location.hash.startsWith("#/request/")) return;
  location.hash = "#/inbox";
});
follow(changed);
if (location.hash.startsWith("#login=")) enter();
else begin();
