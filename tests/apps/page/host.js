// A host of MCP Apps. The client, and what stands between it and an app's page, are the official ones. Who drives
// this page (`apps.py`) calls `host.connect` and `host.open`, and reads `host.heard`.

import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import {
  AppBridge,
  PostMessageTransport,
  RESOURCE_MIME_TYPE,
  SANDBOX_PROXY_READY_METHOD,
  getToolUiResourceUri,
  isToolVisibilityAppOnly,
} from "@modelcontextprotocol/ext-apps/app-bridge";

const IMPLEMENTATION = { name: "apps-host", version: "1" };
const UI = "io.modelcontextprotocol/ui";

/** What apps said to the host, in order. */
const heard = [];

let client;
let tools = new Map();

/** Carries messages to a process and back, by the functions of the one who drives the page. */
class ProcessTransport {
  async start() {
    window.receiveMessage = (message) => this.onmessage?.(message);
  }
  async send(message) {
    await window.sendMessage(message);
  }
  async close() {
    this.onclose?.();
  }
}

/** Connects to an endpoint, or to a process if there is no address; returns what the server says of itself. */
async function connect({ url, token, revision, apps }) {
  const capabilities = apps ? { extensions: { [UI]: { mimeTypes: [RESOURCE_MIME_TYPE] } } } : {};
  // The client can only insist on revisions without a handshake; without options it makes one of 2025-11-25.
  const negotiation = revision > "2026" ? { versionNegotiation: { mode: { pin: revision } } } : {};
  // As hosts do; by the stream of these notifications a hub knows which process it is, where there are no sessions.
  const listChanged = { tools: { autoRefresh: false, onChanged: () => {} } };
  client = new Client(IMPLEMENTATION, { capabilities, listChanged, ...negotiation });
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  await client.connect(
    url ? new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } }) : new ProcessTransport(),
  );
  document.querySelector("#place").textContent = url ?? "over stdio";
  return { ...(await listTools()), capabilities: client.getServerCapabilities() };
}

async function listTools() {
  const listed = await client.listTools();
  tools = new Map(listed.tools.map((tool) => [tool.name, tool]));
  return {
    revision: client.getNegotiatedProtocolVersion(),
    tools: [...tools.keys()],
    forModel: [...tools.values()].filter((tool) => !isToolVisibilityAppOnly(tool)).map((tool) => tool.name),
  };
}

/** Calls a tool as a model does, and shows the page of its app, if it has one. */
async function open(name, args) {
  const figure = document.createElement("figure");
  figure.innerHTML = "<figcaption>The model called <code></code></figcaption>";
  figure.querySelector("code").textContent = name;
  document.querySelector("main").append(figure);
  try {
    const uri = getToolUiResourceUri(tools.get(name) ?? {});
    const result = client.callTool({ name, arguments: args });
    if (uri) await showApp(figure, await readPage(uri), args, result);
    else write(figure, (await result).content.map((block) => block.text).join(" "));
  } catch (error) {
    write(figure, String(error), "trouble");
    throw error;
  }
}

async function readPage(uri) {
  const { contents } = await client.readResource({ uri });
  const [content] = contents;
  if (contents.length !== 1 || content.mimeType !== RESOURCE_MIME_TYPE) {
    throw new Error(`${uri} is no page of an app: ${contents.map((each) => each.mimeType)}`);
  }
  const { csp, permissions } = content._meta?.ui ?? {};
  const html = content.text ?? new TextDecoder().decode(Uint8Array.fromBase64(content.blob));
  return { uri: content.uri, html, csp, permissions };
}

async function showApp(figure, { uri, html, csp, permissions }, args, result) {
  const frame = document.createElement("iframe");
  frame.setAttribute("sandbox", "allow-scripts allow-same-origin allow-forms");
  frame.title = uri;
  const ready = new Promise((resolve) => {
    window.addEventListener("message", ({ source, data }) => {
      if (source === frame.contentWindow && data?.method === SANDBOX_PROXY_READY_METHOD) resolve();
    });
  });
  const sandbox = new URL("/sandbox.html", location.href);
  sandbox.hostname = "localhost";
  sandbox.searchParams.set("csp", JSON.stringify(csp ?? {}));
  frame.src = sandbox.href;
  figure.append(frame);
  await ready;
  const bridge = newBridge(figure, frame);
  const initialized = new Promise((resolve) => bridge.addEventListener("initialized", resolve));
  await bridge.connect(new PostMessageTransport(frame.contentWindow, frame.contentWindow));
  await bridge.sendSandboxResourceReady({ html, csp, permissions });
  await initialized;
  await bridge.sendToolInput({ arguments: args });
  await bridge.sendToolResult(await result);
}

function newBridge(figure, frame) {
  const { tools: serverTools, resources: serverResources } = client.getServerCapabilities();
  const capabilities = { openLinks: {}, logging: {}, message: {}, updateModelContext: {}, serverTools, serverResources };
  const hostContext = { theme: "light", platform: "web", displayMode: "inline" };
  const bridge = new AppBridge(client, IMPLEMENTATION, capabilities, { hostContext });
  const hear = (kind, said) => heard.push({ frame: frame.title, kind, said });
  const answer = (kind, words) => async (params) => {
    hear(kind, params);
    write(figure, words(params));
    return {};
  };
  bridge.onmessage = answer("message", ({ content }) => `Message: ${content[0].text}`);
  bridge.onopenlink = answer("link", ({ url }) => `Link: ${url}`);
  bridge.onupdatemodelcontext = answer("context", () => "For the model: more context");
  bridge.onloggingmessage = (params) => hear("log", params);
  bridge.onsizechange = (size) => {
    hear("size", size);
    if (size.height) frame.style.height = `${Math.min(size.height, 900)}px`;
  };
  return bridge;
}

function write(figure, words, kind = "") {
  const line = document.createElement("p");
  line.className = kind;
  line.textContent = words;
  figure.append(line);
}

window.host = { connect, open, heard, request: (request) => client.request(request) };
