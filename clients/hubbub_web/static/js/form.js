// A form made from a schema: the flat objects of elicitations, and loosely the inputs of tools.

import { h, uniqueId } from "./dom.js";
import { choicesField, Problem } from "./choices.js";

const PAGE = 100;
const LONG_TEXT = 200;
// Fields of one line, in which people press Enter when they are done.
const LINES = "input:not([type=radio], [type=checkbox])";
const INPUTS = { email: "email", uri: "url", date: "date", "date-time": "datetime-local" };

/**
 * Make the form for an object schema, filled in with the values `given` by name. With `explicit`, a no has to be chosen. `values()` returns the content, of some
 * fields alone if they are given, or null when a field is wrong, which then shows why; `showProblems` shows a refusal's violations, whose paths begin with `path`, and returns those of no field.
 */
export function schemaForm(schema, path, { given = {}, explicit = false } = {}) {
  const properties = Object.entries(isObject(schema?.properties) ? schema.properties : {});
  const required = new Set(Array.isArray(schema?.required) ? schema.required : []);
  const fields = [];
  const box = h("div", { class: "fields" });
  const more = h("button", { type: "button", class: "more", on: { click: () => addFields(PAGE) } });

  /** Append the next fields, and the button for more if some are left. */
  function addFields(count) {
    for (const [name, spec] of properties.slice(fields.length, fields.length + count)) {
      const field = makeField(name, isObject(spec) ? spec : {}, required.has(name), { initial: Object.hasOwn(given, name) ? given[name] : undefined, explicit });
      fields.push(field);
      box.append(field.element);
    }
    more.remove();
    if (fields.length < properties.length) {
      more.textContent = `Show more fields (${(properties.length - fields.length).toLocaleString()} left)`;
      box.append(more);
    }
  }
  addFields(PAGE);

  /** Return the field that the path of a violation is about, appended if it was not yet; undefined if there is none. */
  function fieldAt(place) {
    const index = properties.findIndex(([name]) => place === `${path}.${name}` || place.startsWith(`${path}.${name}.`));
    if (index >= fields.length) addFields(index + 1 - fields.length);
    return fields[index];
  }

  return {
    element: box,
    empty: properties.length === 0,
    /** Return the values of fields by name, null if one is wrong, which then shows why and gets the focus. */
    values(those = fields) {
      const found = [];
      let wrong = null;
      for (const field of those) {
        field.showProblem("");
        try {
          const value = field.read();
          if (value !== undefined) found.push([field.name, value]);
        } catch (error) {
          if (!(error instanceof Problem)) throw error;
          field.showProblem(error.message);
          wrong ??= field;
        }
      }
      wrong?.focus();
      return wrong ? null : Object.fromEntries(found);
    },
    /** Return what the person has changed, as pairs of name and value; null when a field is wrong. */
    changes() {
      const values = this.values(fields.filter((each) => each.touched));
      return values && fields.filter((each) => each.touched).map(({ name }) => [name, Object.hasOwn(values, name) ? values[name] : undefined]);
    },
    /** Show violations at their fields; return those of no field. */
    showProblems(violations) {
      const others = [];
      let first = null;
      for (const [place, problem] of violations) {
        const field = fieldAt(place);
        field?.showProblem(problem);
        first ??= field;
        if (!field) others.push([place, problem]);
      }
      first?.focus();
      return others;
    },
  };
}

/**
 * Let Enter send a form only where that is meant: in the last field, a line of text, once something has been typed. In an
 * earlier line, it goes to the next field; in other fields it does nothing. Ctrl Enter sends always. `showMessage(text)` shows why
 * nothing was sent.
 */
export function guardEnter(form, showMessage) {
  let typed = false;
  form.addEventListener("input", () => { typed = true; });
  form.addEventListener("keydown", (event) => {
    const at = event.target;
    if (event.key !== "Enter" || event.isComposing || !at.matches("input, select, textarea")) return;
    const all = event.ctrlKey || event.metaKey;
    if (at.matches("textarea") && !all) return;
    event.preventDefault();
    if (event.repeat || (!all && !at.matches(LINES))) return;
    const next = all ? null : nextField(form, at);
    if (next) next.focus();
    else if (typed || all) form.requestSubmit?.();
    else showMessage("Nothing has been written here yet. The button sends it as it is.");
  });
}

/** Return the first visible field of a form; of radio buttons the chosen one; null if there is none. */
export function firstField(form) {
  return visibleFields(form)[0] ?? null;
}

/** Return the visible field after this one; null after the last. */
function nextField(form, field) {
  const all = visibleFields(form);
  return all[all.indexOf(field) + 1] ?? null;
}

/** Return the visible fields of a form; of radio buttons with one name, the one that Tab leads to. */
function visibleFields(form) {
  const all = [...form.querySelectorAll("input, select, textarea")].filter((each) => each.checkVisibility());
  const stops = new Map(all.filter((each) => each.type === "radio").reverse().map((each) => [each.name, each]));
  for (const each of all) if (each.type === "radio" && each.checked) stops.set(each.name, each);
  return all.filter((each) => each.type !== "radio" || stops.get(each.name) === each);
}

/**
 * Make the field of one property: label, help, control and problem. `initial` is the value that it begins with, instead of the schema's default.
 * `read()` returns the value, undefined for none, and throws a Problem; `showProblem(text)` shows one, an empty text removes it.
 */
function makeField(name, given, required, { initial: begun, explicit }) {
  const spec = withoutNull(given);
  const filled = begun === undefined ? spec : { ...spec, default: begun };
  const id = uniqueId("field");
  const error = h("p", { class: "problem", id: `${id}-problem`, hidden: true });
  const hints = [spec.description, describeConstraints(spec)].filter(Boolean).map(String);
  const help = hints.length ? h("p", { class: "help", id: `${id}-help`, text: hints.join(" · ").slice(0, 1000), dir: "auto" }) : null;
  const described = `${help ? `${id}-help ` : ""}${id}-problem`;
  const title = `${spec.title || name}`.slice(0, 300) || "(no name)";
  const control = makeControl(filled, { id, described, required, title, explicit });
  const label = [title, required ? null : h("span", { class: "optional", text: " optional" })];
  const element = control.group
    ? h("fieldset", { class: "field", "aria-describedby": described }, h("legend", { dir: "auto" }, label), help, control.element, error)
    : control.check
      ? h("div", { class: "field" }, h("div", { class: "check" }, control.element, h("label", { for: id, dir: "auto" }, label)), help, error)
      : h("div", { class: "field" }, h("label", { for: id, dir: "auto" }, label), help, control.element, error);
  let touched = false;
  element.addEventListener("input", () => { touched = true; });
  return {
    name,
    element,
    get touched() { return touched; },
    /** Return the value. Throws a Problem if there is none, and one is required. */
    read() {
      const value = control.read();
      if (value === undefined && required && spec.default === undefined) throw new Problem("Please give a value.");
      return value;
    },
    /** Show a problem at the field; an empty one removes it. */
    showProblem(problem) {
      error.hidden = !problem;
      error.textContent = problem ? asSentence(problem) : "";
      for (const input of control.inputs()) input.setAttribute("aria-invalid", String(Boolean(problem)));
    },
    /** Focus the first input of the field. */
    focus() {
      (control.inputs()[0] ?? element).focus();
    },
  };
}

/** Make the control for a schema. `read()` returns its value, undefined for none, and throws a Problem; `inputs()` returns its elements. */
function makeControl(spec, place) {
  const multiple = spec.type === "array" && isObject(spec.items);
  const choices = choicesOf(multiple ? spec.items : spec);
  if (choices.length) return choicesField(choices, spec, multiple, place);
  switch (spec.type) {
    case "boolean":
      return isCheckbox(spec, place) ? checkbox(spec, place) : choicesField([[true, "Yes"], [false, "No"]], spec, false, place);
    case "integer":
    case "number":
      return numberField(spec, place);
    case "array":
    case "object":
      return multiple && spec.items.type === "string" ? linesField(spec, place) : jsonField(spec, place);
    default:
      return textField(spec, place);
  }
}

/** Return the choices that a schema allows, as pairs of value and title; empty if it allows any value. */
export function choicesOf(spec) {
  const titled = [spec.oneOf, spec.anyOf].find((each) => Array.isArray(each) && each.some((one) => isObject(one) && "const" in one));
  if (titled) return titled.filter((one) => typeof one?.const === "string").map((one) => [one.const, String(one.title ?? one.const)]);
  const values = Array.isArray(spec.enum) ? spec.enum.filter((value) => typeof value === "string") : [];
  const names = Array.isArray(spec.enumNames) && spec.enumNames.length === values.length ? spec.enumNames : values;
  return values.map((value, at) => [value, String(names[at])]);
}

/**
 * Return whether a boolean is shown as a box to tick, not as a choice of Yes and No. With `explicit`, it is one only if it begins ticked: a box
 * that a person has overlooked would say no.
 */
function isCheckbox(spec, { required, explicit }) {
  return spec.default === true || (!explicit && (spec.default === false || !required));
}

/** Make the control of a boolean that is a box to tick. */
function checkbox(spec, { id, described }) {
  const input = h("input", { type: "checkbox", id, "aria-describedby": described, checked: spec.default === true });
  return { element: input, check: true, inputs: () => [input], read: () => input.checked };
}

/** Make the control of a string. */
function textField(spec, { id, described, required }) {
  const long = !spec.format && (spec.maxLength > LONG_TEXT || String(spec.default ?? "").includes("\n"));
  const type = INPUTS[spec.format] ?? "text";
  const props = { id, "aria-describedby": described, "aria-required": String(required), dir: "auto", autocomplete: "off" };
  const input = long ? h("textarea", { ...props, rows: 4 }) : h("input", { ...props, type });
  if (typeof spec.default === "string") input.value = spec.format === "date-time" ? localInputTime(spec.default) : spec.default;
  return {
    element: input,
    inputs: () => [input],
    read() {
      if (input.validity.badInput) throw new Problem("This is not complete.");
      if (input.value === "") return undefined;
      checkText(input, spec);
      return spec.format === "date-time" ? new Date(input.value).toISOString() : input.value;
    },
  };
}

/** Throw a Problem if the text of an input breaks its schema. */
function checkText(input, spec) {
  const length = [...input.value].length;
  if (length < spec.minLength) throw new Problem(`At least ${spec.minLength} characters are needed.`);
  if (length > spec.maxLength) throw new Problem(`At most ${spec.maxLength} characters are taken; these are ${length}.`);
  if (spec.format === "email" && input.validity.typeMismatch) throw new Problem("This is not an email address.");
  if (spec.format === "uri" && input.validity.typeMismatch) throw new Problem("This is not a whole address, such as https://example.org/.");
}

/** Return a moment in the form of an input of the type datetime-local; empty for an invalid one. */
function localInputTime(moment) {
  const date = new Date(moment);
  if (Number.isNaN(date.getTime())) return "";
  return new Date(date.getTime() - date.getTimezoneOffset() * 60000).toISOString().slice(0, 19);
}

/** Make the control of a number. */
function numberField(spec, { id, described, required }) {
  const whole = spec.type === "integer";
  const input = h("input", { type: "text", id, inputmode: whole ? "numeric" : "decimal", "aria-describedby": described,
    "aria-required": String(required), autocomplete: "off", class: "number" });
  if (Number.isSafeInteger(spec.default) || (!whole && Number.isFinite(spec.default))) input.value = String(spec.default);
  return {
    element: input,
    inputs: () => [input],
    read() {
      const text = input.value.trim();
      if (!text) return undefined;
      const value = Number(text);
      if (!/^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(text)) throw new Problem("This is not a number.");
      if (whole && !Number.isInteger(value)) throw new Problem("This must be a whole number.");
      if (whole ? !Number.isSafeInteger(value) : !Number.isFinite(value)) throw new Problem("This page cannot send a number of that size.");
      if (value < spec.minimum) throw new Problem(`This must be at least ${spec.minimum}.`);
      if (value > spec.maximum) throw new Problem(`This must be at most ${spec.maximum}.`);
      return value;
    },
  };
}

/** Make the control of a list of strings: a text with one a line. */
function linesField(spec, { id, described }) {
  const input = h("textarea", { id, rows: 3, "aria-describedby": described, dir: "auto" });
  if (Array.isArray(spec.default)) input.value = spec.default.join("\n");
  return {
    element: input,
    inputs: () => [input],
    read: () => (input.value.trim() ? input.value.split("\n").filter(Boolean) : undefined),
  };
}

/** Make the control of any other value, written as JSON. */
function jsonField(spec, { id, described }) {
  const input = h("textarea", { id, rows: 4, class: "code", "aria-describedby": described, spellcheck: "false", dir: "ltr" });
  if (spec.default !== undefined) input.value = JSON.stringify(spec.default, null, 2);
  return {
    element: input,
    inputs: () => [input],
    read() {
      if (!input.value.trim()) return undefined;
      try {
        return JSON.parse(input.value);
      } catch {
        throw new Problem("This is not JSON.");
      }
    },
  };
}

/** Return in words what a value has to be, and what counts if the field is left empty. */
function describeConstraints(spec) {
  const { minimum, maximum, minItems, maxItems } = spec;
  const parts = [];
  if (spec.type === "integer" || spec.type === "number") {
    const kind = spec.type === "integer" ? "a whole number" : "a number";
    parts.push(minimum !== undefined && maximum !== undefined ? `${minimum} to ${maximum}`
      : minimum !== undefined ? `${kind}, at least ${minimum}` : maximum !== undefined ? `${kind}, at most ${maximum}` : kind);
  }
  if (spec.type === "array" && minItems) parts.push(`choose at least ${minItems}`);
  if (spec.type === "array" && maxItems) parts.push(`choose at most ${maxItems}`);
  if (spec.type === "array" && !choicesOf(spec.items ?? {}).length) parts.push(spec.items?.type === "string" ? "one a line" : "JSON");
  if (spec.type === "object") parts.push("JSON");
  const fallback = spec.default;
  if (!choicesOf(spec).length && ["string", "number"].includes(typeof fallback) && String(fallback).length < 60) parts.push(`if left empty: ${fallback}`);
  return parts.join(" · ");
}

/** Return the schema of an optional field without its null, as generators write it: of `anyOf: [X, null]`, X. */
function withoutNull(spec) {
  const shapes = Array.isArray(spec.anyOf) ? spec.anyOf.filter((each) => isObject(each) && each.type !== "null") : [];
  if (shapes.length !== 1 || "type" in spec) return spec;
  const { anyOf: _, ...rest } = spec;
  return { ...shapes[0], ...rest, default: rest.default ?? shapes[0].default };
}

/** Return a text with a capital letter at the beginning. */
function asSentence(text) {
  const shown = String(text).slice(0, 500);
  return shown.charAt(0).toUpperCase() + shown.slice(1);
}

/** Return whether a value is a JSON object. */
function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Render the buttons of an agent's own options: the narrowest yes first. No key presses one of them. */
export function optionButtons(decisions, send) {
  return decisions.map((each, at) => h("button", { type: "button", "data-sends": "option", class: each.rejects ? "danger" : at ? null : each.note ? null : "primary",
    on: { click: (event) => { if (event.detail < 2) send({ accept: { [each.member]: each.value } }); } } },
  h("span", {}, each.label, each.note ? h("small", { text: each.note }) : null)));
}

/** Render the buttons that refuse a pending request of a kind; null where one of the agent's own options refuses. */
export function refusalButtons(kind, decisions, decline, cancel) {
  /** Render the button that refuses. */
  const refuse = (text) => h("button", { type: "button", class: "refuse", text, on: { click: decline } });
  if (decisions[0]?.is_field) return decisions.some((each) => each.rejects) ? null : refuse("Decline");
  if (!kind.startsWith("elicitation")) return refuse("Refuse");
  const [no, none] = ["decline", "cancel"].map((action) => decisions.find((each) => each.action === action)?.label);
  return [refuse(no ?? "Decline"), h("button", { type: "button", class: "refuse plain", title: none ? null : "Say neither yes nor no", text: none ?? "Dismiss", on: { click: cancel } })];
}

/** Make the form that answers an elicitation; `send(answer)` sends it. An agent may have sent `decisions` to choose from. */
export function elicitationForm(params, send, decisions = []) {
  if (decisions[0]?.is_field) {
    const bar = h("div", { class: "row bar four" }, optionButtons(decisions, send));
    const element = h("form", { on: { submit: (event) => event.preventDefault() } }, bar);
    return { element, bar, showProblems: (violations) => violations };
  }
  const [yes, ...wider] = decisions.filter((each) => each.action === "accept");
  const form = schemaForm(params.requestedSchema, "content", { explicit: true });
  const bar = h("div", { class: yes ? "row bar four" : "row bar" }, h("button", { class: "primary", type: "submit", text: yes?.label ?? (form.empty ? "Accept" : "Send answer") }),
    wider.map((each) => h("button", { type: "button", "data-sends": "wider", text: each.label, on: { click: () => send({ accept: { [each.member]: each.value } }) } })));
  const element = h("form", { on: { submit: (event) => {
    event.preventDefault();
    const values = form.values();
    if (values) send({ accept: values });
  } } },
  form.empty && !yes ? h("p", { class: "help", text: "There is nothing to fill in: accept, or decline." }) : null, form.element, bar);
  // The page checks fields itself, and shows problems at the field.
  element.noValidate = true;
  return { element, bar, showProblems: form.showProblems };
}
