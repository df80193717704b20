// What servers offer, and a form to call a tool.

import { ask, Refused } from "./api.js";
import { fresh, h, json, pill, refill, words } from "./dom.js";
import { schemaForm } from "./form.js";
import { cards, searchBox } from "./list.js";
import { tables } from "./store.js";

const KINDS = { tool: "Tools", resource: "Resources", template: "Resource templates", prompt: "Prompts" };

/** The page of what a server offers; without one, of all servers. */
export async function catalogPage(main, server) {
  return server ? offers(main, server) : servers(main);
}

function servers(main) {
  const list = cards((each) => h("a", { class: "card", "data-role": "open", href: `#/catalog/${encodeURIComponent(each.name)}` },
    h("span", { class: "line" }, h("strong", { text: each.name }), pill(each.state)),
    h("span", { class: "line quiet" }, Object.keys(KINDS).map((kind) => {
      const found = tables.list.get(`${each.name}/${kind}`) ?? [...tables.list.values()].find((one) => one.server === each.name && one.kind === kind);
      return found?.count ? h("span", { text: `${found.count} ${KINDS[kind].toLowerCase()}` }) : null;
    }))), { name: "Servers", empty: "No servers are configured." });
  refill(main, h("h1", { text: "Catalog" }), h("p", { class: "help", text: "What each server offers. Choose one to call its tools." }), list.element);
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
    h("div", { class: "filters", role: "search" }, search.element, kinds.element), box, list.element);

  async function load() {
    const found = await ask("catalog", { server, kind: kinds.value });
    entries = found.entries.map((entry, at) => ({ ...entry, id: `${kinds.value} ${at}`, kind: kinds.value }));
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
  const content = [h("span", { class: "line" }, h("strong", { text: entry.title ?? entry.name ?? "", dir: "auto" }), entry.title ? h("span", { class: "kind", text: entry.name ?? "" }) : null),
    h("span", { class: "what", dir: "auto", text: String(entry.description ?? entry.uri ?? entry.uriTemplate ?? "").slice(0, 300) })];
  return entry.kind === "tool"
    ? h("a", { class: "card", "data-role": "open", href: `#/tool/${encodeURIComponent(server)}/${encodeURIComponent(entry.name)}` }, content)
    : h("div", { class: "card" }, content);
}

/** The page of a tool, with a form to call it. */
export async function toolPage(main, server, name) {
  const { entries } = await ask("catalog", { server, kind: "tool" });
  const tool = entries.find((entry) => entry.name === name);
  const crumbs = h("div", { class: "crumbs" }, h("a", { href: "#/catalog", text: "Catalog" }), " / ", h("a", { href: `#/catalog/${encodeURIComponent(server)}`, text: server }));
  if (!tool) {
    refill(main, crumbs, h("h1", { text: name }), h("p", { text: "The server does not offer this any more." }));
    return { update() {}, leave() {} };
  }
  const trouble = h("p", { class: "problem", role: "alert" });
  const form = schemaForm(tool.inputSchema, "arguments");
  const asTask = h("input", { type: "checkbox", id: fresh("as-task") });
  const button = h("button", { class: "primary", type: "submit", text: "Call" });

  async function submit(event) {
    event.preventDefault();
    const values = form.values();
    if (!values) return;
    button.disabled = true;
    trouble.textContent = "";
    try {
      const call = await ask("start", { server, method: "tools/call", params: { name, arguments: values }, as_task: asTask.checked });
      location.hash = `#/call/${encodeURIComponent(call.id)}`;
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      trouble.textContent = error.message;
    } finally {
      button.disabled = false;
    }
  }

  const element = h("form", { on: { submit } }, form.empty ? h("p", { class: "help", text: "This tool takes no arguments." }) : form.element,
    h("div", { class: "check" }, asTask, h("label", { for: asTask.id, text: "As a task that the server holds" })), trouble, h("div", { class: "row" }, button));
  element.noValidate = true;
  refill(main, crumbs, h("h1", { text: tool.title ?? name, dir: "auto" }), words(tool.description ?? ""), h("section", { class: "panel" }, element),
    h("details", { class: "aside" }, h("summary", { text: "As JSON" }), json(tool, "Tool as JSON")));
  return { update() {}, leave() {} };
}
