// MCP content: texts, pictures and sounds; other content is described.

import { codeBlock, h, jsonBlock, textBlock, factList, isWebUrl, scrollAttributes } from "./dom.js";

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

/** Render one block of MCP content, or several. */
export function renderContent(value) {
  const blocks = Array.isArray(value) ? value : [value];
  const shown = blocks.slice(0, MAX_BLOCKS).map(renderBlock);
  if (blocks.length > MAX_BLOCKS) shown.push(h("p", { class: "help", text: `and ${blocks.length - MAX_BLOCKS} more` }));
  return shown;
}

/** Render one block by its type. */
function renderBlock(block) {
  switch (block?.type) {
    case "text":
      return textBlock(block.text);
    case "image":
      return renderMedia(block, IMAGES, (src) => h("img", { src, alt: "Picture sent by the server", class: "picture" }));
    case "audio":
      return renderMedia(block, SOUNDS, (src) => h("audio", { src, controls: true, preload: "none", "aria-label": "Sound sent by the server" }));
    case "resource":
      return h("div", {}, h("p", { class: "help", text: String(block.resource?.uri ?? "") }), block.resource?.text !== undefined ? textBlock(block.resource.text) : bracketed("binary resource"));
    case "resource_link":
      return h("p", { class: "help", text: `Link to ${block.uri}` });
    case "tool_use":
      return h("div", {}, h("p", { class: "help", text: `Uses the tool ${block.name}` }), jsonBlock(block.input, "Input of the tool"));
    case "tool_result":
      return h("div", {}, h("p", { class: "help", text: "Result of a tool" }), renderContent(block.content ?? []));
    default:
      return block === undefined || block === null ? bracketed("nothing") : jsonBlock(block, "Content of an unknown kind");
  }
}

/** Render a picture or sound of a type that browsers only display; describe anything else. `make(src)` returns the element. */
function renderMedia(block, types, make) {
  const type = String(block.mimeType ?? "").toLowerCase();
  const data = String(block.data ?? "");
  if (!types.has(type)) return bracketed(`${block.type} of the type ${type || "unknown"}, not shown`);
  if (data.length > MAX_BASE64 || !BASE64.test(data)) return bracketed(`${block.type} that is too large or broken, not shown`);
  let bytes;
  try {
    bytes = Uint8Array.from(atob(data), (char) => char.charCodeAt(0));
  } catch {
    return bracketed(`${block.type} that is broken, not shown`);
  }
  const src = URL.createObjectURL(new Blob([bytes], { type }));
  const element = make(src);
  element.addEventListener("load", () => URL.revokeObjectURL(src));
  element.addEventListener("error", () => element.replaceWith(bracketed(`${block.type} that cannot be shown`)));
  return element;
}

/** Render a description in square brackets, in place of content that is not shown. */
function bracketed(text) {
  return h("p", { class: "help", text: `[${text}]` });
}

/** Render the MCP result of a method: its content for people, and all of it as JSON. */
export function renderResult(method, value) {
  const whole = h("details", { class: "aside" }, h("summary", { text: "As JSON" }), jsonBlock(value, "Result as JSON"));
  if (method === "tools/call" && Array.isArray(value?.content)) {
    const failed = value.isError ? h("p", { class: "warning", text: "The tool says that it failed." }) : null;
    return h("div", {}, failed, renderContent(value.content), whole);
  }
  if (method === "resources/read" && Array.isArray(value?.contents)) return h("div", {}, value.contents.slice(0, MAX_BLOCKS).map(renderResourcePart), whole);
  if (method === "prompts/get" && Array.isArray(value?.messages)) return h("div", {}, textBlock(value.description ?? ""), messageList(value.messages), whole);
  whole.setAttribute("open", "");
  return h("div", {}, whole);
}

/** Render the arguments that a call was sent with, unfolded if they are short; null if there are none. */
export function sentArguments({ method, params }) {
  const given = method === "tools/call" || method === "prompts/get" ? params?.arguments : params;
  const pairs = Object.entries(given ?? {});
  if (!pairs.length) return null;
  const box = h("details", { class: "aside sent", open: JSON.stringify(given).length <= SHORT },
    h("summary", {}, "Called with ", pairs.length === 1 ? "this" : `these ${pairs.length.toLocaleString()} arguments`),
    h("dl", { class: "given" }, pairs.slice(0, MAX_ARGUMENTS).map(([name, value]) =>
      h("div", {}, h("dt", { text: name.slice(0, 300), dir: "auto" }), h("dd", {}, renderArgument(name, value))))));
  if (pairs.length > MAX_ARGUMENTS) box.append(h("p", { class: "help", text: `and ${pairs.length - MAX_ARGUMENTS} more` }));
  return box;
}

/** Render the value of an argument: a line of text as text, more lines as code; what is not short is folded. */
function renderArgument(name, value) {
  if (typeof value === "string") return value.includes("\n") ? codeBlock(value, name) : textBlock(value);
  const written = JSON.stringify(value);
  if (written.length <= INLINE) return textBlock(written, { class: "mono" });
  const box = h("details", { on: { toggle: () => { if (box.open && !box.querySelector(".code")) box.append(jsonBlock(value, name)); } } },
    h("summary", { text: Array.isArray(value) ? `A list of ${value.length.toLocaleString()}` : "An object" }));
  return box;
}

/** Render one part of a resource. */
function renderResourcePart(contents) {
  const type = String(contents?.mimeType ?? "");
  const shown = contents?.text === undefined && ["image", "audio"].find((each) => type.startsWith(`${each}/`));
  return renderBlock(shown ? { type: shown, mimeType: type, data: contents.blob } : { type: "resource", resource: contents });
}

/** Render messages, each with its role; of very many the last. */
export function messageList(messages) {
  const hidden = Math.max(0, messages.length - MAX_MESSAGES);
  const shown = messages.slice(hidden).map((message) =>
    h("li", {}, h("div", { class: message?.role === "assistant" ? "message assistant" : "message", ...scrollAttributes(JSON.stringify(message?.content), "Message") },
      h("p", { class: "role", text: message?.role === "assistant" ? "Assistant" : "User" }), renderContent(message?.content))));
  return [hidden ? h("p", { class: "help", text: `${hidden} earlier messages are not shown.` }) : null, h("ol", { class: "messages", "aria-label": "Messages" }, shown)];
}

/** Render a fault: code, message, category, and a link to its explanation. */
export function faultDetails(error) {
  if (!error) return null;
  const help = error.help_url && isWebUrl(error.help_url)
    ? h("a", { href: error.help_url, target: "_blank", rel: "noopener noreferrer", text: "What this means" }) : null;
  return h("div", { class: "fault" }, h("strong", { text: error.code ?? error.reason }), textBlock(error.message ?? ""), help,
    factList(["Category", error.category], ["Trying again may help", error.retryable === undefined ? null : error.retryable ? "yes" : "no"]));
}
