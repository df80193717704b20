// One entry of the catalog and the form to use it: call a tool, read a resource, get a prompt.

import { runAction, Refused } from "./api.js";
import { uniqueId, h, jsonBlock, refill, textBlock } from "./dom.js";
import { guardEnter, schemaForm } from "./form.js";

const VERBS = { tool: "Call", resource: "Read", template: "Read", prompt: "Get", skill: "Read" };
// Expressions of a template that are one variable (RFC 6570, levels 1 and 2); other templates are typed as a whole address.
const VARIABLE = /\{([+#]?)(\w+)(\*?)\}/g;

/** Return the key of an entry within its list. */
export function entryKey(kind, entry) {
  return String({ resource: entry.uri, template: entry.uriTemplate, skill: entry.uri }[kind] ?? entry.name);
}

/** Return the function that opens the page for entries of a kind. */
export function usePage(kind) {
  return (main, server, key, again) => entryPage(main, server, kind, key, again);
}

// What was called by a method, and the page to use it.
const USED = { "tools/call": ["tool", "name"], "resources/read": ["resource", "uri"], "prompts/get": ["prompt", "name"] };

/** Return whether there is a form that makes such a call again. */
export function isUsable(call) {
  return Object.hasOwn(USED, call.method) && typeof call.params?.[USED[call.method][1]] === "string";
}

/** Return the address of the form that makes a call again, filled in with what it was sent with. */
export function repeatAddress(call) {
  const [kind, named] = USED[call.method];
  return `#/${kind}/${[call.server, call.params[named], call.id].map(encodeURIComponent).join("/")}`;
}

/** Return the arguments that a call was sent with; empty if it is not known any more. */
async function fetchArguments(id) {
  const call = await runAction("sent", { id }).catch(() => null);
  return call?.params?.arguments ?? {};
}

/** Open the page of an entry; `callId` is the call whose arguments the form begins with. */
async function entryPage(main, server, kind, key, callId) {
  const [{ entries, ways }, given] = await Promise.all([runAction("catalog", { server, kind }), callId ? fetchArguments(callId) : {}]);
  const at = entries.findIndex((each) => entryKey(kind, each) === key);
  // A resource that was read by a template is in no list.
  const entry = entries[at] ?? (callId && kind === "resource" ? { uri: key } : undefined);
  const crumbs = h("div", { class: "crumbs" }, h("a", { href: "#/catalog", text: "Catalog" }), " / ", h("a", { href: `#/catalog/${encodeURIComponent(server)}`, text: server }));
  if (!entry) {
    refill(main, crumbs, h("h1", { text: `No ${kind} “${key}”` }), h("p", { text: "The server does not offer it, or not any more." }),
      h("div", { class: "row" }, h("a", { class: "button primary", href: `#/catalog/${encodeURIComponent(server)}`, text: "See what it offers" })));
    return { update() {}, leave() {}, title: "Not found" };
  }
  const trouble = h("p", { class: "problem", role: "alert" });
  const form = schemaForm(schemaOf(kind, entry), "arguments", { given });
  const { plain, task, reason } = ways[at] ?? { plain: true, task: false, reason: "" };
  const asTask = h("input", { type: "checkbox", id: uniqueId("as-task"), checked: !plain });
  const button = h("button", { class: "primary", type: "submit", text: VERBS[kind] });

  /** Start the call with what is filled in, and open its page. */
  async function submit(event) {
    event.preventDefault();
    const values = form.values();
    if (!values) return;
    button.disabled = true;
    trouble.textContent = "";
    try {
      const call = await runAction("start", { server, ...requestOf(kind, entry, values), as_task: asTask.checked });
      location.hash = `#/call/${encodeURIComponent(call.id)}`;
    } catch (error) {
      trouble.textContent = error instanceof Refused ? error.message : "The bridge cannot be reached. Nothing was sent, as far as this page knows.";
    } finally {
      button.disabled = false;
    }
  }

  const element = h("form", { on: { submit } }, form.empty ? h("p", { class: "help", text: "It takes no arguments." }) : form.element,
    kind === "tool" && plain && task ? h("div", { class: "check" }, asTask, h("label", { for: asTask.id, text: "As a task that the server holds" })) : null,
    plain ? null : h("p", { class: "help", text: reason }),
    trouble, h("div", { class: "row" }, button));
  element.noValidate = true;
  guardEnter(element, (text) => { trouble.textContent = text; });
  const address = entry.uri ?? entry.uriTemplate;
  refill(main, crumbs, h("h1", { text: entry.title ?? entry.name ?? key, dir: "auto" }), address ? h("p", { class: "id", text: address, dir: "ltr" }) : null,
    textBlock(entry.description ?? ""), h("section", { class: "panel" }, element),
    h("details", { class: "aside" }, h("summary", { text: "As JSON" }), jsonBlock(entry, "Entry as JSON")));
  return { update() {}, leave() {}, title: String(entry.title ?? entry.name ?? key) };
}

/** Return the schema of the fields that are needed to use an entry. */
function schemaOf(kind, entry) {
  if (kind === "tool") return entry.inputSchema;
  const fields = kind === "prompt" ? argumentsOf(entry) : kind === "template" ? variablesOf(String(entry.uriTemplate)).map((name) => ({ name, required: true })) : [];
  return {
    properties: Object.fromEntries(fields.map((each) => [each.name, { type: "string", title: each.title ?? each.name, description: each.description }])),
    required: fields.filter((each) => each.required).map((each) => each.name),
  };
}

/** Return the arguments of a prompt, without those that have no name. */
function argumentsOf(entry) {
  return Array.isArray(entry.arguments) ? entry.arguments.filter((each) => typeof each?.name === "string") : [];
}

/** Return the variables of a template; `uri` alone if they are not simple and the whole address is typed. */
function variablesOf(template) {
  if (isComplexTemplate(template)) return ["uri"];
  return [...new Set([...template.matchAll(VARIABLE)].map(([, , name]) => name))];
}

/** Return whether a template has expressions other than simple variables. */
function isComplexTemplate(template) {
  return template.replaceAll(VARIABLE, "").includes("{");
}

/** Return the MCP method and the params that use an entry. */
function requestOf(kind, entry, values) {
  if (kind === "tool") return { method: "tools/call", params: { name: entry.name, arguments: values } };
  if (kind === "prompt") return { method: "prompts/get", params: { name: entry.name, arguments: values } };
  if (kind === "resource" || kind === "skill") return { method: "resources/read", params: { uri: entry.uri } };
  const template = String(entry.uriTemplate);
  const uri = isComplexTemplate(template) ? values.uri
    : template.replaceAll(VARIABLE, (_, operator, name) => (operator ? encodeURI : encodeURIComponent)(values[name] ?? ""));
  return { method: "resources/read", params: { uri } };
}
