// The lines in which two texts differ, and how they are drawn.

import { clean, h, append } from "./dom.js";

// Cells of the table that is searched for the longest lines in common; beyond it, all lines count as different.
const MOST_CELLS = 1_000_000;
// Lines around a difference that are shown although they are as before.
const AROUND = 3;
// Lines and characters that are drawn at first.
const LINES = 200;
const LETTERS = 20_000;
// Runs of lines of one sign that are drawn at once of all.
const RUNS = 2000;
const SIGNS = { "+": "added", "-": "removed", "@": "place" };

/** Return the lines of two texts as [sign, text, number]: sign `-` if only before has it, `+` if only after has it, a space for both. Far from a difference, lines of both are folded into one `@` that says how many. */
export function diffLines(before, after) {
  const [a, b] = [before, after].map((text) => (text === "" ? [] : text.split("\n")));
  // The end of the last line, which both have, is no line of its own.
  if (a.length > 1 && b.length > 1 && a.at(-1) === "" && b.at(-1) === "") [a, b].forEach((lines) => lines.pop());
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end += 1;
  /** Return a function that pairs a text with a sign. */
  const withSign = (sign) => (text) => [sign, text];
  return foldUnchanged(numberLines([...a.slice(0, start).map(withSign(" ")), ...diffByCommonLines(a.slice(start, a.length - end), b.slice(start, b.length - end)),
    ...a.slice(a.length - end).map(withSign(" "))]));
}

/** Add its number to each line [sign, text]: to a removed one its number before, to others that after. `before` and `after` are the numbers of the first line. */
function numberLines(lines, before = 1, after = 1) {
  let [old, now] = [before, after];
  return lines.map(([sign, text]) => {
    const line = [sign, text, sign === "-" ? old : now];
    if (sign !== "+") old += 1;
    if (sign !== "-") now += 1;
    return line;
  });
}

/** Return the lines of two texts as [sign, text], by their longest common subsequence. */
function diffByCommonLines(a, b) {
  const width = b.length + 1;
  if (a.length * b.length > MOST_CELLS) return [...a.map((text) => ["-", text]), ...b.map((text) => ["+", text])];
  const common = new Uint32Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      common[i * width + j] = a[i] === b[j] ? common[(i + 1) * width + j + 1] + 1 : Math.max(common[(i + 1) * width + j], common[i * width + j + 1]);
    }
  }
  const lines = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      lines.push([" ", a[i]]);
      i += 1;
      j += 1;
    } else if (i < a.length && (j === b.length || common[(i + 1) * width + j] >= common[i * width + j + 1])) {
      lines.push(["-", a[i]]);
      i += 1;
    } else {
      lines.push(["+", b[j]]);
      j += 1;
    }
  }
  return lines;
}

/** Return the lines without those far from a difference; `@` lines say how many were left out. */
function foldUnchanged(lines) {
  const shown = new Uint8Array(lines.length);
  lines.forEach(([sign], at) => { if (sign !== " ") shown.fill(1, Math.max(0, at - AROUND), at + AROUND + 1); });
  const found = [];
  let same = 0;
  /** Add the `@` line for the lines left out since the last shown one. */
  const endFold = () => {
    if (same) found.push(["@", `${same.toLocaleString()} line${same === 1 ? "" : "s"} as before`]);
    same = 0;
  };
  lines.forEach((line, at) => {
    if (!shown[at]) same += 1;
    else {
      endFold();
      found.push(line);
    }
  });
  endFold();
  return found;
}

/** Return the lines of a patch in the form of `diffLines`; its headers have the sign `@`. Lines have numbers where a header says them. */
export function parsePatch(text) {
  const found = [];
  let part = [];
  let place = null;
  /** Add the lines read since the last header to the result. */
  const endHunk = () => {
    for (const each of place ? numberLines(part, ...place) : part) found.push(each);
    part = [];
  };
  for (const line of text.split("\n")) {
    if (/^(@@|---|\+\+\+|diff |index )/.test(line)) {
      endHunk();
      const head = /^@@ -(\d{1,9})(?:,\d+)? \+(\d{1,9})/.exec(line);
      place = head && [Number(head[1]), Number(head[2])];
      found.push(["@", line]);
    } else part.push([" +-".includes(line[0]) && line ? line[0] : " ", /^[ +-]/.test(line) ? line.slice(1) : line]);
  }
  endHunk();
  return found;
}

/** Render the lines of `diffLines`; of very many the first, and a button for more. */
export function renderDiff(lines, label) {
  const box = h("div", { class: "code diff", tabindex: "0", role: "group", "aria-label": clean(label), dir: "ltr" });
  const more = h("button", { type: "button", class: "plain", on: { click: drawMore } });
  let next = 0;
  let rest = "";
  let left = LETTERS;
  for (; next < Math.min(lines.length, LINES) && left > 0 && !rest; next += 1) {
    const [sign, text, number] = lines[next];
    const part = text.slice(0, left);
    rest = text.slice(part.length);
    left -= part.length + 1;
    box.append(renderRun(sign, part, [number ? h("span", { class: "number", "aria-hidden": "true", text: number }) : null,
      h("span", { class: "sign", "aria-hidden": "true", text: sign === "@" ? "" : sign })]));
  }
  offerMore();

  /**
   * Draw up to RUNS more runs, and offer what is left then. A run is the neighbouring lines of one sign in one element: a browser takes
   * long for many elements, not for much text.
   */
  function drawMore() {
    more.remove();
    if (rest) append(box.lastElementChild, rest);
    rest = "";
    for (let count = 0; count < RUNS && next < lines.length; count += 1) {
      const [sign] = lines[next];
      const texts = [];
      while (next < lines.length && lines[next][0] === sign) {
        texts.push(`${String(lines[next][2] ?? "").padStart(5)} ${sign} ${lines[next][1]}`);
        next += 1;
      }
      box.append(renderRun(sign, texts.join("\n")));
    }
    offerMore();
  }

  /** Append the button for what is not drawn yet, if there is any. */
  function offerMore() {
    if (next === lines.length && !rest) return;
    more.textContent = next < lines.length ? `Show all (${(lines.length - next).toLocaleString()} lines more)` : `Show all (${rest.length.toLocaleString()} characters more)`;
    box.append(more);
  }
  return box;
}

/** Render one line, or several of one sign joined; `mark` has the elements before it. */
function renderRun(sign, text, mark = null) {
  const tag = { "+": "ins", "-": "del" }[sign] ?? "span";
  const spoken = { "+": "added: ", "-": "removed: " }[sign];
  return h(tag, { class: `line-of ${SIGNS[sign] ?? "same"}${mark ? "" : " run"}` }, mark, spoken ? h("span", { class: "unseen", text: spoken }) : null, text);
}
