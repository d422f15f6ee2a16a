// The calendar of the date picker: the first click sets the start of the span, the second its end. Keys
// follow the ARIA grid pattern. Without this script, each day is a link.
import { fetchPage } from "./visit.js";
import { onFailure } from "./session.js";
import { phrase } from "./words.js";

const DAY_MS = 86_400_000;
const STEPS = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -7, ArrowDown: 7 };
let first = null; // the first day of the span, after the first click

function panel() {
  return document.querySelector("[data-dates]");
}

function field(name) {
  return panel().querySelector(`[name="${name}"]`);
}

function links() {
  return [...panel().querySelectorAll("a[data-day]")];
}

function choose(day) {
  if (!first || day < first) {
    first = day;
    set("from", day, "00:00");
    set("to", "", "");
  } else {
    const next = new Date(Date.parse(day) + DAY_MS).toISOString().slice(0, 10);
    set("to", next, "00:00");
    mark(first, day);
    first = null;
    return;
  }
  mark(day, day);
}

function set(end, day, time) {
  field(`${end}_day`).value = day;
  field(`${end}_time`).value = time;
}

/** Marks the days of the span. */
function mark(from, to) {
  for (const link of links()) {
    const { day } = link.dataset;
    const cell = link.closest("td");
    const inside = from <= day && day <= to;
    cell.classList.toggle("in", inside && day !== from && day !== to);
    cell.classList.toggle("end", inside && (day === from || day === to));
    cell.classList.toggle("first", day === from);
    cell.classList.toggle("last", day === to);
    if (inside) cell.setAttribute("aria-selected", "true");
    else cell.removeAttribute("aria-selected");
  }
  const note = panel().querySelector("[data-days-of]");
  const days = Math.round((Date.parse(to) - Date.parse(from)) / DAY_MS) + 1;
  note.textContent = phrase(note.dataset.daysOf, { days, zone: note.dataset.zone });
}

/** Makes one day reachable by Tab: the last day of the span or, without a span, the latest day. */
function prepare() {
  if (!panel()) return;
  const days = links();
  const present = days.findLast((link) => link.closest("td").classList.contains("end")) ?? days.at(-1);
  for (const link of days) link.tabIndex = link === present ? 0 : -1;
}

function focusDay(day) {
  const link = links().find((one) => one.dataset.day === day);
  if (!link) return false;
  for (const one of links()) one.tabIndex = -1;
  link.tabIndex = 0;
  link.focus();
  return true;
}

/** Replaces the months by others, without leaving the page. */
async function turn(link) {
  try {
    const page = await fetchPage(link.href);
    const present = panel().querySelector("[data-months]");
    present.replaceWith(document.importNode(page.querySelector("[data-months]"), true));
    prepare();
    if (first) mark(first, first);
    return true;
  } catch (error) {
    onFailure(error, () => turn(link));
    return false;
  }
}

async function go(day, forward) {
  if (focusDay(day)) return;
  const link = panel().querySelector(`[data-month="${forward ? 1 : -1}"]`);
  if (!link || !(await turn(link))) return;
  if (!focusDay(day)) links().at(forward ? -1 : 0)?.focus();
}

function moved(day, key) {
  const at = new Date(`${day}T00:00:00Z`);
  if (key in STEPS) at.setUTCDate(at.getUTCDate() + STEPS[key]);
  else if (key === "Home") at.setUTCDate(at.getUTCDate() - ((at.getUTCDay() + 6) % 7));
  else if (key === "End") at.setUTCDate(at.getUTCDate() + ((7 - at.getUTCDay()) % 7));
  else {
    const date = at.getUTCDate();
    at.setUTCDate(1);
    at.setUTCMonth(at.getUTCMonth() + (key === "PageUp" ? -1 : 1));
    const last = new Date(Date.UTC(at.getUTCFullYear(), at.getUTCMonth() + 1, 0)).getUTCDate();
    at.setUTCDate(Math.min(date, last));
  }
  return at.toISOString().slice(0, 10);
}

document.addEventListener("click", (event) => {
  if (event.metaKey || event.ctrlKey || event.shiftKey) return;
  const day = event.target.closest("[data-dates] a[data-day]");
  const month = event.target.closest("[data-dates] a[data-month]");
  if (!day && !month) return;
  event.preventDefault();
  if (day) choose(day.dataset.day);
  else turn(month);
}, { capture: true });

document.addEventListener("keydown", (event) => {
  const link = event.target.closest?.("[data-dates] a[data-day]");
  const known = event.key in STEPS || ["Home", "End", "PageUp", "PageDown"].includes(event.key);
  if (!link || !known || event.altKey || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  const day = moved(link.dataset.day, event.key);
  go(day, day > link.dataset.day);
});
document.addEventListener("sluice:content", () => { first = null; prepare(); });
prepare();
