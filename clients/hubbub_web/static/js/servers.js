// Servers: the connection of each, and one server with its log.

import { runAction, Refused } from "./api.js";
import { defectWarning, defectPill, factList, h, jsonBlock, pill, refill, textBlock } from "./dom.js";
import { faultDetails } from "./content.js";
import { describeEvent } from "./events.js";
import { entryLink, rowList } from "./list.js";
import { oneAtATime, tables } from "./store.js";
import { timeLeft } from "./time.js";

/** Open the page of all servers. */
export function serversPage(main) {
  const list = rowList(serverRow, { name: "Servers", empty: h("p", {}, "No servers are configured. ", h("a", { href: "#/add", text: "Add one" }), " here, or with ", h("code", { text: "hubbub servers add" }), ".") });
  const add = h("a", { class: "button primary", href: "#/add", hidden: true, text: "Add a server" });
  refill(main, h("div", { class: "heading" }, h("h1", { text: "Servers" }), add), list.element);
  runAction("may_add").then(({ may }) => { add.hidden = !may; }, () => {});
  /** Draw the servers by name. */
  const draw = () => list.show([...tables.server.values()].sort((a, b) => (a.name < b.name ? -1 : 1)));
  draw();
  return { update: draw, leave() {}, list };
}

/** Render the row of a server. */
function serverRow(server) {
  const queue = server.queue ?? {};
  const busy = [["queued", queue.queued], ["in progress", queue.in_progress], ["waiting for people", queue.waiting_input]].filter(([, count]) => count);
  const said = server.server_info?.title ?? server.server_info?.name ?? "";
  return [entryLink(`#/server/${encodeURIComponent(server.name)}`, {
    title: server.name, right: [defectPill(server), statePill(server)], chips: [[server.transport, server.protocol_version].filter(Boolean).join(" · ")],
    more: [server.error ? h("span", { class: "ended", dir: "auto", text: `${server.error.code}: ${server.error.message ?? ""}` }) : null,
      server.next_retry_at ? h("span", {}, "next attempt: ", timeLeft(server.next_retry_at)) : null,
      h("span", { text: busy.map(([name, count]) => `${count} ${name}`).join(", ") || "idle" }), said && said !== server.name ? h("span", { text: said, dir: "auto" }) : null],
  })];
}

/** Render the state of a connection; "gave up" for one that the hub does not try again. */
function statePill(server) {
  return server.gave_up ? pill("gave_up") : pill(server.state);
}

/** Render how to connect a server that the hub has given up; null for others. */
function gaveUpWarning(server) {
  if (!server.gave_up) return null;
  return h("p", { class: "warning" }, "The hub has given up on it and does not try again by itself. Connect it here, or type ",
    h("code", { text: `hubbub servers connect ${server.name}` }), ".");
}

/** Render the hub's notes about a server, for its author; null if there are none. */
function noteSection(notes) {
  if (!notes?.length) return null;
  return h("section", { class: "panel" }, h("h2", { text: "Noted" }), h("ul", {}, notes.map((note) => h("li", { dir: "auto", text: note }))));
}

/** Open the page of one server. */
export async function serverPage(main, name) {
  const box = h("div");
  const log = h("section", { class: "panel" });
  const trouble = h("p", { class: "problem", role: "alert" });
  let seen = "";
  refill(main, h("div", { class: "crumbs" }, h("a", { href: "#/servers", text: "Servers" })), h("h1", { text: name }), trouble, box, log);

  /** Connect or disconnect the server. */
  async function setDesiredState(to) {
    trouble.textContent = "";
    try {
      await runAction("set_server", { name, to });
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      trouble.textContent = error.message;
    }
  }

  /** Read the server and the end of its log, and draw both. */
  async function draw() {
    const { server, logs } = await runAction("server", { name });
    seen = shownState(server);
    const on = server.desired_state === "connected";
    const info = server.server_info ?? {};
    const queue = server.queue ?? {};
    refill(box, h("div", { class: "status" }, statePill(server),
      on ? h("button", { type: "button", class: "danger", text: "Disconnect", on: { click: () => setDesiredState("disconnected") } }) : null,
      on && server.state !== "error" && !server.gave_up ? null : h("button", { type: "button", text: "Connect", on: { click: () => setDesiredState("connected") } }),
      h("a", { class: "button plain", href: `#/catalog/${encodeURIComponent(name)}`, text: "What it offers" }),
      h("a", { class: "button plain", href: `#/events/${encodeURIComponent(name)}`, text: "Its events" })),
    defectWarning(server), gaveUpWarning(server),
    factList(["Says it is", [info.title ?? info.name, info.version].filter(Boolean).join(" ")], ["Transport", server.transport], ["MCP revision", server.protocol_version],
      ["Process", server.pid], ["Queued", queue.queued], ["In progress", queue.in_progress], ["Waiting for people", queue.waiting_input],
      ["Completed", queue.completed], ["Failed", queue.failed], ["Failed attempts", server.attempt || null]),
    server.error ? h("section", { class: "panel" }, h("h2", { text: "What is wrong" }), faultDetails(server.error)) : null,
    noteSection(server.notes),
    h("details", { class: "aside" }, h("summary", { text: "Capabilities" }), jsonBlock(server.capabilities, "Capabilities as JSON")));
    const lines = logs.length ? textBlock(logs.map(logLine).join("\n"), { class: "code", tabindex: "0", role: "group", "aria-label": "Log", dir: "ltr" })
      : h("p", { class: "none", text: "It has said nothing." });
    refill(log, h("div", { class: "heading" }, h("h2", { text: "Last lines of its log" }),
      h("button", { type: "button", class: "plain", text: "Read again", on: { click: draw } })), lines);
    lines.scrollTop = lines.scrollHeight;
  }

  /** Draw the server again if it has changed. */
  async function update() {
    const short = tables.server.get(name);
    if (short && shownState(short) !== seen) await draw();
  }

  await draw();
  return { update: oneAtATime(update), leave() {}, title: name };
}

/** Return a value that changes when the page must be drawn again. */
function shownState(server) {
  return JSON.stringify([server.state, server.desired_state, server.error?.code, server.queue, server.gave_up, server.defect, server.notes]);
}

/** Return a line of the log, with its time. */
function logLine(event) {
  return `${new Date(event.at).toLocaleTimeString()}  ${describeEvent(event)}`;
}
