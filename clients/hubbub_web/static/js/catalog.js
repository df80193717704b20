// The catalog: what servers offer.

import { ask } from "./api.js";
import { h, pill, refill } from "./dom.js";
import { cards, searchBox } from "./list.js";
import { tables } from "./store.js";
import { keyOf } from "./use.js";

const KINDS = { tool: "Tools", resource: "Resources", template: "Resource templates", prompt: "Prompts" };
const ONE = { tool: "tool", resource: "resource", template: "resource template", prompt: "prompt" };

/** The page of what a server offers; without one, of all servers. */
export async function catalogPage(main, server) {
  return server ? offers(main, server) : servers(main);
}

function servers(main) {
  const list = cards((each) => h("a", { class: "card", "data-role": "open", href: `#/catalog/${encodeURIComponent(each.name)}` },
    h("span", { class: "line" }, h("strong", { text: each.name }), pill(each.state)),
    h("span", { class: "line quiet" }, Object.keys(KINDS).map((kind) => {
      const found = tables.list.get(`${each.name}/${kind}`) ?? [...tables.list.values()].find((one) => one.server === each.name && one.kind === kind);
      return found?.count ? h("span", { text: `${found.count} ${found.count === 1 ? ONE[kind] : KINDS[kind].toLowerCase()}` }) : null;
    }))), { name: "Servers", empty: "No servers are configured." });
  refill(main, h("h1", { text: "Catalog" }), h("p", { class: "help", text: "What each server offers. Choose one to call its tools, read its resources and get its prompts." }), list.element);
  const draw = () => list.show([...tables.server.values()].sort((a, b) => (a.name < b.name ? -1 : 1)));
  draw();
  return { update: draw, leave() {} };
}

async function offers(main, server) {
  const box = h("div");
  const search = searchBox("Search", () => draw());
  const kinds = h("select", { "aria-label": "Kind", on: { change: load } }, Object.entries(KINDS).map(([value, text]) => h("option", { value, text })));
  const list = cards((each) => offer(server, each), { name: "Entries", empty: "There is nothing here." });
  let entries = [];
  refill(main, h("div", { class: "crumbs" }, h("a", { href: "#/catalog", text: "Catalog" })), h("h1", { text: server }),
    h("div", { class: "filters", role: "search" }, search.element, kinds), box, list.element);

  async function load() {
    const kind = kinds.value;
    const found = await ask("catalog", { server, kind });
    if (kind !== kinds.value) return; // another kind was chosen meanwhile
    entries = found.entries.map((entry, at) => ({ ...entry, id: `${kind} ${at}`, kind }));
    const stale = found.lists.filter((each) => each.freshness !== "fresh" && each.freshness !== "empty");
    refill(box, stale.map((each) => h("p", { class: "help", text: `This list is ${each.freshness}${each.error ? `: ${each.error.message}` : ""}.` })));
    draw();
  }

  function draw() {
    list.show(entries.filter((entry) => search.matches(entry.name, entry.title, entry.description, entry.uri)));
  }

  await load();
  return { update() {}, leave() {} };
}

function offer(server, entry) {
  return h("a", { class: "card", "data-role": "open", href: `#/${entry.kind}/${encodeURIComponent(server)}/${encodeURIComponent(keyOf(entry.kind, entry))}` },
    h("span", { class: "line" }, h("strong", { text: entry.title ?? entry.name ?? "", dir: "auto" }), entry.title ? h("span", { class: "kind", text: entry.name ?? "" }) : null),
    h("span", { class: "what", dir: "auto", text: String(entry.description ?? entry.uri ?? entry.uriTemplate ?? "").slice(0, 300) }));
}
