// Arguments of a call as people read them: rows that the bridge makes, each value in the way that it is best read.

import { code, h, put, words } from "./dom.js";
import { differences, patchLines, signedLines } from "./diff.js";

// Rows that are drawn at first.
const FIRST = 50;

/** Render arguments by their titles; of very many the first, and a button for all. */
export function argumentList(rows, nothing = "No arguments.") {
  if (!rows.length) return h("p", { class: "quiet", text: nothing });
  const list = h("dl", { class: "given" });
  const more = h("button", { type: "button", class: "more", text: `Show all (${(rows.length - FIRST).toLocaleString()} more)`, on: { click: () => { more.remove(); put(list, rows.slice(FIRST).map(row)); } } });
  put(list, rows.slice(0, FIRST).map(row));
  return h("div", {}, list, rows.length > FIRST ? more : null);
}

function row(it) {
  const plain = it.title.toLowerCase().replaceAll(" ", "_").endsWith(it.path.toLowerCase());
  return h("div", { class: it.kind === "text" ? "short" : null }, h("dt", { dir: "auto" }, it.title, plain ? null : h("code", { class: "path", text: it.path.slice(0, 300) }), it.fate ? ` (${it.fate})` : null),
    h("dd", {}, value(it)));
}

function value(it) {
  switch (it.kind) {
    case "change":
      return it.old || it.new ? signedLines(differences(it.old, it.new), it.title) : h("span", { class: "quiet", text: "an empty text" });
    case "patch":
      return signedLines(patchLines(it.text), it.title);
    case "text":
      return words(it.text);
    default:
      return code(it.text, it.title);
  }
}
