// A code with which a person lets a host log in: shown until it expires, with a button that copies it.

import { runAction, Refused } from "./api.js";
import { h, refill } from "./dom.js";
import { timeLeft } from "./time.js";

/** Make a login code and show it in a box, with what to do with it; or why there is none. */
export async function showLoginCode(box) {
  try {
    refill(box, ...loginSteps(await runAction("login_code")));
  } catch (error) {
    refill(box, h("p", { class: "problem", text: error instanceof Refused ? asSentence(error.message) : "The bridge cannot be reached." }));
  }
}

/** Render a login code, and the steps in which a person uses it. */
function loginSteps({ code, link, endpoint, expires_at: end }) {
  return [
    h("ol", { class: "steps" },
      h("li", {}, "Give the host this address: ", h("code", { text: endpoint, dir: "ltr" })),
      h("li", {}, "The host opens the hub's page in your browser. Type this code there, or ", h("a", { href: link, target: "_blank", rel: "noopener", text: "open its page" }), " before:")),
    h("div", { class: "row" }, h("code", { class: "login-code", text: code, dir: "ltr" }), copyButton(code), timeLeft(end)),
    h("p", { class: "help", text: "It is good once. Tell it to nobody: who has it acts in your name." }),
  ];
}

/** Render a button that copies the code. */
function copyButton(code) {
  const button = h("button", { type: "button", text: "Copy", "aria-label": "Copy the code", on: { click: copy } });
  /** Copy the code, or say how the person can. */
  async function copy() {
    try {
      await navigator.clipboard.writeText(code);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Select it and copy it"; // the browser lets pages copy nothing
    }
  }
  return button;
}

/** Return a text as a sentence. */
function asSentence(text) {
  return `${text[0].toUpperCase()}${text.slice(1)}.`;
}
