// Times in words, updated once a second.

import { h } from "./dom.js";

const SPANS = [[86400, "d"], [3600, "h"], [60, "min"]];

/** Return a duration in words: `340 ms`, `4.2 s`, `5 min 3 s`. */
export function duration(ms) {
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  const s = ms / 1000;
  if (s < 60) return `${s < 10 ? s.toFixed(1) : Math.round(s)} s`;
  const [size, unit] = SPANS.find((each) => s >= each[0]);
  const next = { d: [3600, "h"], h: [60, "min"], min: [1, "s"] }[unit];
  const rest = Math.floor((s % size) / next[0]);
  return `${Math.floor(s / size)} ${unit}${rest ? ` ${rest} ${next[1]}` : ""}`;
}

/** Render `12 s ago`, kept up to date; null without a moment. */
export function ago(moment) {
  return moment ? liveTime(moment, "ago") : null;
}

/** Render `4:32 left`, kept up to date; urgent when little is left; null without a moment. */
export function timeLeft(moment) {
  return moment ? liveTime(moment, "left") : null;
}

/** Render a moment as `ago` or `left` (the `kind`), kept up to date. */
function liveTime(moment, kind) {
  const element = h("time", { datetime: moment, "data-way": kind, title: new Date(moment).toLocaleString() });
  updateTime(element, Date.now());
  return element;
}

/** Set the words of an element of `liveTime`; `now` is in milliseconds. */
function updateTime(element, now) {
  const distance = new Date(element.dateTime) - now;
  if (element.dataset.way === "ago") {
    element.textContent = distance > -1500 ? "just now" : `${roughDuration(-distance)} ago`;
    return;
  }
  const s = Math.max(0, Math.ceil(distance / 1000));
  const clock = `${Math.floor(s / 60) % 60}:${String(s % 60).padStart(2, "0")}`;
  element.textContent = s >= 86400 ? `${roughDuration(distance)} left` : s >= 3600 ? `${Math.floor(s / 3600)} h ${Math.floor(s / 60) % 60} min left`
    : s > 0 ? `${clock} left` : "time is up";
  element.classList.toggle("urgent", s < 30);
}

/** Return a duration in its largest unit: `5 min`. */
function roughDuration(ms) {
  const s = Math.round(ms / 1000);
  const found = SPANS.find((each) => s >= each[0]);
  return found ? `${Math.floor(s / found[0])} ${found[1]}` : `${s} s`;
}

setInterval(() => {
  const now = Date.now();
  for (const element of document.querySelectorAll("time[data-way]")) updateTime(element, now);
}, 1000);
