// Keys. Those of one letter work in lists alone: not where a question is answered, whatever is typed there, and not in a
// field (WCAG 2.1, 2.1.4). No key answers a question; "e" in a list asks first, and its dialog begins at "Keep".

import { keysAreOn, showKeys } from "./dialogs.js";

/** Act on keys from now on. `targets` returns the list to move in and the inbox to decline in, null where there is none. */
export function listenToKeys(targets) {
  const does = {
    j: () => targets.list()?.moveFocus(1),
    k: () => targets.list()?.moveFocus(-1),
    x: () => targets.inbox()?.pickCurrent(),
    e: () => targets.inbox()?.declinePicked(),
    "/": () => targets.list() && targets.search()?.focus(),
    "?": () => showKeys(targets.dialog),
  };
  document.addEventListener("keydown", (event) => {
    if (targets.dialog.open || event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") return isFilledSearch(event.target) ? undefined : targets.back();
    if (isField(event.target)) return undefined;
    if (event.key === "Enter") return openRow(targets, event);
    // "?" must work always: it is where the keys are turned on.
    if (!Object.hasOwn(does, event.key) || !(keysAreOn() || event.key === "?")) return undefined;
    event.preventDefault();
    return does[event.key]();
  });
}

/** For Enter where nothing has the focus: open the row that had it last, or the first. */
function openRow(targets, event) {
  const at = document.activeElement;
  if (at !== document.body && at?.id !== "main") return;
  if (!targets.list()?.moveFocus(0)) return;
  event.preventDefault();
  document.activeElement.click();
}

/** Return whether an element is a search field with text, which Escape clears. */
function isFilledSearch(element) {
  return element.matches("input[type=search]") && element.value !== "";
}

/** Return whether people type into an element, so that its keys are not for the page. */
function isField(element) {
  return element.isContentEditable || (element.matches("input, select, textarea") && !element.classList.contains("pick"));
}
