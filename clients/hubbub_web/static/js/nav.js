// The pages to go to: all of them at the side; on a phone four at the bottom, and the rest behind "More".

import { h, icon, append, refill } from "./dom.js";

const FIRST = ["inbox", "calls", "catalog", "servers"];
const OTHERS = ["agents", "tasks", "hosts", "approvals", "events", "history"];

/** Draw the links to all pages; `routes` has the name of each. */
export function drawNav(nav, routes) {
  /** Render the link to a page. */
  const pageLink = (each) => h("a", { href: `#/${each}`, "data-page": each, on: { click: () => unfold(false) } }, icon(each), h("span", { text: routes[each][1] }),
    each === "inbox" ? h("span", { class: "badge", hidden: true, "data-role": "count" }) : null);
  const others = h("div", { class: "others", id: "other-pages" }, OTHERS.map(pageLink));
  const more = h("button", { type: "button", class: "plain", "aria-expanded": "false", "aria-controls": "other-pages", on: { click: () => unfold(!nav.classList.contains("unfolded")) } },
    icon("more"), h("span", { text: "More" }));
  /** Show or hide the pages behind "More". */
  function unfold(isUnfolded) {
    nav.classList.toggle("unfolded", isUnfolded);
    more.setAttribute("aria-expanded", String(isUnfolded));
  }
  nav.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !nav.classList.contains("unfolded")) return;
    event.preventDefault();
    unfold(false);
    more.focus();
  });
  document.addEventListener("click", (event) => { if (!nav.contains(event.target)) unfold(false); });
  refill(nav, FIRST.map(pageLink));
  append(nav, others, more);
}

/** Mark the link of the page that is shown. */
export function markCurrentPage(nav, current) {
  for (const each of nav.querySelectorAll("a")) {
    if (each.dataset.page === current) each.setAttribute("aria-current", "page");
    else each.removeAttribute("aria-current");
  }
  nav.querySelector("button")?.classList.toggle("here", OTHERS.includes(current));
}
