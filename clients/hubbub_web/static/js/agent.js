// What an agent asks to do, by the members of its question that are its own.

import { h } from "./dom.js";
import { argumentList } from "./given.js";

/** Render what an agent asks to do, and folded what else its server has sent; null for a question of another server. */
export function agentCard({ agent }) {
  if (!agent) return null;
  const folder = agent.folder ? h("p", { class: "help" }, "In the folder ", h("code", { class: "name", dir: "ltr", text: agent.folder })) : null;
  return h("div", { class: "agent" },
    agent.rows.length || folder ? h("section", { class: "aside", "aria-label": "What it would do" }, h("h2", { class: "small", text: "What it would do" }), folder, argumentList(agent.rows)) : null,
    agent.more.length ? h("details", { class: "aside foreign" }, h("summary", { text: agent.more_title }), argumentList(agent.more)) : null);
}
