// The state of a claim, as far as this page knows. Only a response of the hub counts.
//
//   unknown     nothing was heard yet, or not lately; answering is allowed
//   mine        this page holds the claim
//   theirs      somebody else holds it, as the hub has said
//   elsewhere   the same person holds it in another window or program, as the hub has said
//   over        the pending request is not open any more
//   gone        the page has been left; a claim that still arrives is released

export const RENEW_MS = 20000;
export const AGAIN_MS = 1000;

const ASK = "ask"; // claim it, now
const AGAIN = "again"; // claim it after AGAIN_MS
const TAKE = "take"; // claim it, from another window of the same person too
const RELEASE = "release"; // give it back

// granted, refused, own: responses of the hub. silent: no response came. other: refused for a reason other than a claim.
// news: the claim has changed. back: bridge or hub can be reached again. tick: RENEW_MS have passed. wanted: the person
// takes it over. closed: the pending request is not open any more. left: the page is being left.
const TABLE = {
  unknown: { granted: ["mine"], refused: ["theirs"], own: ["elsewhere"], silent: ["unknown", AGAIN], other: ["unknown"], back: ["unknown", ASK],
    tick: ["unknown", ASK], closed: ["over"], left: ["gone", RELEASE] },
  mine: { granted: ["mine"], refused: ["theirs"], own: ["elsewhere"], silent: ["unknown", AGAIN], other: ["unknown"], news: ["mine", ASK], back: ["mine", ASK],
    tick: ["mine", ASK], closed: ["over"], left: ["gone", RELEASE] },
  theirs: { granted: ["mine"], refused: ["theirs"], own: ["elsewhere"], silent: ["theirs", AGAIN], other: ["unknown"], news: ["theirs", ASK], back: ["theirs", ASK],
    tick: ["theirs", ASK], closed: ["over"], left: ["gone"] },
  elsewhere: { granted: ["mine"], refused: ["theirs"], own: ["elsewhere"], silent: ["elsewhere", AGAIN], other: ["unknown"], news: ["elsewhere", ASK],
    back: ["elsewhere", ASK], tick: ["elsewhere", ASK], wanted: ["elsewhere", TAKE], closed: ["over"], left: ["gone"] },
  over: { left: ["gone"] },
  gone: { granted: ["gone", RELEASE], silent: ["gone", RELEASE] },
};

/** Return the next state and the effect (ASK, AGAIN, TAKE, RELEASE or null) of an event. An event that means nothing in a state changes nothing. */
export function transition(state, event) {
  const [next, effect = null] = TABLE[state][event] ?? [state];
  return { state: next, effect };
}

/** Return whether an answer would be refused: the hub has said that somebody else, or another window, holds the claim. */
export function blocksAnswer(state) {
  return state === "theirs" || state === "elsewhere";
}

/** Return whether the claim may have changed, by its entries `before` and `now` in the lists; `held` is what the hub returned to this page. */
export function mayHaveChanged(state, held, before, now) {
  if (state !== "mine" || !now) return before?.by !== now?.by;
  // Lists show the page's own claim after it was made, and after each renewal.
  return now.by !== held.by || Date.parse(now.expires_at) > Date.parse(held.expires_at);
}

/** Return the event of a response to a claim; `refusal` is the error that was thrown, null if it was granted. */
export function responseEvent(refusal) {
  if (!refusal) return "granted";
  if (refusal.metadata?.claimed_by) return refusal.metadata.own ? "own" : "refused";
  return refusal.status >= 400 && refusal.status < 500 ? "other" : "silent";
}

/** The claim of one page: makes, renews and releases it. `ask(takeOver)` and `release()` call the bridge; `changed(state)` is called after each event. */
export class Claiming {
  constructor(ask, release, changed) {
    this.ask = ask;
    this.release = release;
    this.changed = changed;
    this.state = "unknown";
    this.by = null;
    this.held = null;
    this.listed = null;
    this.asking = false;
    this.wanted = null;
    this.timers = new Set();
  }

  /** Claim the request, and renew the claim from now on; `listed` is the claim in the lists. */
  start(listed) {
    this.listed = listed ?? null;
    this.ticking = setInterval(() => this.handle("tick"), RENEW_MS);
    this.perform(ASK);
  }

  /** Compare the claim in the lists with the one before; if it may have changed, ask the hub. */
  onListed(claim) {
    const before = this.listed;
    this.listed = claim ?? null;
    // News of a claim may arrive before the response to it.
    if (!this.asking && mayHaveChanged(this.state, this.held, before, this.listed)) this.handle("news");
  }

  /** Go to the state that follows an event, and perform the effect. */
  handle(event) {
    const { state, effect } = transition(this.state, event);
    this.state = state;
    if (state === "over" || state === "gone") {
      clearInterval(this.ticking);
      for (const timer of this.timers) clearTimeout(timer);
      this.timers.clear();
    }
    if (effect === RELEASE) this.release();
    else if (effect) this.perform(effect);
    this.changed(state);
  }

  /** Send a claim to the hub for the effect ASK or TAKE, now, or after the one under way; AGAIN waits first. */
  async perform(effect) {
    if (effect === AGAIN) return this.askLater();
    // One request at a time; what is wanted meanwhile follows.
    if (this.asking) {
      this.wanted = this.wanted === TAKE ? TAKE : effect;
      return undefined;
    }
    this.asking = true;
    let refusal = null;
    try {
      this.held = await this.ask(effect === TAKE);
      this.by = this.held.by;
    } catch (error) {
      refusal = error;
      this.by = error.metadata?.claimed_by ?? this.by;
    }
    this.asking = false;
    this.handle(responseEvent(refusal));
    this.compareWithList();
    const { wanted } = this;
    this.wanted = null;
    if (wanted && this.state !== "over" && this.state !== "gone") await this.perform(wanted);
    return undefined;
  }

  /** Compare the response with what lists said during the request: they may be older than the response, or newer. */
  compareWithList() {
    if (this.state === "mine" && this.listed && mayHaveChanged("mine", this.held, null, this.listed)) this.handle("news");
    else if (blocksAnswer(this.state) && this.listed?.by !== this.by) this.askLater();
  }

  /** Claim it after AGAIN_MS. */
  askLater() {
    const timer = setTimeout(() => {
      this.timers.delete(timer);
      this.perform(ASK);
    }, AGAIN_MS);
    this.timers.add(timer);
  }
}
