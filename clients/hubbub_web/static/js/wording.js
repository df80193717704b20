// Approvals in words.

const SPANS = [[86400, "day"], [3600, "hour"], [60, "minute"], [1, "second"]];
const NUMBERS = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"];
const ROLE = "oidc-role:";

export const CHANGED = "The arguments have changed meanwhile: look at them again.";
export const WAIT = "What is shown has just changed: look again, then press.";
export const CLOSED = "What you had begun was closed.";
export const WITHDRAWN = "The call does not wait any more";
export const EXPIRED = "Nobody has said yes, so the call was not made.";

/** What a rule does with a call. */
export const ACTIONS = { allow: "is sent", ask: "is asked about", deny: "is refused" };

/** Return a number in words, as far as people write it so. */
export function number(count) {
  return NUMBERS[count] ?? String(count);
}

/** Return how long an approval is remembered: `1 hour`, `90 minutes`. */
export function lasting(seconds) {
  const [size, unit] = SPANS.find(([each]) => seconds >= each && seconds % each === 0) ?? SPANS.at(-1);
  const count = seconds / size;
  return `${count} ${unit}${count === 1 ? "" : "s"}`;
}

/** Return what a tool is said to do, as pairs of words and look: claims of its server. */
export function hints(annotations) {
  const { readOnlyHint: reads, destructiveHint: destroys, idempotentHint: same, openWorldHint: open } = annotations ?? {};
  const found = [];
  if (destroys === true) found.push(["destructive", "bad"]);
  if (reads === true) found.push(["only reads", destroys === true ? "waits" : "good"]);
  else if (destroys === false) found.push(["writes, destroys nothing", "waits"]);
  else if (destroys !== true) found.push(["may change things", "waits"]);
  if (open === true) found.push(["reaches the outside world", "waits"]);
  if (same === true && reads !== true) found.push(["twice is as once", ""]);
  return found;
}

/** Return names as a list that people read: `Ada`, `Ada and Ben`. */
export function names(all) {
  return all.length < 2 ? all.join("") : `${all.slice(0, -1).join(", ")} and ${all.at(-1)}`;
}

/** Return how many have to approve, and who has. */
export function progress({ rule, approvals }) {
  const by = approvals.map((each) => each.by);
  if (rule.needed < 2 && !by.length) return "";
  const needs = `Needs ${number(rule.needed)} ${rule.needed === 1 ? "person" : "people"}`;
  return `${needs}; ${by.length ? `${names(by)} ${by.length === 1 ? "has" : "have"} said yes` : "nobody has said yes yet"}.`;
}

/** Return whose approval counts. */
export function whoCounts(approvers) {
  const people = approvers.filter((each) => !each.startsWith(ROLE));
  const roles = approvers.filter((each) => each.startsWith(ROLE)).map((each) => `whoever has the role ${each.slice(ROLE.length)}`);
  return names([...people, ...roles]) || "everybody with the permission to approve";
}

/** Return who may approve a call. */
export function whoMay({ approvers, not_by_caller: others }, server) {
  return `May approve: ${whoCounts(approvers)}${approvers.length ? "" : ` calls of ${server}`}${others ? ", but not who made the call" : ""}.`;
}

/** Return why somebody cannot approve a call. */
export function obstacle(which, asked, server) {
  return {
    permission: `You may see this, but not approve it: that takes the permission to approve calls of ${server}.`,
    caller: "You have made this call, and the rule wants somebody else to approve it.",
    approver: "The rule names others who may approve this.",
    again: `You have said yes. ${left(asked) === 1 ? "One more person has" : `${capital(number(left(asked)))} more people have`} to.`,
  }[which] ?? which;
}

/** Return how many have still to approve. */
export function left({ rule, approvals }) {
  return Math.max(1, rule.needed - approvals.length);
}

/** Return what comes of a yes and of a no. */
export function consequence(asked, server) {
  const others = left(asked) - 1;
  const yes = others ? `Your yes does not send it yet: ${number(others)} more ${others === 1 ? "person has" : "people have"} to approve.`
    : `Approve sends exactly this call to ${server}, once.`;
  return `${yes} Deny tells ${asked.caller.name || "the caller"} no, and nothing is sent.`;
}

/** Return what an approval or a denial was, for a heading. */
export function verdict(it, ours) {
  const by = it.answer?.by ?? [it.answered_by ?? "somebody"];
  const who = ours && by.length === 1 ? "You have" : `${names(by)} ${by.length === 1 ? "has" : "have"}`;
  return it.answer?.action === "deny" ? `${ours ? "You have" : `${it.answered_by ?? "somebody"} has`} denied it` : `${who} approved it`;
}

function capital(text) {
  return text[0].toUpperCase() + text.slice(1);
}
