// Tasks: receiver tasks, held by the hub for servers, and client tasks, held by servers for the hub.

import { runAction, Refused } from "./api.js";
import { defectWarning, defectPill, factList, h, pill, refill } from "./dom.js";
import { faultDetails, renderResult } from "./content.js";
import { chooser, entryLink, rowList, searchBox } from "./list.js";
import { callName, newestFirst, oneAtATime, tables } from "./store.js";
import { ago, duration } from "./time.js";

// Pending requests of a task that its short form names.
const SEEN = 100;
const ROLES = { receiver: "held by the hub for the server", client: "held by the server" };

/** Open the page of all tasks. */
export function tasksPage(main) {
  const list = rowList(taskRow, { name: "Tasks", empty: h("p", { text: "There are no tasks. A task is a long request whose result is fetched later." }) });
  const search = searchBox("Search", draw);
  const role = chooser("Both roles", draw);
  role.addChoices(["receiver", "client"]);
  refill(main, h("h1", { text: "Tasks" }), h("div", { class: "filters", role: "search" }, search.element, role.element), list.element);
  /** Draw the tasks that match the search and the role. */
  function draw() {
    list.show(newestFirst(tables.task).filter((task) => (!role.value || task.role === role.value) && search.matches(task.id, task.server, task.status_message, taskTitle(task))));
  }
  draw();
  return { update: draw, leave() {}, list };
}

/** Return what a task is about: its question, else its call, else its method. */
function taskTitle(task) {
  const asked = task.pending_ids.map((id) => tables.request.get(id)?.question).find(Boolean);
  return asked ?? (tables.call.has(task.call_id) ? callName(task.call_id) : task.method ?? "Task");
}

/** Render the row of a task. */
function taskRow(task) {
  return [entryLink(`#/task/${encodeURIComponent(task.id)}`, {
    title: taskTitle(task), right: [defectPill(task), pill(task.status)], chips: [task.server, ROLES[task.role]],
    more: [ago(task.created_at), task.status_message ? h("span", { text: task.status_message, dir: "auto" }) : null],
  })];
}

/** Open the page of one task. */
export async function taskPage(main, id) {
  let seen = "";
  const box = h("div");
  const heading = h("h1", { dir: "auto" });
  const trouble = h("p", { class: "problem", role: "alert" });
  refill(main, h("div", { class: "crumbs" }, h("a", { href: "#/tasks", text: "Tasks" })), heading, trouble, box);

  /** Cancel the task, or show why the hub refuses that. */
  async function cancel() {
    try {
      await runAction("cancel_task", { id });
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      trouble.textContent = error.message;
    }
  }

  /** Read the task and draw it. */
  async function draw() {
    const { task, result: outcome, error } = await runAction("task", { id });
    seen = shownState(task);
    refill(heading, taskTitle(task));
    const over = ["completed", "failed", "cancelled"].includes(task.status);
    refill(box, h("div", { class: "status" }, pill(task.status), over ? null : h("button", { type: "button", class: "danger", text: "Cancel task", on: { click: cancel } })),
      defectWarning(task),
      factList(["Id", task.id], ["Server", h("a", { href: `#/server/${encodeURIComponent(task.server)}`, text: task.server })], ["Role", ROLES[task.role]], ["Method", task.method],
        ["Says", task.status_message], ["Made", ago(task.created_at)], ["Last change", ago(task.last_updated_at)], ["Lives", task.ttl_ms && duration(task.ttl_ms)],
        ["Polled every", task.poll_interval_ms && duration(task.poll_interval_ms)],
        ["Call", task.call_id && h("a", { href: `#/call/${encodeURIComponent(task.call_id)}`, text: callName(task.call_id), dir: "auto" })],
        ["Questions", task.pending_ids.length ? h("span", {}, task.pending_ids.slice(0, 50).map((each) => [h("a", { href: `#/request/${encodeURIComponent(each)}`, text: tables.request.get(each)?.question || each, dir: "auto" }), " "])) : null]),
      over ? h("section", { class: "panel" }, h("h2", { text: error ? "Why it ended" : "Result" }), error ? faultDetails(error) : renderResult(task.method, outcome)) : null);
  }

  /** Draw the task again if it has changed. */
  async function update() {
    const short = tables.task.get(id);
    if (short && shownState(short) !== seen) await draw();
  }

  await draw();
  return { update: oneAtATime(update), leave() {}, title: heading.textContent };
}

/** Return a value that changes when the page must be drawn again. */
function shownState(task) {
  return JSON.stringify([task.status, task.last_updated_at, Math.min(task.pending_ids.length, SEEN)]);
}
