// The catalog: what servers offer, by server, or found over all of them.

import { runAction, Refused } from "./api.js";
import { clean, h, pill, refill } from "./dom.js";
import { entryLink, rowList, searchBox } from "./list.js";
import { oneAtATime, tables } from "./store.js";
import { entryKey } from "./use.js";

const KINDS = { tool: "Tools", resource: "Resources", template: "Resource templates", prompt: "Prompts", skill: "Skills" };
const ONE = { tool: "tool", resource: "resource", template: "resource template", prompt: "prompt", skill: "skill" };
// Pause after a key before the search begins.
const SETTLE_MS = 120;

/** Open the page of what a server offers; without one, of all servers. */
export async function catalogPage(main, server) {
  return server ? serverCatalogPage(main, server) : allServersPage(main);
}

/** Open the page of all servers, with a search over what they offer. */
function allServersPage(main) {
  const search = searchBox("Search all servers", searchSoon);
  const servers = rowList(serverRow, { name: "Servers", empty: h("p", {}, "No servers are configured. ", h("a", { href: "#/add", text: "Add one" }), ".") });
  const found = rowList(foundRow, { name: "What was found", empty: h("p", { text: "No tool, resource, prompt or skill has these words." }) });
  const said = h("p", { class: "help", role: "status" });
  let timer = 0;
  refill(main, h("h1", { text: "Catalog" }), h("div", { class: "filters", role: "search" }, search.element), said, servers.element, found.element);

  /** Search once nothing has been typed for SETTLE_MS. */
  function searchSoon() {
    clearTimeout(timer);
    timer = setTimeout(searchNow, SETTLE_MS);
  }

  /** Search for what is typed and show what was found; without a text, show the servers. */
  const searchNow = oneAtATime(async () => {
    const text = search.element.value.trim();
    const none = !text;
    if (!none) {
      try {
        const { entries, many } = await runAction("find", { text: text.slice(0, 200) });
        found.show(entries.map((each, id) => ({ ...each, id })));
        setStatus(many > entries.length ? `The best ${entries.length} of ${many.toLocaleString()}.` : `${many} found.`);
      } catch (error) {
        setStatus(error instanceof Refused ? clean(error.message) : "This cannot be searched now. Try again in a moment.");
        return;
      }
    } else {
      setStatus(HELP);
    }
    servers.element.hidden = !none;
    found.element.hidden = none;
  });

  /** Show a text below the search. */
  function setStatus(text) {
    if (said.textContent !== text) said.textContent = text;
  }

  /** Draw the servers by name. */
  function draw() {
    servers.show([...tables.server.values()].sort((a, b) => (a.name < b.name ? -1 : 1)));
  }

  setStatus(HELP);
  found.element.hidden = true;
  draw();
  return { update: draw, leave: () => clearTimeout(timer), get list() { return found.element.hidden ? servers : found; } };
}

const HELP = "Choose a server, or search the tools, resources, prompts and skills of all.";

/** Render the row of a server, with how much it offers of each kind. */
function serverRow(each) {
  const counts = Object.keys(KINDS).map((kind) => {
    const list = tables.list.get(`${each.name}/${kind}`) ?? [...tables.list.values()].find((one) => one.server === each.name && one.kind === kind);
    return list?.count ? h("span", { text: `${list.count} ${list.count === 1 ? ONE[kind] : KINDS[kind].toLowerCase()}` }) : null;
  });
  return [entryLink(`#/catalog/${encodeURIComponent(each.name)}`, { title: each.name, right: pill(each.state), more: counts.some(Boolean) ? counts : h("span", { text: "offers nothing yet" }) })];
}

/** Render the row of an entry that a search has found. */
function foundRow(each) {
  return [entryLink(entryAddress(each.server, each.kind, each.key), {
    title: each.title, chips: [each.server, ONE[each.kind]], more: h("span", { text: each.about || each.key, dir: "auto" }),
  })];
}

/** Open the page of what one server offers, one kind at a time. */
async function serverCatalogPage(main, server) {
  const box = h("div");
  const search = searchBox("Search", () => draw());
  const kinds = h("select", { "aria-label": "Kind", on: { change: load } }, Object.entries(KINDS).map(([value, text]) => h("option", { value, text })));
  const list = rowList((each) => entryRow(server, each), { name: "Entries", empty: h("p", { text: "There is nothing here." }) });
  let entries = [];
  refill(main, h("div", { class: "crumbs" }, h("a", { href: "#/catalog", text: "Catalog" })), h("h1", { text: server }),
    h("div", { class: "filters", role: "search" }, search.element, kinds), box, list.element);

  /** Read and draw the entries of the chosen kind. */
  async function load() {
    const kind = kinds.value;
    const found = await runAction("catalog", { server, kind });
    if (kind !== kinds.value) return; // another kind was chosen meanwhile
    entries = found.entries.map((each, at) => ({ ...each, id: `${kind} ${at}`, kind }));
    const stale = found.lists.filter((each) => each.freshness !== "fresh" && each.freshness !== "empty");
    refill(box, stale.map((each) => h("p", { class: "help", text: `This list is ${each.freshness}${each.error ? `: ${each.error.message}` : ""}.` })));
    draw();
  }

  /** Draw the entries that match the search. */
  function draw() {
    list.show(entries.filter((each) => search.matches(each.name, each.title, each.description, each.uri)));
  }

  await load();
  return { update() {}, leave() {}, list, title: `Catalog of ${server}` };
}

/** Render the row of an entry of a server. */
function entryRow(server, each) {
  const about = String(each.description ?? each.uri ?? each.uriTemplate ?? "").slice(0, 300);
  return [entryLink(entryAddress(server, each.kind, entryKey(each.kind, each)), {
    title: each.title ?? each.name ?? "", chips: [each.title && each.title !== each.name ? each.name : null], more: h("span", { dir: "auto", text: about }),
  })];
}

/** Return the address of the page of an entry. */
function entryAddress(server, kind, key) {
  return `#/${kind}/${encodeURIComponent(server)}/${encodeURIComponent(key)}`;
}
