// A page to visit: its whole address, its host by itself, and consent before anything can be opened.

import { h, isWebUrl, scrollAttributes, textBlock, uniqueId } from "./dom.js";

const RIGHT_TO_LEFT = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/;

/** Return what may deceive a reader of a web address, in words. */
export function addressWarnings(url) {
  const { authority, host } = splitAddress(url);
  const found = [];
  const ascii = new URL(url).hostname;
  const labels = ascii.split(".");
  if (labels.some((label) => label.startsWith("xn--")) || /[^\u0000-\u007f]/.test(host)) {
    found.push(`The host has letters that may only look like those of a name you know. Its technical name is ${ascii}.`);
  }
  if (RIGHT_TO_LEFT.test(url)) found.push("The address has letters that are read from right to left; read it one part at a time.");
  if (authority.includes("@")) found.push("The address begins with a user name, which may look like a host. The host is what is marked.");
  if (/^[\d.]+$/.test(ascii) || ascii.startsWith("[")) found.push("The host is a number, not a name.");
  if (new URL(url).protocol === "http:") found.push("The way to this page is not encrypted.");
  return found;
}

/** Render an address with its host marked. */
export function renderAddress(url) {
  if (!isWebUrl(url)) return textBlock(url, { class: "address", dir: "ltr" });
  const { before, host, after } = splitAddress(url);
  return h("p", { class: "address", dir: "ltr", ...scrollAttributes(url, "Address") }, before, h("strong", { class: "host", text: host }), after.slice(0, 4000));
}

/** Return the parts of an address: `authority`, its `host`, and what is `before` and `after` the host. */
function splitAddress(url) {
  const [, scheme, authority, rest] = /^([^:]*:\/*)([^/?#]*)(.*)$/s.exec(url) ?? [null, "", "", url];
  const [, user, host, port] = /^(.*@)?(.*?)(:\d*)?$/s.exec(authority);
  return { authority, host, before: scheme + (user ?? ""), after: (port ?? "") + rest };
}

/** Make the form that answers a request to visit a page; `send(answer)` sends it. Returns its `element`, the `bar` of its buttons, and `showProblems(violations)`, which returns those that it has no field for. */
export function visitForm(params, send) {
  const url = String(params.url ?? "");
  if (!isWebUrl(url)) {
    const only = h("div", { class: "row bar" });
    return { element: h("div", { role: "group" }, h("p", { class: "warning", text: "This is no page that can be visited. Decline it." }), only), bar: only, showProblems: (others) => others };
  }
  const link = h("a", { class: "button", role: "link", "aria-disabled": "true", text: "Open the page in a new tab" });
  const accept = h("button", { type: "button", class: "primary", disabled: true, text: "Accept", on: { click: () => send({ visit: true }) } });
  const consent = h("input", { type: "checkbox", id: uniqueId("consent"), on: { change: applyConsent } });
  /** Let the link and the button act only if the box is ticked. */
  function applyConsent() {
    accept.disabled = !consent.checked;
    if (consent.checked) {
      link.setAttribute("href", url);
      link.setAttribute("target", "_blank");
      link.setAttribute("rel", "noopener noreferrer");
      link.removeAttribute("aria-disabled");
    } else {
      link.removeAttribute("href");
      link.setAttribute("aria-disabled", "true");
    }
  }
  const back = redirectField(send);
  back.element.hidden = !String(params.elicitationId ?? "").startsWith("auth_");
  const bar = h("div", { class: "row bar" }, accept);
  const element = h("div", { role: "group" },
    renderAddress(url),
    addressWarnings(url).map((text) => h("p", { class: "warning", text })),
    h("div", { class: "check consent" }, consent, h("label", { for: consent.id, text: "I have looked at this address and want to visit it" })),
    h("p", { class: "help", text: "Accepting tells the server that you agree to visit the page. Nothing is opened by itself." }),
    h("div", { class: "row" }, link), back.element, bar);
  return {
    element,
    bar,
    /** Unfold the field for the address, and show violations there; return those of no field. */
    showProblems(violations) {
      back.element.hidden = false;
      back.element.setAttribute("open", "");
      return back.showProblems(violations);
    },
  };
}

/** Make the field for the address to which a login at a server led the browser, when that cannot reach the hub. `send(answer)` sends it. */
function redirectField(send) {
  const id = uniqueId("redirect");
  const problem = h("p", { class: "problem", id: `${id}-problem`, hidden: true });
  const input = h("input", { type: "url", id, "aria-describedby": `${id}-problem`, autocomplete: "off", spellcheck: "false" });
  const element = h("details", { class: "aside" },
    h("summary", { text: "The page could not lead back to the hub?" }),
    h("div", { class: "field" }, h("label", { for: id, text: "Paste the address that your browser shows then" }), input, problem),
    h("button", { type: "button", text: "Send this address", on: { click: () => send({ accept: { redirect_url: input.value.trim() } }) } }));
  return {
    element,
    /** Show the violations of the address below the field; return the others. */
    showProblems(violations) {
      const own = violations.filter(([place]) => place.startsWith("content"));
      problem.hidden = !own.length;
      problem.textContent = own.map(([, text]) => text).join("; ");
      input.setAttribute("aria-invalid", String(own.length > 0));
      if (own.length) input.focus();
      return violations.filter((each) => !own.includes(each));
    },
  };
}
