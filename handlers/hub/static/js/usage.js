// The list of calls: the live tail, more rows at its end, a span chosen by dragging over the chart.
import { fetchPage, visit } from "./visit.js";
import { toast } from "./toast.js";
import { written } from "./time.js";

const ROWS_MAX = 500;
const NEW_MS = 10_000;
const AT_TOP_PX = 40;
const DRAG_PX = 6;
let tail = null; // { source, button, rows, waiting, came, paused, lost }

/** Begins what the page, or a new content of it, can do. */
function ready() {
  const search = document.querySelector("a[data-searching]");
  if (search) append(search);
  const button = document.querySelector("[data-tail]");
  if (tail?.button === button) return;
  tail?.source.close();
  tail = null;
  if (button) startTail(button);
}

function startTail(button) {
  const source = new EventSource(button.dataset.tail);
  tail = { source, button, rows: document.querySelector("[data-rows]"), waiting: [], count: 0, came: [], paused: false, lost: null };
  source.onopen = () => { tail.lost = null; say(); };
  source.onerror = () => { tail.lost ??= new Date(); say(); };
  source.onmessage = (event) => take(JSON.parse(event.data));
  button.hidden = false;
  say();
}

function take({ rows, count }) {
  const made = document.createElement("tbody");
  made.innerHTML = rows; // written by the Hub, with all texts escaped
  tail.waiting.unshift(...made.children);
  tail.waiting.length = Math.min(tail.waiting.length, ROWS_MAX);
  tail.count += count;
  tail.came.push({ at: Date.now(), count });
  show();
}

/** Puts what waits into the table, unless somebody reads there. */
function show() {
  if (tail.paused || !tail.waiting.length || reading()) return say();
  const { rows } = tail;
  const known = new Set([...rows.children].map((row) => row.dataset.id));
  const fresh = tail.waiting.splice(0).filter((row) => !known.has(row.dataset.id));
  for (const row of fresh) {
    row.classList.add("new");
    setTimeout(() => row.classList.remove("new"), NEW_MS);
  }
  rows.prepend(...fresh);
  while (rows.children.length > ROWS_MAX) rows.lastElementChild.remove();
  const section = rows.closest("section");
  if (fresh.length && section.hidden) {
    section.hidden = false;
    document.querySelector("main > .empty")?.remove();
  }
  counted(fresh.length);
  tail.count = 0;
  rows.dispatchEvent(new CustomEvent("sluice:content", { bubbles: true }));
  say();
}

function reading() {
  return window.scrollY > AT_TOP_PX && tail.rows.getBoundingClientRect().top < 0 || tail.rows.contains(document.activeElement);
}

function counted(more) {
  const said = document.querySelector("[data-loaded]");
  if (!said) return;
  said.dataset.loaded = Number(said.dataset.loaded) + more;
  if (said.dataset.found !== undefined) said.dataset.found = Number(said.dataset.found) + more;
  const shown = Number(said.dataset.loaded).toLocaleString("en");
  said.textContent = said.dataset.found === undefined
    ? said.dataset.many.replace("{shown}", shown)
    : said.dataset.word.replace("{shown}", shown).replace("{found}", Number(said.dataset.found).toLocaleString("en"));
}

/** What the button says: how much came, how much waits, or since when nothing can come. */
function say() {
  if (!tail) return;
  const { button } = tail;
  tail.came = tail.came.filter((one) => one.at > Date.now() - NEW_MS);
  const recent = tail.came.reduce((sum, one) => sum + one.count, 0);
  const words = button.dataset;
  const held = tail.paused || tail.waiting.length;
  button.querySelector("b").textContent = tail.lost ? words.reconnecting.replace("{time}", written(tail.lost, "time")) : tail.paused ? words.paused : words.live;
  button.querySelector("[data-said]").textContent = tail.lost ? "" : held ? words.waiting.replace("{count}", tail.count) : words.liveNew.replace("{count}", recent);
  button.classList.toggle("paused", tail.paused);
  button.setAttribute("aria-pressed", String(tail.paused));
}

setInterval(() => { if (tail) show(); }, 1000);
setInterval(() => {
  const told = document.querySelector("[data-told]");
  const recent = tail?.came.reduce((sum, one) => sum + one.count, 0);
  if (told && recent) told.textContent = tail.button.dataset.newCalls.replace("{count}", recent);
}, NEW_MS);

document.addEventListener("click", (event) => {
  if (event.target.closest("[data-tail]")) {
    tail.paused = !tail.paused;
    show();
  }
  const more = event.target.closest("a[data-append]");
  if (more && !event.metaKey && !event.ctrlKey && !event.shiftKey) {
    event.preventDefault();
    append(more);
  }
});

async function append(link) {
  if (link.dataset.busy) return;
  link.dataset.busy = "true";
  try {
    const page = await fetchPage(link.href);
    const rows = document.querySelector("[data-rows]");
    const fresh = [...page.querySelectorAll("[data-rows] > tr")];
    rows.append(...fresh.map((row) => document.importNode(row, true)));
    if (fresh.length) rows.closest("section").hidden = false;
    const next = page.querySelector("a[data-append]");
    goOn(link, next, fresh.length);
    const said = document.querySelector("[data-loaded]");
    if (said.dataset.found !== undefined) said.dataset.found = Number(said.dataset.found) - fresh.length;
    counted(fresh.length);
    rows.dispatchEvent(new CustomEvent("sluice:content", { bubbles: true }));
  } catch {
    toast(document.body.dataset.failed);
    delete link.dataset.busy;
  }
}

/** What was found in a page is shown; a search that found too little goes on by itself. */
function goOn(link, next, found) {
  if (!next) return foot(link).remove();
  const wanted = Number(link.dataset.searching ?? 0) - found;
  const made = document.importNode(next.parentElement.matches("[data-further]") ? next.parentElement : next, true);
  foot(link).replaceWith(made);
  const again = made.matches("a") ? made : made.querySelector("a");
  if (again.dataset.searching && wanted > 0) {
    again.dataset.searching = wanted;
    append(again);
  }
}

function foot(link) {
  return link.closest("[data-further]") ?? link;
}

// ---- A span by dragging ----
let drag = null; // { box, plot, from, mark }

document.addEventListener("pointerdown", (event) => {
  const box = event.target.closest("[data-drag]");
  if (!box || event.button) return;
  const plot = box.querySelector(".plot").getBoundingClientRect();
  drag = { box, plot, from: event.clientX, mark: null };
});
document.addEventListener("dragstart", (event) => {
  if (event.target.closest?.("[data-drag]")) event.preventDefault();
});
document.addEventListener("pointermove", (event) => {
  if (!drag || Math.abs(event.clientX - drag.from) < DRAG_PX) return;
  drag.mark ??= marked(drag.box);
  const [left, right] = edges(event.clientX);
  const outer = drag.box.getBoundingClientRect();
  drag.mark.style.left = `${left - outer.left}px`;
  drag.mark.style.width = `${right - left}px`;
});
document.addEventListener("pointerup", (event) => {
  if (!drag?.mark) {
    drag = null;
    return;
  }
  const { box, plot } = drag;
  const [left, right] = edges(event.clientX);
  const step = plot.width / Number(box.dataset.bars);
  const at = (place) => new Date(Number(box.dataset.since) + place * Number(box.dataset.step)).toISOString();
  const first = Math.floor((left - plot.left) / step);
  const last = Math.min(Math.ceil((right - plot.left) / step), Number(box.dataset.bars));
  drag.mark.remove();
  drag = null;
  document.addEventListener("click", (click) => click.preventDefault(), { capture: true, once: true });
  const link = new URL(box.dataset.link, location.href);
  link.searchParams.set("since", at(first));
  link.searchParams.set("until", at(Math.max(last, first + 1)));
  visit(link.href);
});

function marked(box) {
  const mark = document.createElement("div");
  mark.className = "span";
  box.append(mark);
  return mark;
}

function edges(x) {
  const inside = (one) => Math.min(Math.max(one, drag.plot.left), drag.plot.right);
  return [inside(Math.min(drag.from, x)), inside(Math.max(drag.from, x))];
}

document.addEventListener("sluice:content", (event) => { if (event.target.id === "content") ready(); });
ready();
