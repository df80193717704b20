// The time of a call as a picture: queued, at work, waiting for a person.

import { h, svg } from "./dom.js";
import { span } from "./time.js";

const WIDTH = 1000;
const ROW = 26;
const MAX_ROWS = 12;

/** A call's time in parts, `[kind, from, to]` in ms: queued, work and human alternate without gaps. */
export function segments(call, requests, now) {
  const begin = Date.parse(call.created_at);
  const end = call.completed_at ? Date.parse(call.completed_at) : now;
  const sent = Math.min(end, call.started_at ? Date.parse(call.started_at) : end);
  const waits = merged(requests.map((request) => waiting(request, end)).filter(([from, to]) => to > from));
  const parts = [["queued", begin, sent]];
  let at = sent;
  for (const [from, to] of waits) {
    const start = Math.max(at, Math.min(from, end));
    const stop = Math.max(start, Math.min(to, end));
    parts.push(["work", at, start], ["human", start, stop]);
    at = stop;
  }
  parts.push(["work", at, end]);
  return parts.filter(([, from, to]) => to > from);
}

/** From when to when a request waited for somebody. */
export function waiting(request, end) {
  const over = request.state === "open" ? end : Date.parse(request.answered_at ?? (request.state === "expired" ? request.deadline : null) ?? 0) || end;
  return [Date.parse(request.created_at), Math.min(over, end)];
}

function merged(spans) {
  const joined = [];
  for (const [from, to] of spans.sort((a, b) => a[0] - b[0])) {
    const last = joined.at(-1);
    if (last && from <= last[1]) last[1] = Math.max(last[1], to);
    else joined.push([from, to]);
  }
  return joined;
}

const NAMES = { queued: "queued", work: "at work", human: "waiting for a person" };

/** The picture, with its parts in words below. */
export function timeline(call, requests, now) {
  const parts = segments(call, requests, now);
  const begin = Date.parse(call.created_at);
  const end = parts.at(-1)?.[2] ?? begin;
  const whole = Math.max(1, end - begin);
  const x = (moment) => ((Math.max(begin, moment) - begin) / whole) * WIDTH;
  const totals = { queued: 0, work: 0, human: 0 };
  for (const [kind, from, to] of parts) totals[kind] += to - from;
  const said = Object.entries(totals).filter(([, ms]) => ms > 0).map(([kind, ms]) => `${NAMES[kind]} ${span(ms)}`);
  const rows = requests.slice(0, MAX_ROWS);
  const height = ROW * (rows.length + 1);
  const picture = svg("svg", { class: "timeline", viewBox: `0 0 ${WIDTH} ${height}`, height, preserveAspectRatio: "none", role: "img",
    "aria-label": `Time of the call: ${said.join(", ")}` });
  for (const [kind, from, to] of parts) picture.append(bar(`part ${kind}`, x(from), x(to), 3, ROW - 6));
  rows.forEach((request, at) => {
    const [from, to] = waiting(request, end);
    const top = ROW * (at + 1);
    picture.append(svg("rect", { class: "lane", x: 0, y: top + ROW / 2 - 0.5, width: WIDTH, height: 1 }), bar("question", x(from), x(to), top + 8, ROW - 16));
  });
  const legend = h("ul", { class: "legend" }, Object.entries(totals).filter(([, ms]) => ms > 0).map(([kind, ms]) =>
    h("li", {}, h("span", { class: `swatch ${kind}` }), `${NAMES[kind]} `, h("strong", { text: span(ms) }))));
  return h("figure", { class: "time" }, picture,
    h("div", { class: "axis", "aria-hidden": "true" }, h("span", { text: "0" }), h("span", { text: span(whole / 2) }), h("span", { text: span(whole) })), legend);
}

function bar(kind, from, to, y, height) {
  return svg("rect", { class: kind, x: from.toFixed(1), y, width: Math.max(3, to - from).toFixed(1), height, rx: 3 });
}
