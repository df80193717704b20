// Keys that do something anywhere on the page. None does anything while somebody types in a field.

import { keysAreOn, showKeys } from "./dialogs.js";

/** Listen to keys; `to` says what is there at the moment to be moved in, searched or declined. */
export function listen(to) {
  const does = {
    j: () => to.list()?.step(1),
    k: () => to.list()?.step(-1),
    x: () => to.inbox()?.pickCurrent(),
    e: () => decline(to),
    "/": () => to.search()?.focus(),
    "?": () => showKeys(to.dialog),
  };
  document.addEventListener("keydown", (event) => {
    if (to.dialog.open || event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") return isSearch(event.target) ? undefined : to.back();
    if (isField(event.target)) return undefined;
    if (event.key === "Enter") return open(to, event);
    // "?" must work always: it is where the keys are turned on.
    if (!Object.hasOwn(does, event.key) || !(keysAreOn() || event.key === "?")) return undefined;
    event.preventDefault();
    return does[event.key]();
  });
}

/** Enter where nothing has the focus opens the row that had it last, or the first. */
function open(to, event) {
  const at = document.activeElement;
  if (at !== document.body && at?.id !== "main") return;
  if (!to.list()?.step(0)) return;
  event.preventDefault();
  document.activeElement.click();
}

function decline(to) {
  const inbox = to.inbox();
  return inbox?.picked.size || inbox?.list.current() ? inbox.declineThose() : to.decline();
}

/** Return whether Escape clears this field. */
function isSearch(element) {
  return element.matches("input[type=search]") && element.value !== "";
}

function isField(element) {
  return element.isContentEditable || (element.matches("input, select, textarea") && !element.classList.contains("pick"));
}
