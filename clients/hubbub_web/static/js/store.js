// The page's copy of the records: a table per kind, filled by the stream of the bridge.

import { Refused, stream } from "./api.js";

const AGAIN_MS = 1000;
const LATEST_MS = 250;

export const tables = { server: new Map(), request: new Map(), call: new Map(), task: new Map(), list: new Map(), hub: new Map() };

/** `link` is loading, live, lost (no bridge) or out (not logged in). */
export const state = { link: "loading" };

const followers = new Set();
let token = "";
let scheduled = false;

/** Call `follower` after each batch of changes, at most once per frame; return a function that stops it. */
export function follow(follower) {
  followers.add(follower);
  return () => followers.delete(follower);
}

/** Return whether the bridge reaches the hub. */
export function isHubReachable() {
  return tables.hub.get("hub")?.connected !== false;
}

/** Return whether the tables are what the hub has now. If not, an empty table does not mean that there is nothing. */
export function areTablesCurrent() {
  return state.link === "live" && isHubReachable();
}

/** Return the open pending requests, the most urgent first: by the time that is left; those without a limit last, by age. */
export function openRequests() {
  const open = [];
  for (const request of tables.request.values()) if (request.state === "open") open.push(request);
  return open.sort(byUrgency);
}

const SEEN = "hubbub-seen";
let seen = null;

/** Return whether a pending request has been opened in this browser. */
export function isSeen(id) {
  seen ??= new Set((localStorage.getItem(SEEN) ?? "").split(" "));
  return seen.has(id);
}

/** Remember that a pending request has been opened; those that are not open any more are forgotten. */
export function markSeen(id) {
  if (isSeen(id)) return;
  seen.add(id);
  localStorage.setItem(SEEN, [...seen].filter((each) => each === id || tables.request.get(each)?.state === "open").join(" "));
}

/** Return the tool or method of a call; its id if the call is not known. */
export function callName(id) {
  const call = tables.call.get(id);
  return call ? call.tool ?? call.method : id;
}

/** Return the records of a table, newest first. */
export function newestFirst(table) {
  return [...table.values()].sort((a, b) => byAge(b, a));
}

/** Return a function that runs `work`, never twice at once: requested while it runs, it runs once more afterwards. Failures are left to the next run. */
export function oneAtATime(work) {
  let running = false;
  let again = false;
  return async () => {
    again = true;
    if (running) return;
    running = true;
    while (again) {
      again = false;
      await work().catch(() => {});
    }
    running = false;
  };
}

/** Compare by the deadline, the earliest first; then by age. */
function byUrgency(a, b) {
  const [one, other] = [a, b].map((each) => (each.deadline ? Date.parse(each.deadline) : Infinity));
  return one < other ? -1 : one > other ? 1 : byAge(a, b);
}

/** Compare by age, the oldest first. */
function byAge(a, b) {
  return a.created_at < b.created_at ? -1 : a.created_at > b.created_at ? 1 : a.id < b.id ? -1 : 1;
}

/** Call the followers with the next frame, once for all changes until then. */
function scheduleFollowers() {
  if (scheduled) return;
  scheduled = true;
  requestAnimationFrame(callFollowers);
  // A hidden or covered page gets no frames, but its title still has to count.
  setTimeout(callFollowers, LATEST_MS);
}

/** Call the followers if that is scheduled. */
function callFollowers() {
  if (!scheduled) return;
  scheduled = false;
  for (const follower of [...followers]) follower();
}

/** Set `state.link`, and call the followers if it has changed. */
function setLink(link) {
  if (state.link === link) return;
  state.link = link;
  scheduleFollowers();
}

/** Apply lines of the stream to the tables: all records at first (`reset`), records that changed or are gone, and tokens to resume from. */
function applyLines(lines) {
  for (const line of lines) {
    if (line.reset) {
      for (const table of Object.values(tables)) table.clear();
    } else if (line.kind) {
      const table = tables[line.kind];
      if (line.record === null) table?.delete(line.id);
      else table?.set(line.id, line.record);
    } else if (line.token) {
      token = line.token;
      setLink("live");
    }
  }
  scheduleFollowers();
}

/** Follow the bridge while this page is logged in; after a break, go on from the last token. */
export async function followBridge() {
  for (;;) {
    try {
      for await (const lines of stream("feed", { token })) applyLines(lines);
      setLink("lost");
    } catch (error) {
      if (error instanceof Refused && error.status === 401) {
        setLink("out");
        return;
      }
      setLink("lost");
    }
    await new Promise((resume) => setTimeout(resume, AGAIN_MS));
  }
}
