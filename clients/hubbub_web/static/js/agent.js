// What an agent asks to do, by the members of its question that are its own.

import { h } from "./dom.js";
import { argumentList } from "./given.js";

/** Render what an agent would do, and folded what else its server has sent; nothing for others. */
export function agentCard({ agent: it }) {
  if (!it) return null;
  const folder = it.folder ? h("p", { class: "help" }, "In the folder ", h("code", { class: "name", dir: "ltr", text: it.folder })) : null;
  return h("div", { class: "agent" },
    it.rows.length || folder ? h("section", { class: "aside", "aria-label": "What it would do" }, h("h2", { class: "small", text: "What it would do" }), folder, argumentList(it.rows)) : null,
    it.more.length ? h("details", { class: "aside foreign" }, h("summary", { text: it.more_title }), argumentList(it.more)) : null);
}
