// The form that adds a server: a command to start, or a URL.

import { runAction, Refused } from "./api.js";
import { uniqueId, h, refill } from "./dom.js";

const NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;

/** Open the page that adds a server. */
export async function addPage(main) {
  const crumbs = h("div", { class: "crumbs" }, h("a", { href: "#/servers", text: "Servers" }));
  const { may, command: adds } = await runAction("may_add");
  if (!may) {
    refill(main, crumbs, h("h1", { text: "Add a server" }), h("p", { text: "You may not add servers here. An administrator of the hub can, or can give you the role admin." }));
    return { update() {}, leave() {} };
  }
  const trouble = h("p", { class: "problem", role: "alert" });
  const button = h("button", { class: "primary", type: "submit", text: "Add server" });
  const fields = {
    name: inputField("Name", "Letters, digits, . _ and -. Callers use this name.", (props) => h("input", { type: "text", autocomplete: "off", spellcheck: "false", ...props })),
    command: inputField("Command", "With its arguments, as in a terminal: uvx mcp-server-time", (props) => h("input", { type: "text", autocomplete: "off", spellcheck: "false", class: "code", ...props })),
    variables: inputField("Variables", "One a line, NAME=VALUE. For keys and tokens, for example.", (props) => h("textarea", { rows: 2, spellcheck: "false", class: "code", ...props }), "optional"),
    url: inputField("URL", "Where it answers: https://example.org/mcp", (props) => h("input", { type: "url", autocomplete: "off", spellcheck: "false", class: "code", ...props })),
    headers: inputField("Headers", "One a line, NAME: VALUE.", (props) => h("textarea", { rows: 2, spellcheck: "false", class: "code", ...props }), "optional"),
  };
  const kinds = { command: ["Starts on the hub's machine", "command", "variables"], url: ["Is reached over HTTP", "url", "headers"] };
  let kind = "command";
  const group = uniqueId("way");
  const choice = Object.entries(kinds).map(([each, [text]]) => {
    const input = h("input", { type: "radio", name: group, id: uniqueId("way"), checked: each === kind, on: { change: () => { kind = each; drawFields(); } } });
    return h("div", { class: "check" }, input, h("label", { for: input.id, text }));
  });

  /** Show the fields of the chosen kind. */
  function drawFields() {
    for (const [each, [, ...names]] of Object.entries(kinds)) for (const one of names) fields[one].element.hidden = each !== kind;
    drawCommand();
  }

  /** Show the command that adds what is written here so far. */
  function drawCommand() {
    const [name, command, url] = ["name", "command", "url"].map((each) => fields[each].value);
    /** Return the words of an option for each line of a field. */
    const given = (each, option) => fields[each].value.split("\n").filter((line) => line.trim()).flatMap((line) => [option, quoteForShell(line.trim())]);
    const words = kind === "url" ? ["--url", quoteForShell(url || "URL"), ...given("headers", "--header").map((word) => word.replace(/: */, "="))]
      : [...given("variables", "--env"), "--", command || "uvx mcp-server-time"];
    refill(pasted, [adds, quoteForShell(name || "NAME"), ...words].join(" "));
  }

  /** Return the values to send; null if one is wrong, which its field then says. */
  function readFields() {
    for (const each of Object.values(fields)) each.showProblem("");
    const wrong = [];
    if (!NAME.test(fields.name.value)) wrong.push(["name", fields.name.value ? "Use letters, digits, . _ and -, and begin with a letter or digit." : "Please give a name."]);
    if (!fields[kind].value) wrong.push([kind, `Please give a ${kind === "url" ? "URL" : kind}.`]);
    else if (kind === "url" && !/^https?:\/\//i.test(fields.url.value)) wrong.push(["url", "A URL begins with https or http."]);
    return showProblems(wrong) ? null : Object.fromEntries(["name", ...kinds[kind].slice(1)].map((each) => [each, fields[each].value]));
  }

  /** Show problems at their fields; return whether there are any. */
  function showProblems(problems) {
    for (const [name, problem] of problems) fields[name]?.showProblem(problem);
    fields[problems.find(([name]) => fields[name])?.[0]]?.focus();
    return problems.length > 0;
  }

  /** Add the server, if the fields are right, and open its page. */
  async function submit(event) {
    event.preventDefault();
    trouble.textContent = "";
    const values = readFields();
    if (!values) return;
    button.disabled = true;
    try {
      await runAction("add_server", values);
      if (form.isConnected) location.hash = `#/server/${encodeURIComponent(values.name)}`;
    } catch (error) {
      if (!(error instanceof Refused)) trouble.textContent = "The bridge cannot be reached. Nothing was added, as far as this page knows.";
      else if (!showProblems(error.violations)) trouble.textContent = asSentence(error.message);
    } finally {
      button.disabled = false;
    }
  }

  const pasted = h("code", { class: "code", dir: "ltr" });
  const form = h("form", { class: "panel", on: { submit, input: drawCommand } }, fields.name.element,
    h("fieldset", { class: "field" }, h("legend", { text: "How it is reached" }), choice),
    fields.command.element, fields.variables.element, fields.url.element, fields.headers.element, trouble, h("div", { class: "row" }, button, h("a", { class: "button plain", href: "#/servers", text: "Cancel" })));
  form.noValidate = true;
  drawFields();
  refill(main, crumbs, h("h1", { text: "Add a server" }), h("p", { class: "help", text: "The hub connects to it at once, and keeps it until it is removed." }),
    h("section", { class: "panel", "aria-label": "What is refused here" },
      h("p", { text: "As it is installed, the hub starts no command from this page, and reaches no address of its own machine or network: a page must not start programs there. What allow_commands and allow_hosts of its configuration have is added here." }),
      h("p", { text: "Anything else is added on the hub's machine, by whom it belongs to. Paste this into a terminal there:" }),
      h("p", { class: "code", tabindex: "0", role: "group", "aria-label": "What to paste" }, pasted)), form);
  return { update() {}, leave() {} };
}

/** Make a labelled field; `make(props)` returns its input. */
function inputField(title, help, make, note = "") {
  const id = uniqueId("field");
  const input = make({ id, "aria-describedby": `${id}-help ${id}-problem` });
  const problem = h("p", { class: "problem", id: `${id}-problem`, hidden: true });
  return {
    element: h("div", { class: "field" }, h("label", { for: id }, title, note ? h("span", { class: "optional", text: ` ${note}` }) : null),
      h("p", { class: "help", id: `${id}-help`, text: help }), input, problem),
    get value() { return input.value.trim(); },
    focus: () => input.focus(),
    /** Show a problem below the field; an empty one removes it. */
    showProblem(text) {
      problem.hidden = !text;
      problem.textContent = asSentence(text);
      input.setAttribute("aria-invalid", String(Boolean(text)));
    },
  };
}

/** Return a word quoted for a shell, if it needs quotes. */
function quoteForShell(word) {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

/** Return a problem as a sentence. */
function asSentence(text) {
  const shown = String(text).replace(/^Value error, /, "").slice(0, 500);
  return shown && `${shown[0].toUpperCase()}${shown.slice(1)}${/[.!?]$/.test(shown) ? "" : "."}`;
}
