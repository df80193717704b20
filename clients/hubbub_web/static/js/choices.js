// Fields for one of several choices, or several of many.

import { h, uniqueId } from "./dom.js";

const FEW = 5;
const MANY = 200;
// Options whose titles have at most so many characters stand in one line.
const SHORT = 10;

/** A value that cannot be sent as it is. */
export class Problem extends Error {}

/** Make the control for pairs of value and title: radio buttons, a select, or a search; check boxes when `multiple`. It has the functions of `makeControl` (form.js). */
export function choicesField(choices, spec, multiple, place) {
  if (multiple) return checkBoxField(choices, spec, place);
  if (choices.length <= FEW) return radioField(choices, spec, place);
  return choices.length <= MANY ? selectField(choices, spec, place) : searchField(choices, spec, place);
}

/** Make the control of a few choices: radio buttons. */
function radioField(choices, spec, { described, required }) {
  const name = uniqueId("choice");
  const inputs = choices.map(([value]) => h("input", { type: "radio", name, id: uniqueId("option"), checked: value === spec.default, "aria-describedby": described }));
  const rows = inputs.map((input, at) => labelledOption(input, choices[at][1]));
  if (!required && spec.default === undefined) {
    const none = h("input", { type: "radio", name, id: uniqueId("option"), checked: true });
    rows.push(labelledOption(none, "No choice"));
  }
  return {
    element: h("div", { class: choices.every(([, title]) => title.length <= SHORT) ? "options short" : "options" }, rows),
    group: true,
    inputs: () => inputs,
    read: () => choices[inputs.findIndex((input) => input.checked)]?.[0],
  };
}

/** Render a radio button or check box with its title. */
function labelledOption(input, title) {
  return h("div", { class: "check" }, input, h("label", { for: input.id, text: title.slice(0, 300), dir: "auto" }));
}

/** Make the control of more choices: a select. */
function selectField(choices, spec, { id, described, required }) {
  const element = h("select", { id, "aria-describedby": described, "aria-required": String(required), dir: "auto" },
    h("option", { value: "", text: "Choose…" }),
    choices.map(([value, title], at) => h("option", { value: String(at), text: title.slice(0, 300), selected: value === spec.default })));
  return { element, inputs: () => [element], read: () => (element.value === "" ? undefined : choices[Number(element.value)][0]) };
}

/** Make the control of very many choices: a text with suggestions, since drawing all would take too long. */
function searchField(choices, spec, { id, described, required }) {
  const list = h("datalist", { id: uniqueId("suggestions") });
  const input = h("input", { type: "text", id, list: list.id, "aria-describedby": described, "aria-required": String(required),
    autocomplete: "off", placeholder: `Type to find one of ${choices.length.toLocaleString()}`, on: { input: suggest } });
  const chosen = choices.find(([value]) => value === spec.default);
  if (chosen) input.value = chosen[1];
  /** Suggest choices whose titles have what is typed. */
  function suggest() {
    const wanted = input.value.toLowerCase();
    const found = [];
    for (const [, title] of choices) {
      if (title.toLowerCase().includes(wanted)) found.push(h("option", { value: title.slice(0, 300) }));
      if (found.length === FEW * 10) break;
    }
    list.replaceChildren(...found);
  }
  suggest();
  return {
    element: h("div", {}, input, list),
    inputs: () => [input],
    /** Return the value whose title or value is typed, undefined for no text. Throws a Problem for any other text. */
    read() {
      if (!input.value) return undefined;
      const found = choices.find(([value, title]) => title === input.value || value === input.value);
      if (!found) throw new Problem("This is not one of the choices.");
      return found[0];
    },
  };
}

/** Make the control for several of many choices: check boxes, with a filter if there are many. */
function checkBoxField(choices, spec, { title, required }) {
  const chosen = new Set(Array.isArray(spec.default) ? spec.default : []);
  const box = h("div", { class: "options" });
  const filter = h("input", { type: "search", "aria-label": `Filter ${title}`, placeholder: `Filter ${choices.length.toLocaleString()} choices`, on: { input: draw } });
  let inputs = [];
  /** Draw the check boxes of the choices that match the filter. */
  function draw() {
    const wanted = filter.value.toLowerCase();
    const found = choices.filter(([, name]) => name.toLowerCase().includes(wanted)).slice(0, MANY);
    inputs = found.map(([value]) => h("input", { type: "checkbox", id: uniqueId("option"), checked: chosen.has(value),
      on: { change: (event) => (event.target.checked ? chosen.add(value) : chosen.delete(value)) } }));
    box.replaceChildren(...inputs.map((input, at) => labelledOption(input, found[at][1])));
  }
  draw();
  return {
    element: h("div", {}, choices.length > 4 * FEW ? filter : null, box),
    group: true,
    inputs: () => inputs,
    /** Return the ticked values, undefined if none has to be. Throws a Problem for too few or too many. */
    read() {
      const values = choices.map(([value]) => value).filter((value) => chosen.has(value));
      if (!values.length && !required && spec.default === undefined) return undefined;
      if (values.length < spec.minItems) throw new Problem(`Choose at least ${spec.minItems}.`);
      if (values.length > spec.maxItems) throw new Problem(`Choose at most ${spec.maxItems}.`);
      return values;
    },
  };
}
