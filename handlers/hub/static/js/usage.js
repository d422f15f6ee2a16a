// The list of calls: the live tail, loading more rows, choosing a span by dragging over the chart.
import { UNSEEN, fetchPage, visit } from "./visit.js";
import { onFailure, SessionEnded } from "./session.js";
import { formatTime } from "./time.js";
import { phrase } from "./words.js";

const ROWS_MAX = 500;
const NEW_MS = 10_000;
const FIGURES_MS = 2_000;
const REOPEN_MS = 2_000;
const AT_TOP_PX = 40;
const DRAG_PX = 6;
let tail = null; // { source, button, rows, waiting, count, arrivals, paused, lost }

/** Loads late sums, continues a search, and starts the live tail of the page or its new content. */
function prepare() {
  const bones = document.querySelector("[data-bones]");
  if (bones) visit(bones.dataset.bones, { push: false });
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
  tail = { source, button, rows: document.querySelector("[data-rows]"), waiting: [], count: 0, arrivals: [], paused: false, lost: null };
  source.onopen = () => { tail.lost = null; showState(); };
  source.onerror = () => {
    tail.lost ??= new Date();
    showState();
    if (source.readyState === EventSource.CLOSED) setTimeout(reopen, REOPEN_MS, source);
  };
  source.onmessage = (event) => take(JSON.parse(event.data));
  button.hidden = false;
  showState();
}

/** Reloads the page when the Hub answers again: an EventSource does not retry after an error response. */
async function reopen(source) {
  if (tail?.source !== source) return;
  const again = () => visit(location.href, { push: false });
  try {
    const page = await fetchPage(location.href, { headers: UNSEEN });
    if (page.querySelector("[data-tail]")) return again();
  } catch (error) {
    if (error instanceof SessionEnded) return onFailure(error, again);
  }
  setTimeout(reopen, REOPEN_MS, source);
}

function take({ rows, count }) {
  const body = document.createElement("tbody");
  body.innerHTML = rows; // written by the Hub, with all texts escaped
  tail.waiting.unshift(...body.children);
  tail.waiting.length = Math.min(tail.waiting.length, ROWS_MAX);
  tail.count += count;
  tail.arrivals.push({ at: Date.now(), count });
  show();
}

/** Adds the waiting rows to the table, unless the tail is paused or the user is reading the table. */
function show() {
  if (tail.paused || !tail.waiting.length || reading()) return showState();
  const { rows } = tail;
  const present = new Set([...rows.children].map((row) => row.dataset.id));
  const fresh = tail.waiting.splice(0).filter((row) => !present.has(row.dataset.id));
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
  addToCount(fresh.length);
  tail.count = 0;
  if (fresh.length) refreshFigures();
  rows.dispatchEvent(new CustomEvent("sluice:content", { bubbles: true }));
  showState();
}

let refreshing = false;

/** Refreshes figures, chart and kinds of errors after new rows, at most once per FIGURES_MS. */
function refreshFigures() {
  if (refreshing) return;
  refreshing = true;
  setTimeout(async () => {
    refreshing = false;
    const { button } = tail ?? {};
    if (!button || document.hidden) return;
    const page = await fetchPage(location.href, { headers: UNSEEN }).catch(() => null);
    if (!page || tail?.button !== button) return;
    for (const selector of [".usage-top", ".kinds"]) replacePart(selector, page);
  }, FIGURES_MS);
}

function replacePart(selector, page) {
  const present = document.querySelector(selector);
  const fresh = page.querySelector(selector);
  if (present?.contains(document.activeElement) || present?.matches(":hover")) return;
  if (present && fresh) present.replaceWith(document.importNode(fresh, true));
  else if (fresh) document.querySelector(".usage-top")?.after(document.importNode(fresh, true));
  document.querySelector(selector)?.dispatchEvent(new CustomEvent("sluice:content", { bubbles: true }));
}

function reading() {
  return window.scrollY > AT_TOP_PX && tail.rows.getBoundingClientRect().top < 0 || tail.rows.contains(document.activeElement);
}

function addToCount(more) {
  const counter = document.querySelector("[data-loaded]");
  if (!counter) return;
  counter.dataset.loaded = Number(counter.dataset.loaded) + more;
  if (counter.dataset.found !== undefined) counter.dataset.found = Number(counter.dataset.found) + more;
  const text = counter.dataset.found === undefined ? counter.dataset.many : counter.dataset.word;
  counter.textContent = phrase(text, { shown: Number(counter.dataset.loaded), found: Number(counter.dataset.found) });
}

/** Shows on the button how many calls arrived or are waiting, or since when the connection is lost. */
function showState() {
  if (!tail) return;
  const { button } = tail;
  tail.arrivals = tail.arrivals.filter((arrival) => arrival.at > Date.now() - NEW_MS);
  const recent = tail.arrivals.reduce((sum, arrival) => sum + arrival.count, 0);
  const words = button.dataset;
  const pending = tail.paused || tail.waiting.length;
  button.querySelector("b").textContent = tail.lost ? phrase(words.reconnecting, { time: formatTime(tail.lost, "time") }) : tail.paused ? words.paused : words.live;
  button.querySelector("[data-said]").textContent = tail.lost ? "" : pending ? phrase(words.waiting, { count: tail.count }) : phrase(words.liveNew, { count: recent });
  button.classList.toggle("paused", tail.paused);
  button.setAttribute("aria-pressed", String(tail.paused));
}

setInterval(() => { if (tail) show(); }, 1000);
setInterval(() => {
  const announcement = document.querySelector("[data-told]");
  const recent = tail?.arrivals.reduce((sum, arrival) => sum + arrival.count, 0);
  if (announcement && recent) announcement.textContent = phrase(tail.button.dataset.newCalls, { count: recent });
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
    continueSearch(link, next, fresh.length);
    const counter = document.querySelector("[data-loaded]");
    if (counter.dataset.found !== undefined) counter.dataset.found = Number(counter.dataset.found) - fresh.length;
    addToCount(fresh.length);
    rows.dispatchEvent(new CustomEvent("sluice:content", { bubbles: true }));
  } catch (error) {
    delete link.dataset.busy;
    onFailure(error, () => append(link));
  }
}

/** Replaces the link to more rows by the next one. A search continues by itself until it has enough rows. */
function continueSearch(link, next, found) {
  if (!next) return foot(link).remove();
  const missing = Number(link.dataset.searching ?? 0) - found;
  const following = document.importNode(next.parentElement.matches("[data-further]") ? next.parentElement : next, true);
  foot(link).replaceWith(following);
  const nextLink = following.matches("a") ? following : following.querySelector("a");
  if (nextLink.dataset.searching && missing > 0) {
    nextLink.dataset.searching = missing;
    append(nextLink);
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
  drag.mark ??= addMark(drag.box);
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
  const moments = box.dataset.edges.split(",").map(Number);
  const step = plot.width / (moments.length - 1);
  const at = (index) => new Date(moments[index]).toISOString();
  const first = Math.floor((left - plot.left) / step);
  const last = Math.min(Math.ceil((right - plot.left) / step), moments.length - 1);
  drag.mark.remove();
  drag = null;
  document.addEventListener("click", (click) => click.preventDefault(), { capture: true, once: true });
  const link = new URL(box.dataset.link, location.href);
  link.searchParams.set("since", at(first));
  link.searchParams.set("until", at(Math.max(last, first + 1)));
  visit(link.href);
});

function addMark(box) {
  const mark = document.createElement("div");
  mark.className = "span";
  box.append(mark);
  return mark;
}

function edges(x) {
  const inside = (value) => Math.min(Math.max(value, drag.plot.left), drag.plot.right);
  return [inside(Math.min(drag.from, x)), inside(Math.max(drag.from, x))];
}

document.addEventListener("sluice:content", (event) => { if (event.target.id === "content") prepare(); });
prepare();
