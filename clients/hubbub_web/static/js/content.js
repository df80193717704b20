// MCP content: texts, pictures and sounds; other content is described.

import { code, h, json, words, facts, isPage, scrolled } from "./dom.js";

const IMAGES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);
const SOUNDS = new Set(["audio/wav", "audio/x-wav", "audio/mpeg", "audio/mp3", "audio/ogg", "audio/webm", "audio/mp4", "audio/aac", "audio/flac"]);
const MAX_BASE64 = 12 * 1024 * 1024;
const MAX_BLOCKS = 50;
const MAX_ARGUMENTS = 100;
// Arguments of up to so many characters are shown at once.
const SHORT = 1000;
// Values of up to so many characters as JSON stand in their line.
const INLINE = 60;
const MAX_MESSAGES = 100;
const BASE64 = /^[A-Za-z0-9+/\s]*={0,2}\s*$/;

/** Render one block of content, or several. */
export function content(value) {
  const blocks = Array.isArray(value) ? value : [value];
  const shown = blocks.slice(0, MAX_BLOCKS).map(block);
  if (blocks.length > MAX_BLOCKS) shown.push(h("p", { class: "help", text: `and ${blocks.length - MAX_BLOCKS} more` }));
  return shown;
}

function block(it) {
  switch (it?.type) {
    case "text":
      return words(it.text);
    case "image":
      return media(it, IMAGES, (src) => h("img", { src, alt: "Picture sent by the server", class: "picture" }));
    case "audio":
      return media(it, SOUNDS, (src) => h("audio", { src, controls: true, preload: "none", "aria-label": "Sound sent by the server" }));
    case "resource":
      return h("div", {}, h("p", { class: "help", text: String(it.resource?.uri ?? "") }), it.resource?.text !== undefined ? words(it.resource.text) : aside("binary resource"));
    case "resource_link":
      return h("p", { class: "help", text: `Link to ${it.uri}` });
    case "tool_use":
      return h("div", {}, h("p", { class: "help", text: `Uses the tool ${it.name}` }), json(it.input, "Input of the tool"));
    case "tool_result":
      return h("div", {}, h("p", { class: "help", text: "Result of a tool" }), content(it.content ?? []));
    default:
      return it === undefined || it === null ? aside("nothing") : json(it, "Content of an unknown kind");
  }
}

/** Render a picture or sound of a type that browsers only display; describe anything else. */
function media(it, types, make) {
  const type = String(it.mimeType ?? "").toLowerCase();
  const data = String(it.data ?? "");
  if (!types.has(type)) return aside(`${it.type} of the type ${type || "unknown"}, not shown`);
  if (data.length > MAX_BASE64 || !BASE64.test(data)) return aside(`${it.type} that is too large or broken, not shown`);
  let bytes;
  try {
    bytes = Uint8Array.from(atob(data), (char) => char.charCodeAt(0));
  } catch {
    return aside(`${it.type} that is broken, not shown`);
  }
  const src = URL.createObjectURL(new Blob([bytes], { type }));
  const element = make(src);
  element.addEventListener("load", () => URL.revokeObjectURL(src));
  element.addEventListener("error", () => element.replaceWith(aside(`${it.type} that cannot be shown`)));
  return element;
}

function aside(text) {
  return h("p", { class: "help", text: `[${text}]` });
}

/** Render an MCP result: its content for people, and all of it as JSON. */
export function result(method, value) {
  const whole = h("details", { class: "aside" }, h("summary", { text: "As JSON" }), json(value, "Result as JSON"));
  if (method === "tools/call" && Array.isArray(value?.content)) {
    const failed = value.isError ? h("p", { class: "warning", text: "The tool says that it failed." }) : null;
    return h("div", {}, failed, content(value.content), whole);
  }
  if (method === "resources/read" && Array.isArray(value?.contents)) return h("div", {}, value.contents.slice(0, MAX_BLOCKS).map(part), whole);
  if (method === "prompts/get" && Array.isArray(value?.messages)) return h("div", {}, words(value.description ?? ""), spoken(value.messages), whole);
  whole.setAttribute("open", "");
  return h("div", {}, whole);
}

/** Render what a call was sent with, shown at once if it is short. */
export function sent({ method, params }) {
  const given = method === "tools/call" || method === "prompts/get" ? params?.arguments : params;
  const pairs = Object.entries(given ?? {});
  if (!pairs.length) return null;
  const box = h("details", { class: "aside sent", open: JSON.stringify(given).length <= SHORT },
    h("summary", {}, "Called with ", pairs.length === 1 ? "this" : `these ${pairs.length.toLocaleString()} arguments`),
    h("dl", { class: "given" }, pairs.slice(0, MAX_ARGUMENTS).map(([name, value]) =>
      h("div", {}, h("dt", { text: name.slice(0, 300), dir: "auto" }), h("dd", {}, argument(name, value))))));
  if (pairs.length > MAX_ARGUMENTS) box.append(h("p", { class: "help", text: `and ${pairs.length - MAX_ARGUMENTS} more` }));
  return box;
}

/** Render a value as it was given: a line of text as text, more of it as code, and what is not short once it is wanted. */
function argument(name, value) {
  if (typeof value === "string") return value.includes("\n") ? code(value, name) : words(value);
  const written = JSON.stringify(value);
  if (written.length <= INLINE) return words(written, { class: "mono" });
  const box = h("details", { on: { toggle: () => { if (box.open && !box.querySelector(".code")) box.append(json(value, name)); } } },
    h("summary", { text: Array.isArray(value) ? `A list of ${value.length.toLocaleString()}` : "An object" }));
  return box;
}

/** Render one part of a resource. */
function part(it) {
  const type = String(it?.mimeType ?? "");
  const shown = it?.text === undefined && ["image", "audio"].find((each) => type.startsWith(`${each}/`));
  return block(shown ? { type: shown, mimeType: type, data: it.blob } : { type: "resource", resource: it });
}

/** Render messages, each with its role; of very many the last. */
export function spoken(messages) {
  const hidden = Math.max(0, messages.length - MAX_MESSAGES);
  const shown = messages.slice(hidden).map((message) =>
    h("li", {}, h("div", { class: message?.role === "assistant" ? "message assistant" : "message", ...scrolled(JSON.stringify(message?.content), "Message") },
      h("p", { class: "role", text: message?.role === "assistant" ? "Assistant" : "User" }), content(message?.content))));
  return [hidden ? h("p", { class: "help", text: `${hidden} earlier messages are not shown.` }) : null, h("ol", { class: "messages", "aria-label": "Messages" }, shown)];
}

/** Render a fault. */
export function fault(error) {
  if (!error) return null;
  const help = error.help_url && isPage(error.help_url)
    ? h("a", { href: error.help_url, target: "_blank", rel: "noopener noreferrer", text: "What this means" }) : null;
  return h("div", { class: "fault" }, h("strong", { text: error.code ?? error.reason }), words(error.message ?? ""), help,
    facts(["Category", error.category], ["Trying again may help", error.retryable === undefined ? null : error.retryable ? "yes" : "no"]));
}
