// Arguments of a call as people read them: rows that the bridge makes, each value in the way that it is best read.

import { codeBlock, h, append, textBlock } from "./dom.js";
import { diffLines, parsePatch, renderDiff } from "./diff.js";

// Rows that are drawn at first.
const FIRST = 50;

/** Render rows of arguments by their titles; of very many the first, and a button for all. `nothing` is shown if there are none. */
export function argumentList(rows, nothing = "No arguments.") {
  if (!rows.length) return h("p", { class: "quiet", text: nothing });
  const list = h("dl", { class: "given" });
  const more = h("button", { type: "button", class: "more", text: `Show all (${(rows.length - FIRST).toLocaleString()} more)`, on: { click: () => { more.remove(); append(list, rows.slice(FIRST).map(argumentRow)); } } });
  append(list, rows.slice(0, FIRST).map(argumentRow));
  return h("div", {}, list, rows.length > FIRST ? more : null);
}

/** Render one argument: title, path if that differs, and value. */
function argumentRow(row) {
  const plain = row.title.toLowerCase().replaceAll(" ", "_").endsWith(row.path.toLowerCase());
  return h("div", { class: row.kind === "text" ? "short" : null }, h("dt", { dir: "auto" }, row.title, plain ? null : h("code", { class: "path", text: row.path.slice(0, 300) }), row.fate ? ` (${row.fate})` : null),
    h("dd", {}, argumentValue(row)));
}

/** Render the value of an argument, by the kind of its row. */
function argumentValue(row) {
  switch (row.kind) {
    case "change":
      return row.old || row.new ? renderDiff(diffLines(row.old, row.new), row.title) : h("span", { class: "quiet", text: "an empty text" });
    case "patch":
      return renderDiff(parsePatch(row.text), row.title);
    case "text":
      return textBlock(row.text);
    default:
      return codeBlock(row.text, row.title);
  }
}
