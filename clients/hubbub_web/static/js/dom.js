// Elements without markup: text of servers becomes text, and only attributes of an allowlist are set.

const SVG = "http://www.w3.org/2000/svg";
const ATTRIBUTES = new Set([
  "alt", "autocomplete", "checked", "class", "cols", "controls", "cx", "cy", "d", "datetime", "dir", "disabled", "fill", "for", "height",
  "hidden", "href", "id", "inputmode", "list", "max", "min", "name", "open", "placeholder", "preserveAspectRatio", "preload", "r", "rel",
  "required", "role", "rows", "selected", "spellcheck", "src", "stroke", "stroke-width", "stroke-linecap", "stroke-linejoin", "tabindex",
  "target", "type", "value", "viewBox", "width", "x", "y", "rx", "title", "scope", "size",
]);
const LONG = 20000;
// A text of up to this length fits into each box, on each screen.
const SCROLLED = 300;
// Characters that are never shown, as in hubbub_shared/legible.py; a test compares the two for every character.
const HIDDEN = [
  "\\0-\\x08\\x0b-\\x1f\\x7f-\\x9f", // control
  "\\u2028\\u2029", // line break
  "\\u061c\\u200e\\u200f\\u202a-\\u202e\\u2066-\\u2069", // direction
  "\\xad\\u034f\\u180e\\u200b\\u2060-\\u2065\\u206a-\\u206f\\ufeff\\ufff0-\\ufffb\\u{13430}-\\u{13440}\\u{1bca0}-\\u{1bca3}\\u{1d173}-\\u{1d17a}", // invisible
  "\\u115f\\u1160\\u17b4\\u17b5\\u2800\\u3164\\uffa0\\u{1d159}", // blank
  "\\ufe00-\\ufe0d\\u{e0000}-\\u{e0fff}", // hidden text
  "\\ud800-\\udfff", // half
].join("");
const SPAN = /`{1,9}([^`]+)`{1,9}/;
// Joiners and selectors are hidden only where they are out of place.
const JOINERS = "\\u200c\\u200d";
const SELECTORS = "\\u180b-\\u180d\\u180f\\ufe0e\\ufe0f";
// eslint-disable-next-line no-misleading-character-class -- each character of a class is meant by itself
const UNSEEN = new RegExp(`[${HIDDEN}${JOINERS}${SELECTORS}](?:(?<=[${HIDDEN}])`
  + `|(?<=[${JOINERS}])(?<![^\\0-\\x7f${JOINERS}][${JOINERS}])`
  + `|(?<=[${SELECTORS}])(?<![^\\0-"$-)+-/:-\\x7f${JOINERS}${SELECTORS}][${SELECTORS}]))`, "gu");

/** Create an HTML element, as in hyperscript: `on` are listeners, `text` is its content, `aria-*` and `data-*` are set as given; strings among the children become text. */
export function h(tag, props = {}, ...children) {
  return fill(document.createElement(tag), props, children);
}

/** Create an SVG element, from the same arguments as `h`. */
export function svg(tag, props = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

/** Set the attributes, listeners and text of an element, append its children, and return it. */
function fill(element, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "on") for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    else if (name === "text") element.textContent = clean(value);
    else setAttribute(element, name, value);
  }
  append(element, ...children);
  return element;
}

/** Set an attribute. Throws for one that is not allowed, and for an address that the page may not use. */
function setAttribute(element, name, value) {
  if (!ATTRIBUTES.has(name) && !name.startsWith("aria-") && !name.startsWith("data-")) throw new Error(`attribute ${name}`);
  if (name === "href" && !String(value).startsWith("#/") && !isWebUrl(value)) throw new Error("not a page to visit");
  if (name === "src" && !/^(blob:|\/static\/)/.test(value)) throw new Error("not a source of ours");
  element.setAttribute(name, value === true ? "" : String(value));
}

/** Append children to an element and return it; strings become text, null and false are skipped. */
export function append(element, ...children) {
  for (const child of children.flat(3)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : clean(child));
  }
  return element;
}

/** Replace the children of an element, and return it. */
export function refill(element, ...children) {
  element.replaceChildren();
  return append(element, ...children);
}

/** Return a text as it may be shown: each invisible character is replaced by its number, `[U+202E]`, so that none can change the direction of a line. */
export function clean(value) {
  return String(value).replaceAll("\r\n", "\n").replace(UNSEEN, (found) => `[U+${found.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}]`);
}

/** Return whether this is an absolute http or https URL. */
export function isWebUrl(value) {
  try {
    return ["http:", "https:"].includes(new URL(String(value)).protocol);
  } catch {
    return false;
  }
}

/** Return the children for a line of text: what is between backticks becomes `code` elements. */
export function renderCodeSpans(value) {
  return clean(value).split(SPAN).map((part, at) => (at % 2 ? h("code", { class: "name", text: part }) : part));
}

/** Render text of a server in its own reading direction; of a very long text the beginning, and a button for more, each time ten times as much. `render(part)` returns the children for a part. */
export function textBlock(value, props = {}, render = (part) => part) {
  const text = String(value ?? "");
  const box = h("div", { dir: "auto", ...props, class: `words ${props.class ?? ""}` });
  let shown = 0;
  let size = LONG;
  const more = h("button", { type: "button", class: "plain", on: { click: showMore } });
  /** Append the next part of the text, and the button if some of it is left. */
  function showMore() {
    const part = text.slice(shown, shown + size);
    size *= 10;
    shown += part.length;
    more.remove();
    append(box, render(part));
    if (shown < text.length) {
      more.textContent = `Show more (${(text.length - shown).toLocaleString()} characters left)`;
      box.append(more);
    }
  }
  showMore();
  return box;
}

/** Return the attributes that make a box of bounded height scrollable by keys; none if its text is short. */
export function scrollAttributes(text, label) {
  return String(text ?? "").length > SCROLLED ? { tabindex: "0", role: "group", "aria-label": label } : {};
}

/** Render text of several lines as code, in a box that can be scrolled. */
export function codeBlock(text, label) {
  return textBlock(text, { class: "code", tabindex: "0", role: "group", "aria-label": clean(label), dir: "ltr" });
}

/** Render a value as indented JSON, in a box that can be scrolled. */
export function jsonBlock(value, label) {
  return codeBlock(JSON.stringify(value, null, 2) ?? "", label);
}

/** Render pairs of name and value as a list, without those whose value is empty. */
export function factList(...pairs) {
  const list = h("dl", { class: "facts" });
  for (const [name, value] of pairs) {
    if (value === null || value === undefined || value === "") continue;
    list.append(h("div", {}, h("dt", { text: name }), h("dd", {}, value)));
  }
  return list;
}

/** Render a warning for a record that cannot be shown whole; null for a whole one. */
export function defectWarning(record) {
  return record.defect ? h("p", { class: "warning", dir: "auto", text: `Not all of this can be shown: ${record.defect}` }) : null;
}

/** Render the mark "not whole" for such a record in a list; null for a whole one. */
export function defectPill(record) {
  return record.defect ? h("span", { class: "pill bad", title: record.defect, text: "not whole" }) : null;
}

/** Render the name of a state as a small label in its colour. */
export function pill(state, text = PILL_WORDS[state] ?? state) {
  return h("span", { class: `pill ${PILLS[state] ?? ""}`, text: String(text).replaceAll("_", " ") });
}

const PILLS = {
  open: "waits", waiting_input: "waits", input_required: "waits", pending: "waits", connecting: "waits", disconnecting: "waits",
  late: "waits", ask: "waits", allow: "good", deny: "bad", "perhaps waiting": "waits", gave_up: "bad",
  declined: "bad", refused: "bad", denied: "bad", approved: "good", "tool error": "bad",
  answered: "good", completed: "good", connected: "good", delivered: "good", fresh: "good",
  error: "bad", failed: "bad", expired: "bad", in_progress: "busy", working: "busy",
};

const PILL_WORDS = { waiting_input: "waiting for a person", input_required: "needs input", "perhaps waiting": "perhaps waiting for a person" };

const ICONS = {
  inbox: "M3 13h5l1.500 3h5L16 13h5M3 13l3-8h12l3 8v6H3z",
  calls: "M4 7h13m-4-4 4 4-4 4M20 17H7m4-4-4 4 4 4",
  servers: "M4 4h16v6H4zM4 14h16v6H4zM8 7h.01M8 17h.01",
  tasks: "M4 6l1.500 1.500L8 5M4 12l1.500 1.500L8 11M4 18l1.500 1.500L8 17M12 6h8M12 12h8M12 18h8",
  catalog: "M5 4h5v7H5zM14 4h5v7h-5zM5 15h5v5H5zM14 15h5v5h-5z",
  agents: "M5 8h14v10H5zM12 4v4M9 12v1.500M15 12v1.500M2.500 12v3M21.500 12v3",
  hosts: "M4 5h16v11H4zM9 20h6M12 16v4",
  events: "M3 12h4l3-7 4 14 3-7h4",
  more: "M4.500 12h1M11.500 12h1M18.500 12h1",
  approvals: "M12 3l7 3v5c0 4.500-3 8-7 10-4-2-7-5.500-7-10V6zM9 12l2 2 4-4",
  history: "M12 7v5l3 2M4 12a8 8 0 1 0 2.500-5.800M4 4v4h4",
};

/** Render a small decorative picture. */
export function icon(name) {
  return svg("svg", { class: "icon", viewBox: "0 0 24 24", width: 20, height: 20, "aria-hidden": "true", fill: "none", stroke: "currentColor",
    "stroke-width": 1.8, "stroke-linecap": "round", "stroke-linejoin": "round" }, svg("path", { d: ICONS[name] }));
}

let numbers = 0;

/** Return an id that no other element has; it begins with `name`. */
export function uniqueId(name) {
  numbers += 1;
  return `${name}-${numbers}`;
}
