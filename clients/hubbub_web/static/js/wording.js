// Approvals in words, as far as not all frontends share them (hubbub_frontend/display/approvals.py).

const SPANS = [[86400, "day"], [3600, "hour"], [60, "minute"], [1, "second"]];
const NUMBERS = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"];

export const CHANGED = "The arguments have changed meanwhile: look at them again.";
export const CLOSED = "What you had begun was closed.";
export const WITHDRAWN = "The call does not wait any more";
export const WAIT = "What is shown has just changed: look again, then press.";
export const EXPIRED = "Nobody has said yes, so the call was not made.";

/** What a rule does with a call. */
export const ACTIONS = { allow: "is sent", ask: "is asked about", deny: "is refused" };

/** Return a number in words, as far as people write it so. */
export function numberInWords(count) {
  return NUMBERS[count] ?? String(count);
}

/** Return a length of time in one unit: `1 hour`, `90 minutes`. */
export function durationInWords(seconds) {
  const [size, unit] = SPANS.find(([each]) => seconds % each === 0) ?? SPANS.at(-1);
  const count = seconds / size;
  return `${count} ${unit}${count === 1 ? "" : "s"}`;
}

/** Return names as people list them: `Ada`, `Ada and Ben`. */
function joinNames(all) {
  return all.length < 2 ? all.join("") : `${all.slice(0, -1).join(", ")} and ${all.at(-1)}`;
}

/** Return whose approval counts by a rule. */
export function approversInWords(approvers) {
  return joinNames(approvers.map((each) => each.replace(/^oidc-role:/, "those with the role "))) || "everyone with the permission to approve";
}

/** Return why this person cannot approve a call. */
export function obstacleText(obstacle, approval) {
  return {
    permission: `You may see this, but not approve it: that takes the permission to approve calls of ${approval.server}.`,
    caller: "You have made this call, and the rule wants somebody else to approve it.",
    approver: "The rule names others who may approve this.",
    again: `You have said yes. ${morePeople(missingApprovals(approval))} to say yes too.`,
  }[obstacle] ?? obstacle;
}

/** Return what pressing Approve does: sends the call, or adds one approval of several. */
export function approveEffect(approval) {
  const missing = missingApprovals(approval) - 1;
  return missing ? `Approve does not send it yet: ${morePeople(missing).toLowerCase()} to say yes too.` : `Approve sends exactly this call to ${approval.server}, once.`;
}

/** Return what changing the arguments does to the approvals so far. */
export function changeEffect({ needed }) {
  return needed > 1 ? `${capitalize(numberInWords(needed))} people have to say yes to the changed arguments; you are the first.` : "What is different is shown before anything is sent.";
}

/** Return what remembering an approval means. */
export function rememberHelp({ needed }) {
  return `${needed > 1 ? "It is remembered if all who approve say so. " : ""}If the tool's definition changes, it is asked again. You can revoke it on the page Approvals.`;
}

/** Return what it means to accept what a host suggests. */
export function suggestionHelp({ needed }) {
  return `${needed > 1 ? "What all who approve have ticked counts. " : ""}The host suggests this, and keeps to it by itself: the hub is not asked any more.`;
}

/** Return who approved or denied a call, as a heading; `ours` if this page sent the answer. */
export function approvalVerdict(request, ours) {
  if (request.answer?.action === "deny") return `${ours ? "You have" : `${request.answered_by ?? "somebody"} has`} denied it`;
  const by = request.answer?.by ?? [request.answered_by ?? "somebody"];
  return ours && by.length === 1 ? "You have approved it" : `${joinNames(by)} ${by.length === 1 ? "has" : "have"} approved it`;
}

/** Return how many approvals a call still needs, at least 1. */
function missingApprovals({ needed, approvals }) {
  return Math.max(1, needed - approvals.length);
}

/** Return that so many more people have to do something, as the beginning of a sentence. */
function morePeople(count) {
  return count === 1 ? "One more person has" : `${capitalize(numberInWords(count))} more people have`;
}

/** Return a text with a capital letter at the beginning. */
function capitalize(text) {
  return text[0].toUpperCase() + text.slice(1);
}
