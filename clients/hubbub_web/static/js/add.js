// The form that adds a server: a command to start, or a URL.

import { ask, Refused } from "./api.js";
import { fresh, h, refill } from "./dom.js";

const NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;

/** The page that adds a server. */
export async function addPage(main) {
  const crumbs = h("div", { class: "crumbs" }, h("a", { href: "#/servers", text: "Servers" }));
  const { may, command: adds } = await ask("may_add");
  if (!may) {
    refill(main, crumbs, h("h1", { text: "Add a server" }), h("p", { text: "You may not add servers here. An administrator of the hub can, or can give you the role admin." }));
    return { update() {}, leave() {} };
  }
  const trouble = h("p", { class: "problem", role: "alert" });
  const button = h("button", { class: "primary", type: "submit", text: "Add server" });
  const fields = {
    name: field("Name", "Letters, digits, . _ and -. Callers use this name.", (props) => h("input", { type: "text", autocomplete: "off", spellcheck: "false", ...props })),
    command: field("Command", "With its arguments, as in a terminal: uvx mcp-server-time", (props) => h("input", { type: "text", autocomplete: "off", spellcheck: "false", class: "code", ...props })),
    variables: field("Variables", "One a line, NAME=VALUE. For keys and tokens, for example.", (props) => h("textarea", { rows: 2, spellcheck: "false", class: "code", ...props }), "optional"),
    url: field("URL", "Where it answers: https://example.org/mcp", (props) => h("input", { type: "url", autocomplete: "off", spellcheck: "false", class: "code", ...props })),
    headers: field("Headers", "One a line, NAME: VALUE.", (props) => h("textarea", { rows: 2, spellcheck: "false", class: "code", ...props }), "optional"),
  };
  const kinds = { command: ["Starts on the hub's machine", "command", "variables"], url: ["Is reached over HTTP", "url", "headers"] };
  let kind = "command";
  const group = fresh("way");
  const choice = Object.entries(kinds).map(([each, [text]]) => {
    const input = h("input", { type: "radio", name: group, id: fresh("way"), checked: each === kind, on: { change: () => { kind = each; draw(); } } });
    return h("div", { class: "check" }, input, h("label", { for: input.id, text }));
  });

  function draw() {
    for (const [each, [, ...names]] of Object.entries(kinds)) for (const one of names) fields[one].element.hidden = each !== kind;
    drawPasted();
  }

  /** Show the command that adds what is written here so far. */
  function drawPasted() {
    const [name, command, url] = ["name", "command", "url"].map((each) => fields[each].value);
    const given = (each, option) => fields[each].value.split("\n").filter((line) => line.trim()).flatMap((line) => [option, quoted(line.trim())]);
    const words = kind === "url" ? ["--url", quoted(url || "URL"), ...given("headers", "--header").map((word) => word.replace(/: */, "="))]
      : [...given("variables", "--env"), "--", command || "uvx mcp-server-time"];
    refill(pasted, [adds, quoted(name || "NAME"), ...words].join(" "));
  }

  function checked() {
    for (const each of Object.values(fields)) each.fail("");
    const wrong = [];
    if (!NAME.test(fields.name.value)) wrong.push(["name", fields.name.value ? "Use letters, digits, . _ and -, and begin with a letter or digit." : "Please give a name."]);
    if (!fields[kind].value) wrong.push([kind, `Please give a ${kind === "url" ? "URL" : kind}.`]);
    else if (kind === "url" && !/^https?:\/\//i.test(fields.url.value)) wrong.push(["url", "A URL begins with https or http."]);
    return show(wrong) ? null : Object.fromEntries(["name", ...kinds[kind].slice(1)].map((each) => [each, fields[each].value]));
  }

  /** Put problems at their fields; return whether there are any. */
  function show(problems) {
    for (const [name, problem] of problems) fields[name]?.fail(problem);
    fields[problems.find(([name]) => fields[name])?.[0]]?.focus();
    return problems.length > 0;
  }

  async function submit(event) {
    event.preventDefault();
    trouble.textContent = "";
    const values = checked();
    if (!values) return;
    button.disabled = true;
    try {
      await ask("add_server", values);
      if (form.isConnected) location.hash = `#/server/${encodeURIComponent(values.name)}`;
    } catch (error) {
      if (!(error instanceof Refused)) trouble.textContent = "The bridge cannot be reached. Nothing was added, as far as this page knows.";
      else if (!show(error.violations)) trouble.textContent = sentence(error.message);
    } finally {
      button.disabled = false;
    }
  }

  const pasted = h("code", { class: "code", dir: "ltr" });
  const form = h("form", { class: "panel", on: { submit, input: drawPasted } }, fields.name.element,
    h("fieldset", { class: "field" }, h("legend", { text: "How it is reached" }), choice),
    fields.command.element, fields.variables.element, fields.url.element, fields.headers.element, trouble, h("div", { class: "row" }, button, h("a", { class: "button plain", href: "#/servers", text: "Cancel" })));
  form.noValidate = true;
  draw();
  refill(main, crumbs, h("h1", { text: "Add a server" }), h("p", { class: "help", text: "The hub connects to it at once, and keeps it until it is removed." }),
    h("section", { class: "panel", "aria-label": "What is refused here" },
      h("p", { text: "As it is installed, the hub starts no command from this page, and reaches no address of its own machine or network: a page must not start programs there. What allow_commands and allow_hosts of its configuration have is added here." }),
      h("p", { text: "Anything else is added on the hub's machine, by whom it belongs to. Paste this into a terminal there:" }),
      h("p", { class: "code", tabindex: "0", role: "group", "aria-label": "What to paste" }, pasted)), form);
  return { update() {}, leave() {} };
}

function field(title, help, make, note = "") {
  const id = fresh("field");
  const input = make({ id, "aria-describedby": `${id}-help ${id}-problem` });
  const problem = h("p", { class: "problem", id: `${id}-problem`, hidden: true });
  return {
    element: h("div", { class: "field" }, h("label", { for: id }, title, note ? h("span", { class: "optional", text: ` ${note}` }) : null),
      h("p", { class: "help", id: `${id}-help`, text: help }), input, problem),
    get value() { return input.value.trim(); },
    focus: () => input.focus(),
    fail(text) {
      problem.hidden = !text;
      problem.textContent = sentence(text);
      input.setAttribute("aria-invalid", String(Boolean(text)));
    },
  };
}

/** Return a word as a shell takes it. */
function quoted(word) {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

function sentence(text) {
  const shown = String(text).replace(/^Value error, /, "").slice(0, 500);
  return shown && `${shown[0].toUpperCase()}${shown.slice(1)}${/[.!?]$/.test(shown) ? "" : "."}`;
}
