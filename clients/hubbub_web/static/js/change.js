// Changing the arguments of a call before it is approved: an editor, then what is different, and only then it is sent.

import { runAction, Refused } from "./api.js";
import { uniqueId, h, refill } from "./dom.js";
import { schemaForm } from "./form.js";
import { argumentList } from "./given.js";

const PLAIN = new Set(["string", "number", "integer", "boolean"]);
// Fields of the form; with more, or longer texts, JSON is the better editor.
const FIELDS = 30;
const LETTERS = 20_000;

/** Return whether a form can show all of the arguments, and change each without touching the others. */
export function isEditableAsForm(schema, given) {
  const specs = Object.entries(schema?.properties ?? {});
  if (!given || !specs.length || specs.length > FIELDS || Object.keys(given).some((name) => !Object.hasOwn(schema.properties, name))) return false;
  return specs.every(([name, spec]) => PLAIN.has(spec?.type) && (given[name] === undefined || fitsField(given[name], spec)));
}

/** Return whether a value is of the type that its field of the form has, so that the form returns it unchanged. */
function fitsField(value, { type, format }) {
  if (type === "string") return typeof value === "string" && value.length <= LETTERS && !value.includes("\r") && format !== "date-time";
  return type === "boolean" ? typeof value === "boolean" : typeof value === "number";
}

/**
 * Make the editor of arguments. `next()` is what the button does: it shows what is different, and when that is shown already, returns
 * the arguments as JSON. `changed()` is called if others have changed the arguments since the editor began.
 */
export function changePanel({ id, approval }, { say, redraw, changed }) {
  const flat = isEditableAsForm(approval.schema, approval.given);
  const editor = flat ? fieldsEditor(approval) : textEditor(approval);
  const preview = h("section", { class: "aside", "aria-label": "What is different", tabindex: "-1", hidden: true });
  const edit = h("button", { type: "button", class: "plain", hidden: true, text: "Edit again", on: { click: () => showPreview(null) } });
  const button = h("button", { type: "submit", text: "Show what is different" });
  let seen = null;

  /** Show the differences of the arguments `text`, before they are approved; with null, the editor again. */
  function showPreview(text, rows = []) {
    seen = text;
    editor.element.hidden = text !== null;
    preview.hidden = text === null;
    edit.hidden = text === null;
    button.textContent = text === null ? "Show what is different" : "Approve with these changes";
    button.classList.toggle("primary", text !== null);
    refill(preview, h("h2", { class: "small", text: "What is different" }), argumentList(rows, "Nothing."), h("div", { class: "row" }, edit));
    if (text !== null) preview.focus({ preventScroll: true });
    redraw();
  }

  /** Show what is different; if that is shown already, return the arguments as JSON. Null until then. */
  async function next() {
    if (seen !== null) return seen;
    const text = editor.read();
    if (text === null) return null;
    say("");
    try {
      const found = await runAction("compare", { id, arguments: text });
      if (found.digest !== approval.digest) changed();
      else if (found.rows.length) showPreview(text, found.rows);
      else say("Nothing is different from what is shown.");
    } catch (error) {
      if (!(error instanceof Refused)) say("The bridge cannot be reached. What you have written stays here.");
      else {
        const others = editor.showProblems(error.violations);
        say(error.violations.length ? others.map(([, problem]) => problem).join("; ") : error.message);
      }
    }
    return null;
  }

  return {
    element: h("div", {}, editor.element, preview),
    button,
    next,
    /** Show the editor again with the violations; return those of no field. */
    showProblems(violations) {
      showPreview(null);
      return editor.showProblems(violations);
    },
  };
}

/**
 * Make the editor that has a field for each argument. `read()` returns all arguments as JSON, null if a field is wrong;
 * `showProblems` shows the violations at their fields, and returns those that belong to none.
 */
function fieldsEditor(approval) {
  const form = schemaForm(approval.schema, "approve.arguments", { given: approval.given });
  return {
    element: form.element,
    /** Return all arguments as JSON, with what the person changed; null if a field is wrong. */
    read() {
      const changes = form.changes();
      if (!changes) return null;
      const all = new Map(Object.entries(approval.given));
      for (const [name, value] of changes) {
        if (value === undefined) all.delete(name);
        else all.set(name, value);
      }
      return JSON.stringify(Object.fromEntries(all));
    },
    showProblems: (violations) => form.showProblems(violations),
  };
}

/** Make the editor that has all arguments as JSON, with the same functions; the bridge checks the text. */
function textEditor(approval) {
  const id = uniqueId("arguments");
  const input = h("textarea", { id, rows: 12, class: "code", spellcheck: "false", dir: "ltr", "aria-describedby": `${id}-problem` });
  const problem = h("p", { class: "problem", id: `${id}-problem`, hidden: true });
  input.value = approval.text;
  /** Show a problem at the field; an empty one removes it. */
  function showProblem(text) {
    problem.hidden = !text;
    problem.textContent = text;
    input.setAttribute("aria-invalid", String(Boolean(text)));
    if (text) input.focus();
  }
  return {
    element: h("div", { class: "field" }, h("label", { for: id, text: "Arguments as JSON" }), input, problem),
    /** Return the text, and remove the problem that is shown. */
    read() {
      showProblem("");
      return input.value;
    },
    /** Show the violations of the arguments below the text; return the others. */
    showProblems(violations) {
      const own = violations.filter(([place]) => place.startsWith("approve.arguments"));
      showProblem(own.map(([place, text]) => `${place.slice("approve.arguments".length + 1)}${place.length > "approve.arguments".length ? ": " : ""}${text}`).join("; "));
      return violations.filter((each) => !own.includes(each));
    },
  };
}
