// The person at this browser: name, a link for another browser, notifications, logout.

import { runAction, login, Refused } from "./api.js";
import { uniqueId, h, refill } from "./dom.js";
import { parseLoginLink, linkProblem } from "./enter.js";
import { showLoginCode } from "./hostlogin.js";
import { pushChoice, unsubscribe } from "./push.js";

const NAME = "hubbub-name";
const NOTIFY = "hubbub-notify";
const NO_NAME = [400, 403];

let given = null;
let fixed = false;

/** Return the name under which this browser answers. */
export function myName() {
  return given ?? localStorage.getItem(NAME);
}

/** Return whether this person wants notifications of new pending requests. */
export function wantsNotifications() {
  return localStorage.getItem(NOTIFY) === "yes" && "Notification" in window && Notification.permission === "granted";
}

/** Return the name of this browser at the bridge, or the stored one if the hub accepts it; null if the person must be asked. */
export async function fetchName() {
  const before = myName();
  const me = await runAction("me");
  fixed = me.fixed;
  given = me.name ?? (before ? await reuseName(before) : null);
  return given;
}

/** Set the stored name at the bridge and return it; null if the hub does not accept it any more. */
async function reuseName(name) {
  try {
    return (await runAction("rename", { name })).name;
  } catch (error) {
    if (!(error instanceof Refused) || !NO_NAME.includes(error.status)) throw error;
    localStorage.removeItem(NAME);
    return null;
  }
}

/** Open the dialog for the name and the settings; `done(name)` is called with a new name. */
export function openPersonDialog(dialog, current, done) {
  const id = uniqueId("name");
  const problem = h("p", { class: "problem", id: `${id}-problem`, role: "alert" });
  const input = h("input", { type: "text", id, autocomplete: "nickname", "aria-describedby": `${id}-help ${id}-problem`, "aria-required": "true" });
  input.value = current ?? myName() ?? "";
  input.readOnly = fixed;

  /** Set the name at the bridge, or show why it is not accepted. */
  async function submit(event) {
    event.preventDefault();
    if (fixed) return dialog.close();
    try {
      const { name } = await runAction("rename", { name: input.value });
      localStorage.setItem(NAME, name);
      given = name;
      dialog.close();
      done(name);
    } catch (error) {
      problem.textContent = nameProblem(error, input.value);
      input.setAttribute("aria-invalid", "true");
      input.focus();
    }
  }

  refill(dialog, h("form", { on: { submit } },
    h("h2", { id: `${id}-title`, text: current ? "You" : "Who are you?" }),
    h("div", { class: "field" }, h("label", { for: id, text: "Your name" }),
      h("p", { class: "help", id: `${id}-help`, text: fixed ? "The hub knows this page by its token, and lets it speak for nobody else." : "Others see who is answering, and who has answered." }), input, problem),
    h("div", { class: "row" }, fixed ? null : h("button", { class: "primary", type: "submit", text: current ? "Save" : "Start" }),
      current ? h("button", { type: "button", class: "plain", text: "Close", on: { click: () => dialog.close() } }) : null)),
  current ? settingsSection() : null);
  dialog.setAttribute("aria-labelledby", `${id}-title`);
  // The name is required; once there is one, Esc closes.
  dialog.oncancel = (event) => { if (!current) event.preventDefault(); };
  dialog.showModal();
  input.focus();
  input.select();
}

/** Return in words why a name was not accepted. */
function nameProblem(error, name) {
  if (!(error instanceof Refused)) return "The bridge cannot be reached.";
  if (!name.trim()) return "Please give a name.";
  return error.reason === "NAMING_NOT_ALLOWED" ? "Nobody may take this name." : `${error.message[0].toUpperCase()}${error.message.slice(1)}.`;
}

/** Render the settings: notifications, links and logging out. */
function settingsSection() {
  const output = h("p", { class: "address", role: "status", dir: "ltr" });
  const code = h("div", { role: "status" });
  const notify = h("input", { type: "checkbox", id: uniqueId("notify"), checked: wantsNotifications(), on: { change: setNotifications } });
  /** Store whether notifications are wanted, if the browser allows them. */
  async function setNotifications() {
    const may = notify.checked && "Notification" in window && (await Notification.requestPermission()) === "granted";
    localStorage.setItem(NOTIFY, may ? "yes" : "no");
    notify.checked = may;
  }
  return h("div", { class: "more-choices" },
    h("div", { class: "check" }, notify, h("label", { for: notify.id, text: "Notify me of new requests while I look elsewhere" })),
    pushChoice(),
    h("div", { class: "row" },
      h("button", { type: "button", text: "Link for another browser", on: { click: async () => { output.textContent = (await runAction("link")).url; } } }),
      h("button", { type: "button", text: "Let a host log in", on: { click: () => showLoginCode(code) } }),
      h("button", { type: "button", class: "plain", text: "Log out", on: { click: async () => { await unsubscribe(); await runAction("logout"); location.replace("/"); } } })),
    output, code);
}

/** Render the page for somebody who is not logged in. */
export function loginPage(main, problem) {
  const id = uniqueId("link");
  const trouble = h("p", { class: "problem", role: "alert", id: `${id}-problem`, text: problem ?? "" });
  const input = h("input", { type: "text", id, autocomplete: "off", spellcheck: "false", "aria-describedby": `${id}-problem` });
  /** Log in with the pasted link, or show why it lets nobody in. */
  async function submit(event) {
    event.preventDefault();
    try {
      const { secret, to } = parseLoginLink(input.value.trim());
      await login(secret);
      history.replaceState(null, "", `/#/${to}`);
      location.reload();
    } catch (error) {
      trouble.textContent = linkProblem(error);
    }
  }
  refill(main, h("section", { class: "panel narrow" }, h("h1", { text: "Log in" }),
    h("p", { text: "Run this in a terminal and open the link that it prints. Each link lets one browser in, once." }),
    h("p", { class: "code", text: "hubbub web" }),
    h("form", { on: { submit } }, h("div", { class: "field" }, h("label", { for: id, text: "Or paste the link here" }), input, trouble),
      h("div", { class: "row" }, h("button", { class: "primary", type: "submit", text: "Log in" })))));
}
