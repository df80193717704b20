// Keys. Those of one letter work in lists alone: not where a question is answered, whatever is typed there, and not in a
// field (WCAG 2.1, 2.1.4). No key answers a question; "e" in a list asks first, and its dialog begins at "Keep".

import { keysAreOn, showKeys } from "./dialogs.js";

/** Listen to keys; `to` returns the list to move in and the inbox to decline in, null where there is none. */
export function listen(to) {
  const does = {
    j: () => to.list()?.step(1),
    k: () => to.list()?.step(-1),
    x: () => to.inbox()?.pickCurrent(),
    e: () => to.inbox()?.declineThose(),
    "/": () => to.list() && to.search()?.focus(),
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

/** Return whether Escape clears this field. */
function isSearch(element) {
  return element.matches("input[type=search]") && element.value !== "";
}

function isField(element) {
  return element.isContentEditable || (element.matches("input, select, textarea") && !element.classList.contains("pick"));
}
