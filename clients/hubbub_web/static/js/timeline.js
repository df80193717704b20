// The timeline of a call as a picture, from rows that the bridge computes (hubbub_frontend/display/timeline.py).

import { h, svg } from "./dom.js";
import { duration } from "./time.js";

const ROW = 26;
const MAX_ROWS = 12;
// Least width in percent, so that parts of no length are visible.
const NARROWEST = 0.3;
const NAMES = { queued: "queued", server: "at work", person: "waiting for a person" };
const SIGNS = { shown: "○", claimed: "◐", released: "◌", lapsed: "◌", not_counted: "◌", answered: "●", delivered: "✓" };
const OTHER = "✗";

/** Render the timeline of a call as a picture, with its parts and events in words below; `title(request)` returns the title of a pending request. */
export function timeline(time, title) {
  const sums = Object.entries(NAMES).map(([kind, name]) => [kind, name, time[`${kind}_s`]]).filter(([, , sum]) => sum > 0);
  const rows = time.asked.slice(0, MAX_ROWS);
  const picture = svg("svg", { class: "timeline", width: "100%", height: ROW * (rows.length + 1), role: "img",
    "aria-label": `Time of the call: ${sums.map(([, name, sum]) => `${name} ${secondsInWords(sum)}`).join(", ")}` });
  /** Return the place of a second on the axis, in percent. */
  const x = (at) => (time.total_s > 0 ? (100 * at) / time.total_s : 0);
  /** Draw a bar between two seconds. */
  const bar = (kind, from, to, y, height) =>
    svg("rect", { class: kind, x: `${Math.min(x(from), 100 - NARROWEST)}%`, y, width: `${Math.max(NARROWEST, x(to) - x(from))}%`, height, rx: 3 });
  for (const part of time.parts) picture.append(bar(`part ${part.kind}`, part.start_s, part.end_s, 3, ROW - 6));
  rows.forEach((asked, at) => {
    const top = ROW * (at + 1);
    picture.append(svg("rect", { class: "lane", x: 0, y: top + ROW / 2 - 0.5, width: "100%", height: 1 }),
      bar("question", asked.start_s, asked.end_s, top + 10, ROW - 20));
    for (const step of asked.steps) {
      picture.append(svg("text", { class: `step ${step.what}`, x: `${x(Math.min(step.at_s, time.total_s))}%`, y: top + 18, text: stepSign(step) }));
    }
  });
  const more = time.asked.length - rows.length;
  return h("figure", { class: "time" }, picture,
    h("div", { class: "axis", "aria-hidden": "true" }, h("span", { text: "0" }), h("span", { text: secondsInWords(time.total_s / 2) }), h("span", { text: secondsInWords(time.total_s) })),
    h("ul", { class: "legend" }, sums.map(([kind, name, sum]) =>
      h("li", {}, h("span", { class: `swatch ${kind}` }), `${name} `, h("strong", { text: secondsInWords(sum) })))),
    rows.map((asked) => requestSteps(asked, title(asked))),
    more > 0 ? h("p", { class: "quiet", text: `${more} more request${more === 1 ? "" : "s"}` }) : null);
}

/** Render what happened to a pending request, and when. */
function requestSteps(asked, title) {
  return h("div", { class: "story" }, h("strong", { text: title, dir: "auto" }),
    h("ol", { "aria-label": `What happened to: ${title}` }, asked.steps.map((step) =>
      h("li", {}, h("span", { "aria-hidden": "true", text: `${stepSign(step)} ` }), `${step.what} `,
        step.by ? [step.what === "shown" ? "to " : "by ", h("bdi", { text: step.by }), step.agent ? ", an agent," : "", " "] : null,
        h("span", { class: "at", text: `after ${secondsInWords(step.at_s)}` })))));
}

/** Return the character that stands for a step. */
function stepSign(step) {
  return SIGNS[step.what] ?? OTHER;
}

/** Return a duration in seconds in words. */
function secondsInWords(seconds) {
  return duration(1000 * seconds);
}
