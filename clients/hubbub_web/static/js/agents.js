// Coding agents behind the hub: their sessions, as they change, and a form to start one.

import { runAction, Refused, stream } from "./api.js";
import { codeBlock, uniqueId, h, pill, refill } from "./dom.js";
import { guardEnter } from "./form.js";
import { entryLink, rowList, searchBox } from "./list.js";
import { tables } from "./store.js";
import { ago } from "./time.js";

const AGAIN_MS = 2000;
const FOLDER = "hubbub-folder";

/** Yield the states of sessions that the bridge streams, of all or of one, until `signal`; after a break it goes on. `showProblem` gets why there are none, empty when there are again. */
export async function* followSessions(args, signal, showProblem) {
  while (!signal.aborted) {
    try {
      for await (const lines of stream("sessions", args, signal)) {
        showProblem("");
        for (const line of lines) if (Object.keys(line).length) yield line;
      }
    } catch (error) {
      if (!signal.aborted) showProblem(error instanceof Refused ? error.message : "");
    }
    if (!signal.aborted) await new Promise((resume) => setTimeout(resume, AGAIN_MS));
  }
}

/** Return `start`, which calls a tool of an agent, and `update`, which shows in `trouble` why the last call failed once it has. */
export function agentCalls(trouble) {
  let running = null;
  /** Show why a call failed, with a link to it. */
  async function showFailure(id) {
    const { call } = await runAction("call", { id });
    const text = call.error ? call.error.message ?? call.error.code : call.result?.content?.find?.((each) => each?.type === "text")?.text ?? "It failed.";
    refill(trouble, text, " ", h("a", { href: `#/call/${encodeURIComponent(id)}`, text: "The call" }));
  }
  return {
    /** Start a call; return whether it was taken. */
    async start(server, name, given) {
      trouble.textContent = "";
      try {
        running = (await runAction("start", { server, method: "tools/call", params: { name, arguments: given } })).id;
        return true;
      } catch (error) {
        trouble.textContent = error instanceof Refused ? error.message : "The bridge cannot be reached. Nothing was sent, as far as this page knows.";
        return false;
      }
    },
    /** Once the running call has ended, show why it failed, if it did. */
    update() {
      const call = running && tables.call.get(running);
      if (!call?.done) return;
      const id = running;
      running = null;
      if (call.error || call.outcome === "tool error") showFailure(id).catch(() => {});
    },
  };
}

/** Open the page of all sessions of all agents. */
export function agentsPage(main) {
  const control = new AbortController();
  const trouble = h("p", { class: "problem", role: "alert" });
  const problems = h("div");
  const none = h("div", {}, h("p", { text: "Loading…" }));
  const search = searchBox("Search", () => draw());
  const list = rowList(sessionRow, { name: "Sessions", empty: none });
  const more = h("p", { class: "help" });
  const begin = startForm();
  let now = { agents: [], sessions: [], more: 0, problem: "" };
  refill(main, h("h1", { text: "Agents" }), begin.element, trouble, problems, h("div", { class: "filters", role: "search" }, search.element), list.element, more);

  /** Draw the newest state of the sessions. */
  function draw() {
    list.show(now.sessions.map((each) => ({ ...each, key: each.id, id: `${each.server} ${each.id}` }))
      .filter((each) => search.matches(each.title, each.server, each.cwd, each.agent)));
    search.element.parentElement.hidden = now.sessions.length < 6;
    more.textContent = now.more ? `and ${now.more.toLocaleString()} older ones` : "";
    refill(problems, now.agents.filter((each) => each.problem).map((each) => h("p", { class: "warning", dir: "auto", text: `${each.server}: ${each.problem}` })));
    refill(none, now.problem ? h("p", { text: now.problem }) : now.agents.length ? noSessions() : noAgents());
    begin.setAgents(now.agents.map((each) => each.server));
  }

  /** Draw each state that the bridge streams, until the page is left. */
  async function follow() {
    for await (const line of followSessions({}, control.signal, (text) => { trouble.textContent = text; })) {
      now = line;
      draw();
    }
  }
  follow();
  return { update: begin.update, leave: () => control.abort(), list };
}

/** Render what to do when there are agents but no sessions. */
function noSessions() {
  return [h("p", { class: "big", text: "No agent works." }), h("p", { text: "Start one above: say what it is to do, and in which folder." })];
}

/** Render how to add the first agent. */
function noAgents() {
  return [h("p", { class: "big", text: "No coding agent is behind the hub." }), h("p", { text: "One command adds opencode, Gemini CLI, Claude Code, Codex or another:" }),
    codeBlock("hubbub servers add coder --agent opencode", "Command")];
}

/** Render the row of a session. */
function sessionRow(each) {
  return [entryLink(`#/session/${encodeURIComponent(each.server)}/${encodeURIComponent(each.key)}`, {
    title: each.title, right: [statePill(each.state), ago(each.updated_at)], chips: [each.server],
    more: [each.waiting_for ? h("span", { class: "claimed", dir: "auto", text: `waits: ${each.waiting_for}` }) : null,
      each.end ? h("span", { class: "ended", dir: "auto", text: each.end }) : null, h("span", { dir: "ltr", text: each.cwd }), h("span", { text: each.agent, dir: "auto" })],
  })];
}

/** Render the state of a session. */
export function statePill(state) {
  const [look, text] = { waiting: ["open", "waits for you"], lost: ["failed", "lost"] }[state] ?? [state, state];
  return pill(look, text);
}

/** Make the form that starts a session of one of the agents. */
function startForm() {
  const trouble = h("p", { class: "problem", role: "alert" });
  const said = h("p", { class: "help", role: "status" });
  const turn = agentCalls(trouble);
  const [agentId, promptId, folderId] = ["agent", "prompt", "folder"].map(uniqueId);
  const agent = h("select", { id: agentId });
  const prompt = h("textarea", { id: promptId, rows: 3, dir: "auto" });
  const folder = h("input", { type: "text", id: folderId, dir: "ltr", spellcheck: "false", autocomplete: "off", placeholder: "/srv/shop", value: localStorage.getItem(FOLDER) ?? "" });
  const which = h("div", { class: "field" }, h("label", { for: agentId, text: "Agent" }), agent);
  const send = h("button", { type: "submit", class: "primary", text: "Start" });
  const all = h("a", { class: "button plain", text: "With mode and model" });
  const form = h("form", { on: { submit } }, which, h("div", { class: "field" }, h("label", { for: promptId, text: "What is it to do?" }), prompt),
    h("div", { class: "field" }, h("label", { for: folderId, text: "In the folder" }), folder), trouble, h("div", { class: "row" }, send, all));
  form.noValidate = true;
  guardEnter(form, (text) => { trouble.textContent = text; });
  const element = h("details", { class: "panel", hidden: true }, h("summary", { text: "Start a session" }), form, said);

  /** Start a session with what is filled in, or show what is missing. */
  async function submit(event) {
    event.preventDefault();
    const given = { prompt: prompt.value.trim(), cwd: folder.value.trim() };
    trouble.textContent = given.prompt ? given.cwd ? "" : "Please say in which folder." : "Please say what it is to do.";
    if (trouble.textContent) return;
    send.disabled = true;
    if (await turn.start(agent.value, "start", given)) {
      localStorage.setItem(FOLDER, given.cwd);
      prompt.value = "";
      said.textContent = "It starts; its session appears below.";
    }
    send.disabled = false;
  }

  /** Let the link lead to the tool of the chosen agent. */
  function updateLink() {
    if (agent.value) all.setAttribute("href", `#/tool/${encodeURIComponent(agent.value)}/start`);
  }
  agent.addEventListener("change", updateLink);
  return {
    element,
    update: turn.update,
    /** Set the agents to choose from; without any, the form is hidden. */
    setAgents(names) {
      element.hidden = !names.length;
      which.hidden = names.length < 2;
      if ([...agent.options].map((each) => each.value).join("\n") === names.join("\n")) return;
      const chosen = agent.value;
      refill(agent, names.map((value) => h("option", { value, text: value, selected: value === chosen })));
      updateLink();
    },
  };
}
