// A list that grows by pages and changes in place: the cost depends on the visible records, not on all of them.

import { h } from "./dom.js";

const PAGE = 200;

/** A list of cards. `card(record)` renders one; unchanged records are not drawn again. */
export function cards(card, { name, empty }) {
  const list = h("ul", { class: "cards", "aria-label": name });
  const none = h("p", { class: "none", hidden: true, text: empty });
  const more = h("button", { type: "button", class: "more", hidden: true, on: { click: () => { limit += PAGE; show(records); } } });
  const element = h("div", {}, list, none, more);
  const items = new Map();
  let limit = PAGE;
  let records = [];

  function show(all) {
    records = all;
    const shown = all.slice(0, limit);
    const keys = new Set(shown.map(keyOf));
    for (const [key, item] of items) {
      if (!keys.has(key)) {
        item.node.remove();
        items.delete(key);
      }
    }
    let before = list.firstChild;
    for (const record of shown) {
      const node = itemOf(record).node;
      if (node === before) before = before.nextSibling;
      else list.insertBefore(node, before);
    }
    none.hidden = all.length > 0;
    more.hidden = all.length <= limit;
    more.textContent = `Show more (${(all.length - limit).toLocaleString()} not shown)`;
  }

  function itemOf(record) {
    const key = keyOf(record);
    const item = items.get(key) ?? { node: h("li"), record: null };
    if (item.record !== record) {
      item.record = record;
      renew(item.node, card(record));
    }
    items.set(key, item);
    return item;
  }

  return { element, show };
}

/** Puts a card in the place of the one before. A link stays the same element: whoever has it in focus, or is pressing it, goes on. */
function renew(node, made) {
  const link = node.firstChild;
  if (link?.localName !== "a" || made.localName !== "a") return node.replaceChildren(made);
  for (const { name, value } of made.attributes) link.setAttribute(name, value);
  return link.replaceChildren(...made.childNodes);
}

function keyOf(record) {
  return record.id ?? record.name;
}

/** A search field, and the predicate for matching records. */
export function searchBox(label, changed) {
  const input = h("input", { type: "search", "aria-label": label, placeholder: label, spellcheck: "false", autocomplete: "off", on: { input: changed } });
  return {
    element: input,
    matches: (...texts) => {
      const wanted = input.value.trim().toLowerCase();
      return !wanted || texts.some((text) => text?.toLowerCase().includes(wanted));
    },
  };
}

/** A choice of one value, with an entry for all. */
export function chooser(label, changed) {
  const select = h("select", { "aria-label": label, on: { change: changed } }, h("option", { value: "", text: label }));
  const known = new Set();
  return {
    element: select,
    get value() { return select.value; },
    offer: (values) => {
      for (const value of values) {
        if (!known.has(value)) {
          known.add(value);
          select.append(h("option", { value, text: value.replaceAll("_", " ") }));
        }
      }
    },
  };
}
