// One-time links: what is in the address, and what to say when one lets nobody in.

import { Refused } from "./api.js";

const LINK = /(?:^|#login=)([\w-]+)(?:&to=(inbox|request\/[\w-]{1,64}))?$/;

/** Return the secret of a one-time link, or of the end of one, and the place that it leads to. The secret is empty if it is no link. */
export function parseLoginLink(text) {
  const [, secret, to] = LINK.exec(text) ?? [];
  return { secret: secret ?? "", to: to ?? "inbox" };
}

/** Return in words why a link lets nobody in. */
export function linkProblem(error) {
  if (!(error instanceof Refused)) return "The bridge cannot be reached.";
  const words = {
    LINK_EXPIRED: "This link has expired. Open the page where you are logged in, or get another link.",
    LINK_SETTLED: "The question of this link does not wait any more, so the link lets nobody in.",
    LINK_USED: "This link has been used, or is from before the bridge was started again.",
  };
  return words[error.reason] ?? `${error.message[0].toUpperCase()}${error.message.slice(1)}.`;
}
