// Pushes: this browser is notified of what waits while the page is closed, if it can be.

import { runAction, Refused } from "./api.js";
import { uniqueId, h, refill } from "./dom.js";

const WANTED = "hubbub-push";
const WORKER = "/sw.js";
// The one policy of trusted types that the page may have. It allows this one script, whatever it is given.
const RULES = { createScriptURL: () => WORKER };
const POLICY = window.trustedTypes?.createPolicy("hubbub-worker", RULES) ?? RULES;
const PLACE = /^#?(?:inbox|request\/[\w-]{1,64})$/;

/** Return whether this browser can get pushes while the page is closed. */
export function canPush() {
  return window.isSecureContext && "serviceWorker" in navigator && "PushManager" in window && "Notification" in window;
}

/** Start the service worker, and subscribe again if this browser did so before. Failures leave the page as it is. */
export async function startWorker() {
  if (!window.isSecureContext || !("serviceWorker" in navigator)) return;
  try {
    navigator.serviceWorker.onmessage = ({ data }) => { if (PLACE.test(data?.to)) location.hash = `#/${data.to}`; };
    await navigator.serviceWorker.register(POLICY.createScriptURL(WORKER));
    if (canPush() && localStorage.getItem(WANTED) === "yes" && Notification.permission === "granted") await subscribe();
  } catch {
    // Without a worker there are no pushes; the page does without.
  }
}

/** Stop pushes to this browser, as far as it can be reached. */
export async function unsubscribe() {
  localStorage.setItem(WANTED, "no");
  await runAction("push-to", { subscription: null }).catch(() => {});
  try {
    const registration = await navigator.serviceWorker?.getRegistration();
    await (await registration?.pushManager?.getSubscription())?.unsubscribe();
  } catch {
    // A browser that does not let its worker be seen gets no pushes, and must still be able to log out.
  }
}

/** Render the choice to be notified while the page is closed; null where that is impossible. */
export function pushChoice() {
  if (!canPush()) return null;
  const said = h("div", { role: "alert" });
  const box = h("input", { type: "checkbox", id: uniqueId("push"), checked: localStorage.getItem(WANTED) === "yes", on: { change: applyChoice } });
  /** Subscribe or unsubscribe, as the box says; show why that failed. */
  async function applyChoice() {
    refill(said);
    if (!box.checked) return unsubscribe();
    try {
      if ((await Notification.requestPermission()) !== "granted") throw new Error("This browser does not allow notifications of this page; look at its settings.");
      await subscribe();
      localStorage.setItem(WANTED, "yes");
    } catch (error) {
      box.checked = false;
      const why = error instanceof Refused || error.name === "Error" ? error.message : "This browser has no push service, or cannot reach it.";
      refill(said, h("p", { class: "problem", text: why }));
    }
    return undefined;
  }
  const choice = h("div", { class: "check" }, box, h("label", { for: box.id, text: "Notify me while this page is closed" }));
  return h("div", { "data-role": "push" }, choice, said);
}

/** Subscribe this browser to pushes, and tell the bridge. Throws if it cannot. */
async function subscribe() {
  const { key } = await runAction("push-key");
  if (!key) throw new Error("This page cannot push: the package http_ece is not installed where it runs.");
  const registration = await navigator.serviceWorker.ready;
  const wanted = decodeBase64Url(key);
  const before = await registration.pushManager.getSubscription();
  // A subscription with another key is of a page that is gone.
  if (before && !areSameBytes(new Uint8Array(before.options.applicationServerKey ?? []), wanted)) await before.unsubscribe();
  const subscription = await registration.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: wanted });
  await runAction("push-to", { subscription: subscription.toJSON() });
}

/** Return the bytes of a text in base64url. */
function decodeBase64Url(text) {
  return Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (letter) => letter.charCodeAt(0));
}

/** Return whether two arrays have the same bytes. */
function areSameBytes(one, other) {
  return one.length === other.length && one.every((value, at) => value === other[at]);
}
