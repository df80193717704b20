// Which calls caused a pending request, as links and in words.

import { h } from "./dom.js";
import { callName } from "./store.js";

/** A link to a call. */
export function callLink(id) {
  return h("a", { href: `#/call/${encodeURIComponent(id)}`, text: callName(id) });
}

// Candidates that are named.
const NAMED = 8;

/** Links to the calls of which one caused a pending request; null if there are none. A last one that is left is not certain either. */
export function candidates(it) {
  const ids = it.candidate_call_ids ?? [];
  if (!ids.length) return null;
  const named = ids.slice(0, NAMED).map((id, at) => [at ? ", " : "", callLink(id)]);
  return h("span", {}, ids.length === 1 ? null : "one of ", named, ids.length > NAMED ? ` and ${ids.length - NAMED} more` : "");
}

/** What caused a pending request, for a list, in words. */
export function causeInWords(it) {
  if (it.call_id) return `because of ${callName(it.call_id)}`;
  const ids = it.candidate_call_ids ?? [];
  if (!ids.length) return "";
  return `${ids.length === 1 ? "perhaps because of " : "because of one of "}${ids.slice(0, NAMED).map(callName).join(", ")}${ids.length > NAMED ? ` and ${ids.length - NAMED} more` : ""}`;
}
