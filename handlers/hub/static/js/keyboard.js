// One-letter shortcuts, off in fields and disabled by the cookie shortcuts=off (set at /account).
import { cookie } from "./api.js";
import { linkOf } from "./rows.js";
import { step } from "./sheets.js";

const PATHS = {
  h: "/", k: "/keys", m: "/models", s: "/models", y: "/try", u: "/usage", w: "/wallet", a: "/alerts", c: "/setup",
};
const BUTTONS = {
  n: "[data-new]", p: "[data-pause]", e: "[data-export]", z: "[data-undo]", t: "[name='theme'][value='toggle']",
};
const GO_MS = 1500;
let goPressedAt = 0;

export function onKey(event) {
  if ((event.ctrlKey || event.metaKey) && event.key === "k" && !document.querySelector("dialog[open]")) {
    if (press("[data-find-all]")) event.preventDefault();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (event.key === "Escape") return closeMenus();
  if (event.target.closest("input, select, textarea, [contenteditable]") || cookie("shortcuts") === "off") return;
  if (act(event.key)) event.preventDefault();
}

function act(key) {
  if (Date.now() - goPressedAt < GO_MS) {
    goPressedAt = 0;
    return Boolean(PATHS[key]) && press(`nav a[href="${PATHS[key]}"]`);
  }
  if (key === "g") goPressedAt = Date.now();
  else if (key === "/") return focus("[data-find]");
  else if (key === "j") return step(1) || move(1);
  else if (key === "k") return step(-1) || move(-1);
  else if (key === "c") return press(`${document.querySelector("dialog[open]") ? "dialog[open]" : "tr.row:focus-within"} [data-copy]`);
  else if (key === "?") document.getElementById("shortcuts")?.showModal();
  else if (key === "b") return focus("[data-group-by] > [aria-current]");
  else if (key === "d") return toggleMenu("[data-dates]");
  else if (key === "f") return toggleMenu(".filter-menu");
  else if (key === "[" || key === "]") return press(`[data-key="${key}"]`);
  else if (BUTTONS[key]) return press(BUTTONS[key]);
  return false;
}

function closeMenus() {
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    menu.open = false;
    menu.querySelector("summary").focus();
  }
}

/** Opens a menu and focuses its first field, or closes the menu. */
function toggleMenu(selector) {
  const menu = document.querySelector(selector);
  if (!menu) return false;
  menu.open = !menu.open;
  (menu.open ? menu.querySelector("input, select") : menu.querySelector("summary")).focus();
  return true;
}

function focus(selector) {
  const element = document.querySelector(selector);
  element?.focus();
  return Boolean(element);
}

function press(selector) {
  const buttons = [...document.querySelectorAll(selector)];
  const button = buttons.find((visible) => visible.offsetParent !== null) ?? buttons[0];
  button?.click();
  return Boolean(button);
}

/** Moves the focus to the link of the next or previous row. */
function move(by) {
  const links = [...document.querySelectorAll("main tr.row")].map(linkOf).filter(Boolean);
  if (!links.length) return false;
  const index = links.findIndex((link) => link.closest("tr").contains(document.activeElement));
  const next = links[Math.min(Math.max(index + by, 0), links.length - 1)];
  next.focus();
  next.scrollIntoView({ block: "nearest" });
  return true;
}
