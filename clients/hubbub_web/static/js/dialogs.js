// Small dialogs: is it meant, and which keys there are.

import { uniqueId, h, refill } from "./dom.js";

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
 * Ask the person to confirm an action; return a promise of whether they do. `verb` is the text of the button that confirms; the focus
 * is at the other one. Tab and Enter do not press it: an arrow key leads there, and a letter closes the dialog.
 */
export function confirmAction(dialog, title, explanation, verb, look = "danger") {
  const id = uniqueId("sure");
  return new Promise((done) => {
    let yes = false;
    // It comes first, so that the dialog opens with the focus there.
    const keep = h("button", { type: "button", text: "Keep", on: { click: () => dialog.close() } });
    const go = h("button", { type: "button", class: look, text: verb, tabindex: "-1", on: { click: () => { yes = true; dialog.close(); } } });
    openModal(dialog, id, h("div", {}, h("h2", { id, text: title }), typeof explanation === "string" ? h("p", { text: explanation }) : explanation,
      h("div", { class: "row", on: { keydown: (event) => handleDialogKey(event, dialog, keep, go) } }, keep, go), h("p", { class: "help by-keys" }, "The arrow keys lead from button to button.")));
    keep.focus();
    dialog.addEventListener("close", () => done(yes), { once: true });
  });
}

/** Move between the two buttons with arrow keys; close the dialog at a letter. */
function handleDialogKey(event, dialog, keep, go) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key.startsWith("Arrow")) (event.target === keep ? go : keep).focus();
  else if (event.key.length === 1 && event.key !== " ") dialog.close();
  else return;
  event.preventDefault();
  event.stopPropagation();
}

/** Show the dialog that says which keys do what, and turns them off. */
export function showKeys(dialog) {
  const id = uniqueId("keys");
  const on = h("input", { type: "checkbox", id: `${id}-on`, checked: keysAreOn(), on: { change: () => (on.checked ? localStorage.removeItem(OFF) : localStorage.setItem(OFF, "yes")) } });
  openModal(dialog, id, h("div", {}, h("h2", { id, text: "Keys" }),
    h("dl", { class: "keys" }, KEYS.map(([key, does]) => h("div", {}, h("dt", {}, h("kbd", { text: key })), h("dd", { text: does })))),
    h("div", { class: "check" }, on, h("label", { for: on.id, text: "Use keys of one letter" })),
    h("p", { class: "help", text: "They work in lists, and do nothing where you answer a question." }),
    h("div", { class: "row" }, h("button", { type: "button", text: "Close", on: { click: () => dialog.close() } }))));
}

/** Open a dialog with this content; `id` is that of its title. */
function openModal(dialog, id, content) {
  refill(dialog, content);
  dialog.setAttribute("aria-labelledby", id);
  dialog.oncancel = null;
  dialog.showModal();
}
