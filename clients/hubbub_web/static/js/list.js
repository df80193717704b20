// Long lists. Rows are all of one height: only those in sight are drawn. Cards have any height, and grow by pages.

import { renderCodeSpans, h, refill, svg } from "./dom.js";
import { areTablesCurrent } from "./store.js";

const PAGE = 200;
// Rows that are drawn above and below those in sight.
const BEYOND = 10;
// Height of a row in pixels until one has been drawn.
const ROW = 52;

const AWAY = ["The hub cannot be reached.", "What there is will be shown here when it is back."];

const lists = new Set();
let scheduled = false;

/**
 * Make a list of rows: `show(records)` sets them. `row(record)` returns the children of an item, a link first; unchanged records are not drawn again.
 * Without records it shows `empty`, or that the hub cannot be reached.
 * `moveFocus(rowCount)` moves the focus from row to row; `select(key)` marks a row; `current()` is the record with the focus.
 */
export function rowList(row, { name, empty }) {
  const list = h("ul", { class: "rows", "aria-label": name });
  const known = h("div", {}, empty);
  const away = h("div", {}, AWAY.map((text) => h("p", { text })));
  const none = h("div", { class: "none", hidden: true }, known, away);
  const element = h("div", {}, list, none);
  const items = new Map();
  let records = [];
  let height = ROW;
  let selected = null;
  let last = null;
  let spot = 0;

  /** Set the records and draw what is in sight; the focus stays at its row, or its place. */
  function show(all) {
    const [focused, was] = [focusedIndex(), indexOf(last ?? selected)];
    const key = focused >= 0 ? recordKey(records[focused]) : null;
    if (was >= 0) spot = was;
    records = all;
    list.hidden = !all.length;
    none.hidden = all.length > 0;
    known.hidden = !areTablesCurrent();
    away.hidden = areTablesCurrent();
    lists.add(draw);
    draw();
    // Where the row with the focus is gone, the keyboard goes on with the one in its place.
    if (key !== null && all.length && indexOf(key) < 0) focusOn(Math.min(focused, all.length - 1));
  }

  /** Draw what is in sight, the row with the focus wherever it is, and the row at the index `also`. Returns whether the list is still on the page. */
  function draw(also = -1) {
    const wanted = rowsInSight();
    for (const at of [focusedIndex(), also]) if (at >= 0) wanted.add(at);
    const nodes = [];
    const drawn = new Set();
    let next = 0;
    for (const at of [...wanted].sort((a, b) => a - b)) {
      if (at > next) nodes.push(rowGap(at - next));
      nodes.push(itemAt(at));
      drawn.add(recordKey(records[at]));
      next = at + 1;
    }
    if (next < records.length) nodes.push(rowGap(records.length - next));
    for (const key of [...items.keys()]) if (!drawn.has(key)) items.delete(key);
    setChildren(list, nodes);
    return element.isConnected;
  }

  /** Return the indexes of the rows in sight, and of some above and below. */
  function rowsInSight() {
    const [first] = items.values();
    height = first?.node.getBoundingClientRect?.().height || height;
    const top = list.getBoundingClientRect?.().top ?? 0;
    const from = Math.max(0, Math.floor(-top / height) - BEYOND);
    const to = Math.min(records.length, Math.ceil(((globalThis.innerHeight ?? 0) - top) / height) + BEYOND);
    const found = new Set();
    for (let at = from; at < to; at += 1) found.add(at);
    return found;
  }

  /** Render the empty space of so many rows that are not drawn. */
  function rowGap(count) {
    return h("li", { "aria-hidden": "true" }, svg("svg", { width: 1, height: count * height }));
  }

  /** Return the element of the row at an index, drawn if its record has changed. */
  function itemAt(at) {
    const record = records[at];
    const key = recordKey(record);
    const item = items.get(key) ?? { node: h("li", { class: "item" }), record: null };
    if (item.record !== record) {
      item.record = record;
      replaceContent(item.node, row(record));
    }
    item.node.setAttribute("aria-posinset", String(at + 1));
    item.node.setAttribute("aria-setsize", String(records.length));
    markSelected(key, item.node);
    items.set(key, item);
    return item.node;
  }

  /** Mark the link of an item as the current one if its key is selected. */
  function markSelected(key, node) {
    if (key === selected) node.firstChild?.setAttribute("aria-current", "true");
    else node.firstChild?.removeAttribute("aria-current");
  }

  /** Return the index of the row with the focus; -1 if none has it. */
  function focusedIndex() {
    if (!list.contains?.(document.activeElement)) return -1;
    for (const [key, { node }] of items) if (node.contains(document.activeElement)) return indexOf(key);
    return -1;
  }

  /** Return the index of the record with a key; -1 for none. */
  function indexOf(key) {
    return key === null ? -1 : records.findIndex((each) => recordKey(each) === key);
  }

  /** Draw the row at an index and focus it. */
  function focusOn(at) {
    draw(at);
    last = recordKey(records[at]);
    spot = at;
    items.get(last).node.firstChild.focus();
  }

  /** Move the focus by so many rows; without a focus, to the row that had it last or its place, or that is selected, or to the first. Returns false for an empty list. */
  function moveFocus(rowCount) {
    const now = focusedIndex();
    const start = indexOf(last ?? selected);
    const to = Math.min(Math.max(now >= 0 ? now + rowCount : start >= 0 ? start : spot, 0), records.length - 1);
    if (to < 0) return false;
    focusOn(to);
    return true;
  }

  return {
    element,
    show,
    moveFocus,
    draw,
    current: () => records[focusedIndex()] ?? null,
    /** Mark the row with this key, which was opened; null marks none. */
    select(key) {
      selected = key;
      last = key ?? last;
      // What was opened is not new any more, although its record is as before.
      if (items.has(key)) items.get(key).record = null;
      for (const [each, { node }] of items) markSelected(each, node);
    },
    /** Draw all rows again, although their records are as before. */
    redrawAll() {
      for (const item of items.values()) item.record = null;
      draw();
    },
  };
}

globalThis.addEventListener?.("scroll", drawSoon, { capture: true, passive: true });
globalThis.addEventListener?.("resize", drawSoon);

/** Draw the lists in the next frame. */
function drawSoon() {
  if (scheduled) return;
  scheduled = true;
  requestAnimationFrame(() => {
    scheduled = false;
    for (const draw of [...lists]) if (!draw()) lists.delete(draw);
  });
}

/** Render a row's link: the title, bold; below it `chips` and more; `right` is the time or the state; `unread` is null where there is nothing to read. */
export function entryLink(href, { title, right = null, chips = [], more = [], unread = null }) {
  return h("a", { class: unread === null ? "card entry" : "card entry dotted", "data-role": "open", href },
    unread === null ? null : h("span", { class: unread ? "dot unread" : "dot" }, unread ? h("span", { class: "unseen", text: "New: " }) : null),
    h("strong", { class: "what", dir: "auto" }, renderCodeSpans(title)),
    h("span", { class: "right" }, right),
    h("span", { class: "meta" }, chips.filter(Boolean).map((text) => h("span", { class: "chip", dir: "auto", text })), more));
}

/** Make a list of cards: `element`, and `show(records)`. `card(record)` renders one; unchanged records are not drawn again. */
export function cardList(card, { name, empty }) {
  const list = h("ul", { class: "cards", "aria-label": name });
  const none = h("p", { class: "none", hidden: true, text: empty });
  const more = h("button", { type: "button", class: "more", hidden: true, on: { click: () => { limit += PAGE; show(records); } } });
  const element = h("div", {}, list, none, more);
  const items = new Map();
  let limit = PAGE;
  let records = [];

  /** Set the records and draw the first of them. */
  function show(all) {
    records = all;
    const shown = all.slice(0, limit);
    const keys = new Set(shown.map(recordKey));
    for (const key of [...items.keys()]) if (!keys.has(key)) items.delete(key);
    setChildren(list, shown.map((record) => itemOf(record).node));
    none.hidden = all.length > 0;
    more.hidden = all.length <= limit;
    more.textContent = `Show more (${(all.length - limit).toLocaleString()} not shown)`;
  }

  /** Return the item of a record, drawn if the record has changed. */
  function itemOf(record) {
    const key = recordKey(record);
    const item = items.get(key) ?? { node: h("li"), record: null };
    if (item.record !== record) {
      item.record = record;
      replaceContent(item.node, [card(record)]);
    }
    items.set(key, item);
    return item;
  }

  return { element, show };
}

/** Make these nodes the children of a parent. What stays in its place is not touched, and keeps the focus. */
function setChildren(parent, nodes) {
  const kept = new Set(nodes);
  for (const child of [...parent.children]) if (!kept.has(child)) child.remove();
  let before = parent.firstChild;
  for (const node of nodes) {
    if (node === before) before = before.nextSibling;
    else parent.insertBefore(node, before);
  }
}

/** Replace the children of a node. A link stays the same element: who has it in focus, or is pressing it, is not disturbed. */
function replaceContent(node, [made, ...others]) {
  const link = node.firstChild;
  const focused = node.contains?.(document.activeElement);
  if (link?.localName !== "a" || made.localName !== "a") return refill(node, made, others);
  for (const { name, value } of made.attributes) link.setAttribute(name, value);
  link.replaceChildren(...made.childNodes);
  for (const other of [...node.children]) if (other !== link) other.remove();
  node.append(...others.filter(Boolean));
  if (focused && !node.contains(document.activeElement)) link.focus({ preventScroll: true });
  return undefined;
}

/** Return the id of a record, or its name. */
function recordKey(record) {
  return record.id ?? record.name;
}

/** Make a search field: `element`, and `matches(...texts)`, whether one of the texts has what is typed. */
export function searchBox(label, changed) {
  const input = h("input", { type: "search", "aria-label": label, placeholder: label, spellcheck: "false", autocomplete: "off", on: { input: changed } });
  return {
    element: input,
    /** Return whether one of the texts has what is typed; true if nothing is. */
    matches: (...texts) => {
      const wanted = input.value.trim().toLowerCase();
      return !wanted || texts.some((text) => text?.toLowerCase().includes(wanted));
    },
  };
}

/** Make a select of one value, with an entry for all: `element`, `value` and `addChoices`. */
export function chooser(label, changed) {
  const select = h("select", { "aria-label": label, on: { change: changed } }, h("option", { value: "", text: label }));
  const known = new Set();
  return {
    element: select,
    get value() { return select.value; },
    /** Add choices; `names` has those whose name is not the value itself. */
    addChoices: (values, names = {}) => {
      for (const value of values) {
        if (!known.has(value)) {
          known.add(value);
          select.append(h("option", { value, text: names[value] ?? value.replaceAll("_", " ") }));
        }
      }
    },
  };
}
