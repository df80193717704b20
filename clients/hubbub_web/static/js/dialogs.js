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

/** Ask whether something is meant, `told` in paragraphs; `verb` names the button that says so. The focus is at the other one. */
export function sure(dialog, title, told, verb, look = "danger") {
  const id = fresh("sure");
  return new Promise((done) => {
    let yes = false;
    // It comes first, so that the dialog opens with the focus there.
    const keep = h("button", { type: "button", text: "Keep", on: { click: () => dialog.close() } });
    const go = h("button", { type: "button", class: look, text: verb, on: { click: () => { yes = true; dialog.close(); } } });
    open(dialog, id, h("div", {}, h("h2", { id, text: title }), typeof told === "string" ? h("p", { text: told }) : told,
      h("div", { class: "row" }, keep, go)));
    keep.focus();
    dialog.addEventListener("close", () => done(yes), { once: true });
  });
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
