// Which calls caused a pending request, as links and in words.

import { h } from "./dom.js";
import { callName } from "./store.js";

/** Render a link to a call. */
export function callLink(id) {
  return h("a", { href: `#/call/${encodeURIComponent(id)}`, text: callName(id) });
}

// Candidates that are named.
const NAMED = 8;

/** Render links to the calls of which one caused a pending request; null if there are none. A single one is not certain either. */
export function candidateLinks(request) {
  const ids = request.candidate_call_ids ?? [];
  if (!ids.length) return null;
  const named = ids.slice(0, NAMED).map((id, at) => [at ? ", " : "", callLink(id)]);
  return h("span", {}, ids.length === 1 ? null : "one of ", named, ids.length > NAMED ? ` and ${ids.length - NAMED} more` : "");
}

/** Return what caused a pending request, for a list, in words; empty if that is unknown. */
export function causeInWords(request) {
  if (request.call_id) return `because of ${callName(request.call_id)}`;
  const ids = request.candidate_call_ids ?? [];
  if (!ids.length) return "";
  return `${ids.length === 1 ? "perhaps because of " : "because of one of "}${ids.slice(0, NAMED).map(callName).join(", ")}${ids.length > NAMED ? ` and ${ids.length - NAMED} more` : ""}`;
}
