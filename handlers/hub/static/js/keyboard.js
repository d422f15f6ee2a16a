// One-letter keys, off in fields and as a whole by the cookie shortcuts=off (set at /account).
import { cookie } from "./api.js";
import { step } from "./sheets.js";

const PLACES = { h: "/", k: "/keys", s: "/status", u: "/usage", w: "/wallet", c: "/setup" };
const PRESSES = {
  f: "[data-filter-add]", n: "[data-new]", p: "[data-pause]", e: "[data-export]", z: "[data-undo]", t: "[name='theme'][value='toggle']",
};
const GO_MS = 1500;
let going = 0;

export function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (event.key === "Escape") return closeMenus();
  if (event.target.closest("input, select, textarea, [contenteditable]") || cookie("shortcuts") === "off") return;
  if (act(event.key)) event.preventDefault();
}

function act(key) {
  if (Date.now() - going < GO_MS) {
    going = 0;
    if (PLACES[key]) location.assign(PLACES[key]);
    return Boolean(PLACES[key]);
  }
  if (key === "g") going = Date.now();
  else if (key === "/") return focus("[data-find]");
  else if (key === "j") return step(1) || move(1);
  else if (key === "k") return step(-1) || move(-1);
  else if (key === "c") return press(`${document.querySelector("dialog[open]") ? "dialog[open]" : "tr.row:focus-within"} [data-copy]`);
  else if (key === "?") document.getElementById("shortcuts")?.showModal();
  else if (PRESSES[key]) return press(PRESSES[key]);
  return false;
}

function closeMenus() {
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    menu.open = false;
    menu.querySelector("summary").focus();
  }
}

function focus(what) {
  const found = document.querySelector(what);
  found?.focus();
  return Boolean(found);
}

function press(what) {
  const found = [...document.querySelectorAll(what)].find((one) => one.offsetParent !== null) ?? document.querySelector(what);
  found?.click();
  return Boolean(found);
}

/** Moves the focus to the link of the next or previous row. */
function move(by) {
  const links = [...document.querySelectorAll("main tr.row")].map((row) => row.querySelector("a")).filter(Boolean);
  if (!links.length) return false;
  const place = links.findIndex((link) => link.closest("tr").contains(document.activeElement));
  const next = links[Math.min(Math.max(place + by, 0), links.length - 1)];
  next.focus();
  next.scrollIntoView({ block: "nearest" });
  return true;
}
