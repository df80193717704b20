// Events of servers, as they happen; nothing of it is stored anywhere.

import { Refused, stream } from "./api.js";
import { clean, h, jsonBlock, refill } from "./dom.js";
import { cardList, chooser, searchBox } from "./list.js";
import { tables } from "./store.js";

// Events that this page keeps.
const KEPT = 500;
const AGAIN_MS = 1000;
const KINDS = ["progress", "log", "stderr", "resource_updated", "list_changed", "cancelled", "elicitation_complete", "task_status", "throttled", "config_reloaded", "config_problem", "other"];

/** Open the page of events; `serverName` is the server that it begins with. */
export function eventsPage(main, serverName) {
  const search = searchBox("Search", drawSoon);
  const server = chooser("All servers", followEvents);
  const kind = chooser("All kinds", followEvents);
  const pause = h("button", { type: "button", "aria-pressed": "false", text: "Pause", on: { click: togglePause } });
  const clear = h("button", { type: "button", class: "plain", text: "Clear", on: { click: removeAll } });
  const counts = h("p", { class: "help", role: "status" });
  const trouble = h("p", { class: "problem", role: "alert" });
  const list = cardList(eventCard, { name: "Events", empty: "No events yet. They appear here as they happen." });
  let kept = [];
  let held = null;
  let seen = 0;
  let dropped = { before: 0, now: 0 };
  let control = null;
  let drawing = false;
  kind.addChoices(KINDS);
  if (serverName) {
    server.addChoices([serverName]);
    server.element.value = serverName;
  }
  refill(main, h("h1", { text: "Events" }), h("p", { class: "help", text: "What servers report from now on: progress, log messages, stderr and changes. Older log lines are on each server's page." }),
    h("div", { class: "filters", role: "search" }, search.element, server.element, kind.element, pause, clear), counts, trouble, list.element);

  /** Follow events until the page is left or the filter changes. */
  async function followEvents() {
    control?.abort();
    const mine = new AbortController();
    control = mine;
    drawSoon();
    while (!mine.signal.aborted) {
      dropped = { before: dropped.before + dropped.now, now: 0 };
      try {
        for await (const lines of stream("events", { server: server.value, kind: kind.value }, mine.signal)) addLines(lines);
      } catch (error) {
        if (error instanceof Refused) trouble.textContent = error.message;
      }
      if (!mine.signal.aborted) await new Promise((resume) => setTimeout(resume, AGAIN_MS));
    }
  }

  /** Add the events of some lines of the stream; other lines say how many events were lost, or why there are none. */
  function addLines(lines) {
    for (const line of lines) {
      if (line.event) {
        seen += 1;
        kept.unshift({ ...line.event, id: `event ${seen}` });
      } else if (line.refused) {
        trouble.textContent = line.refused;
      } else if (line.dropped !== undefined) {
        trouble.textContent = "";
        dropped.now = line.dropped;
      }
    }
    kept.length = Math.min(kept.length, KEPT);
    drawSoon();
  }

  /** Freeze the list as it is, or show all events again. */
  function togglePause() {
    held = held ? null : { events: [...kept], seen };
    pause.textContent = held ? "Go on" : "Pause";
    pause.setAttribute("aria-pressed", String(Boolean(held)));
    drawSoon();
  }

  /** Remove all events from the page. */
  function removeAll() {
    kept = [];
    if (held) held.events = [];
    drawSoon();
  }

  /** Draw in the next frame. */
  function drawSoon() {
    if (drawing) return;
    drawing = true;
    requestAnimationFrame(draw);
  }

  /** Draw the events that match the search and the filters, and the counts. */
  function draw() {
    drawing = false;
    server.addChoices([...tables.server.keys()].sort());
    const lost = dropped.before + dropped.now;
    const shown = (held?.events ?? kept).filter((each) => (!server.value || each.server === server.value) && (!kind.value || each.kind === kind.value)
      && search.matches(each.server || "the hub", each.kind, describeEvent(each)));
    const parts = [seen ? `${seen.toLocaleString()} event${seen === 1 ? "" : "s"}` : null, seen > KEPT ? `the last ${KEPT} are kept` : null,
      lost ? `${lost} lost: they came too fast` : null, held ? `paused, ${seen - held.seen} more since` : null];
    const words = parts.filter(Boolean).join(" · ");
    if (counts.textContent !== words) counts.textContent = words;
    list.show(shown);
  }

  followEvents();
  return { update: drawSoon, leave: () => control.abort() };
}

/** Return an event as one line of text. */
export function describeEvent(event) {
  const params = event.params ?? {};
  switch (event.kind) {
    case "stderr":
    case "throttled":
      return String(params.line ?? JSON.stringify(params));
    case "log":
      return `${params.level ?? "log"}: ${typeof params.data === "string" ? params.data : JSON.stringify(params.data ?? params)}`;
    case "progress":
      return [`${params.progress}${params.total ? ` of ${params.total}` : ""}`, params.message].filter(Boolean).join(" · ");
    case "config_problem":
      return `The configuration is not taken over: ${params.problem}`;
    case "config_reloaded":
      return `The configuration was read again: ${reloadChanges(params) || "all is as before"}`;
    default:
      return [event.method, JSON.stringify(params)].filter(Boolean).join(" ");
  }
}

/** Return what a reload of the configuration changed, in words. */
function reloadChanges(params) {
  const words = { added: "added", changed: "changed", removed: "removed", settings: "settings", needs_restart: "after a restart" };
  return Object.entries(words).filter(([key]) => params[key]?.length).map(([key, word]) => `${word} ${params[key].join(", ")}`).join("; ");
}

/** Render an event: one line, and its params as JSON once it is opened. */
function eventCard(event) {
  const at = new Date(event.at);
  const whole = h("div");
  const summary = h("summary", { class: "said" }, h("span", { class: "line" }, h("time", { datetime: event.at, title: at.toLocaleString(), text: at.toLocaleTimeString() }),
    h("strong", { text: event.server || "the hub", dir: "auto" }), h("span", { class: "kind", text: event.kind.replaceAll("_", " ") })),
  h("span", { class: "what", dir: "auto", text: describeEvent(event).slice(0, 300) }));
  return h("details", { class: "card", on: { toggle: () => refill(whole,
    event.call_id ? h("p", {}, h("a", { href: `#/call/${encodeURIComponent(event.call_id)}`, text: "The call it is about" })) : null,
    jsonBlock(event.params, `${clean(event.method ?? event.kind)} as JSON`)) } }, summary, whole);
}
