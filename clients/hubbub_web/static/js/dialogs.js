// Small dialogs: is it meant, and which keys there are.

import { fresh, h, refill } from "./dom.js";

const KEYS = [
  ["j", "Next row"], ["k", "Row before"], ["Enter", "Open it"], ["x", "Select it"], ["e", "Decline it, or what is selected"],
  ["/", "Search"], ["Esc", "Back to the inbox"], ["Ctrl Enter", "Send the form"], ["?", "These keys"],
];

const OFF = "hubbub-keys-off";

/** Return whether keys of one letter do something; people who dictate turn them off. */
export function keysAreOn() {
  return localStorage.getItem(OFF) === null;
}

/**
 * Ask whether something is meant, `told` in paragraphs; `verb` names the button that says so. The focus is at the other one. What
 * is typed on, with Tab and Enter, does not press it: an arrow key leads there, and a letter closes the dialog.
 */
export function sure(dialog, title, told, verb, look = "danger") {
  const id = fresh("sure");
  return new Promise((done) => {
    let yes = false;
    // It comes first, so that the dialog opens with the focus there.
    const keep = h("button", { type: "button", text: "Keep", on: { click: () => dialog.close() } });
    const go = h("button", { type: "button", class: look, text: verb, tabindex: "-1", on: { click: () => { yes = true; dialog.close(); } } });
    open(dialog, id, h("div", {}, h("h2", { id, text: title }), typeof told === "string" ? h("p", { text: told }) : told,
      h("div", { class: "row", on: { keydown: (event) => choose(event, dialog, keep, go) } }, keep, go), h("p", { class: "help by-keys" }, "The arrow keys lead from button to button.")));
    keep.focus();
    dialog.addEventListener("close", () => done(yes), { once: true });
  });
}

function choose(event, dialog, keep, go) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key.startsWith("Arrow")) (event.target === keep ? go : keep).focus();
  else if (event.key.length === 1 && event.key !== " ") dialog.close();
  else return;
  event.preventDefault();
  event.stopPropagation();
}

/** Show which keys do what. */
export function showKeys(dialog) {
  const id = fresh("keys");
  const on = h("input", { type: "checkbox", id: `${id}-on`, checked: keysAreOn(), on: { change: () => (on.checked ? localStorage.removeItem(OFF) : localStorage.setItem(OFF, "yes")) } });
  open(dialog, id, h("div", {}, h("h2", { id, text: "Keys" }),
    h("dl", { class: "keys" }, KEYS.map(([key, does]) => h("div", {}, h("dt", {}, h("kbd", { text: key })), h("dd", { text: does })))),
    h("div", { class: "check" }, on, h("label", { for: on.id, text: "Use keys of one letter" })),
    h("p", { class: "help", text: "They work in lists, and do nothing where you answer a question." }),
    h("div", { class: "row" }, h("button", { type: "button", text: "Close", on: { click: () => dialog.close() } }))));
}

function open(dialog, id, content) {
  refill(dialog, content);
  dialog.setAttribute("aria-labelledby", id);
  dialog.oncancel = null;
  dialog.showModal();
}
