// Approvals that are remembered, and the rules that ask for approvals.

import { runAction, Refused } from "./api.js";
import { confirmAction } from "./dialogs.js";
import { clean, codeBlock, factList, h, pill, refill } from "./dom.js";
import { oneAtATime } from "./store.js";
import { ago, timeLeft } from "./time.js";
import { ACTIONS, durationInWords, numberInWords, approversInWords } from "./wording.js";

const REFRESH_MS = 10_000;

/** Open the page of remembered approvals and of the rules. */
export async function approvalsPage(main) {
  const box = h("div");
  const trouble = h("p", { class: "problem", role: "alert" });
  const said = h("p", { class: "help", role: "status" });
  const dialog = document.getElementById("dialog");
  let seen = "";

  /** Read the approvals and the rules, and draw them if they have changed. */
  async function read() {
    const found = await runAction("approvals");
    const now = JSON.stringify(found);
    if (now === seen) return;
    seen = now;
    draw(found);
  }

  /** Draw the approvals and the rules. */
  function draw(found) {
    if (found.refused) return refill(box, h("p", { class: "none", text: `You may not see this: ${found.refused}.` }));
    const { remembered, more, rules, default_action: fallback, warnings } = found;
    return refill(box,
      h("section", { "aria-label": "Remembered approvals" }, h("h2", { text: "Remembered" }),
        remembered.length ? h("ul", { class: "cards" }, remembered.map((each) => h("li", { class: "card" }, rememberedCard(each, () => revoke(each)))))
          : h("p", { class: "quiet", text: "Nothing is remembered: each call that a rule asks about waits for a person." }),
        more ? h("p", { class: "help", text: "There are more; hubbub approvals list shows all." }) : null),
      h("section", { "aria-label": "Rules" }, h("h2", { text: "Rules" }),
        h("p", { class: "help" }, "The first that matches a call counts. They are in the hub's configuration; ", h("code", { text: "hubbub approvals check" }), " says which rule counts for a call."),
        warnings.map((each) => h("p", { class: "warning", text: each })),
        h("ol", { class: "cards rules" }, rules.map((rule, at) => h("li", { class: "card" }, ruleCard(rule, at + 1))),
          h("li", { class: "card" }, h("div", { class: "line" }, h("strong", { text: "Any other call" }), actionPill(fallback))))));
  }

  /** Revoke a remembered approval, after asking. */
  async function revoke(each) {
    if (!await confirmAction(dialog, "Revoke this approval?", `The next call of ${clean(each.tool)} on ${clean(each.server)} by ${clean(each.caller)} is asked about again.`, "Revoke")) return;
    trouble.textContent = "";
    try {
      await runAction("revoke", { id: each.id });
      said.textContent = clean(`${each.tool} on ${each.server} is asked about again.`);
    } catch (error) {
      trouble.textContent = error instanceof Refused ? `${error.message}.` : "The bridge cannot be reached. Try again in a moment.";
    }
    await refresh();
  }

  const refresh = oneAtATime(read);
  refill(main, h("h1", { text: "Approvals" }), trouble, said, box);
  await read();
  const timer = setInterval(() => { if (!document.hidden && !dialog.open) refresh(); }, REFRESH_MS);
  return { update() {}, leave: () => clearInterval(timer) };
}

/** Render a remembered approval; `revoke` is called by its button. */
function rememberedCard(record, revoke) {
  const request = record.pending_request_id ? h("a", { href: `#/request/${encodeURIComponent(record.pending_request_id)}`, text: "the call that was approved" }) : null;
  return [h("div", { class: "line" }, h("span", {}, h("bdi", {}, h("strong", { text: record.caller })), " may run ", h("code", { class: "name", text: record.tool.slice(0, 300) }), " on ", h("code", { class: "name", text: record.server }), record.text ? " with these arguments only" : " with any arguments"), timeLeft(record.expires_at)),
    record.text ? codeBlock(record.text, "The only arguments") : null,
    factList(["Approved by", record.approved_by.join(", ")], ["Rule", record.rule], ["Given", ago(record.created_at)], ["For", request]),
    h("div", { class: "row" }, h("button", { type: "button", class: "danger", "aria-label": clean(`Revoke: ${record.tool} on ${record.server} by ${record.caller}`), text: "Revoke", on: { click: revoke } }))];
}

/** Render a rule; `place` is its number in the order of the rules. */
function ruleCard(rule, place) {
  const spans = rule.remember_ms.map((ms) => durationInWords(ms / 1000)).join(", ");
  return [h("div", { class: "line" }, h("span", {}, `${place}. `, h("strong", { dir: "auto", text: rule.name })), rule.preset ? h("span", { class: "chip", title: "Not written as a rule: made from an option", text: `from ${rule.preset}` }) : null, actionPill(rule.action)),
    rule.message ? h("p", { dir: "auto", text: rule.message }) : null,
    rule.when ? codeBlock(rule.when, "Condition") : null,
    factList(["Servers", rule.servers.join(", ")], ["Tools", rule.tools.join(", ")],
      ...(rule.action === "ask" ? [["Needs", `${numberInWords(rule.needed)} ${rule.needed === 1 ? "person" : "people"}${rule.not_by_caller ? ", not the caller" : ""}`], ["Who", approversInWords(rule.approvers)],
        ["Arguments", rule.edit ? "may be changed" : "may not be changed"], ["May be remembered for", spans]] : []))];
}

/** Render what a rule does with a call. */
function actionPill(action) {
  return pill(action, ACTIONS[action] ?? action);
}
