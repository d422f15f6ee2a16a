// Tooltips for a chart's columns, filled from the table behind the chart. Arrow keys move between
// columns. Hovering over a row of the legend, the table below, highlights the row's part.
import { phrase } from "./words.js";

const FLIP_SHARE = 0.6;
const GAP_PX = 8;
let tip = null; // { box, column }

function columnsOf(chart) {
  return [...chart.querySelectorAll(".plot > a")];
}

/** Returns the row of the table behind a chart that belongs to a column. */
function rowOf(chart, column) {
  const table = chart.closest("section").querySelector("[data-tip-rows]");
  const row = [...(table?.tBodies[0].rows ?? [])].find((one) => one.querySelector("a").getAttribute("href") === column.getAttribute("href"));
  return row && { table, row };
}

function element(name, className, text = "") {
  const made = document.createElement(name);
  made.className = className;
  made.textContent = text;
  return made;
}

function fill(box, { table, row }) {
  const { unit, apart, calls } = table.dataset;
  const cells = [...row.cells];
  const sum = row.querySelector("[data-sum]");
  const head = element("div", "tip-head");
  head.append(element("span", "", cells[0].textContent), element("span", "", sum ? [sum.textContent, unit].filter(Boolean).join(" ") : ""));
  const parts = [...table.tHead.rows[0].cells].map((cell, index) => ({ cell, value: cells[index] })).filter(({ cell }) => cell.dataset.tone);
  const total = parts.reduce((all, { value }) => all + Number(value.dataset.value), 0);
  const body = element("table", "");
  for (const { cell, value } of parts.reverse()) {
    if (!Number(value.dataset.value)) continue;
    const line = body.insertRow();
    const swatch = element("i", `swatch ${cell.dataset.tone}`);
    line.insertCell().append(swatch);
    line.insertCell().append(cell.textContent);
    line.cells[1].className = "name";
    line.cells[1].title = cell.textContent;
    line.insertCell().append(value.textContent);
    line.cells[2].className = "num";
    if (apart === undefined) {
      line.insertCell().append(`${((100 * Number(value.dataset.value)) / total).toFixed(1)} %`);
      line.cells[3].className = "num quiet-text";
    }
  }
  const foot = element("div", "tip-foot", phrase(calls, { count: row.querySelector("[data-of-calls]").textContent }));
  box.replaceChildren(head, body, foot);
}

function show(column) {
  const chart = column.closest("[data-explore]");
  const found = rowOf(chart, column);
  if (!found || tip?.column === column) return;
  hide();
  const host = chart.closest("section");
  const box = element("div", "tip");
  box.setAttribute("role", "presentation");
  fill(box, found);
  host.append(box);
  const outer = host.getBoundingClientRect();
  const bar = column.querySelector(".under-pointer").getBoundingClientRect();
  const plot = chart.querySelector(".plot").getBoundingClientRect();
  const flips = (bar.left + bar.width / 2 - plot.left) / plot.width > FLIP_SHARE;
  const left = flips ? bar.left - box.offsetWidth - GAP_PX : bar.right + GAP_PX;
  box.style.left = `${Math.max(left - outer.left, GAP_PX)}px`;
  box.style.top = `${GAP_PX}px`;
  tip = { box, column, title: column.querySelector("title") };
  tip.title?.remove(); // the browser's own tooltip would cover it
}

function hide() {
  if (!tip) return;
  if (tip.title) tip.column.prepend(tip.title);
  tip.box.remove();
  tip = null;
}

function columnAt(target) {
  return target.closest?.("[data-explore] .plot > a");
}

document.addEventListener("pointerover", (event) => {
  const column = columnAt(event.target);
  if (column && event.pointerType !== "touch") show(column);
  else if (tip && !columnAt(document.activeElement)) hide();
  light(event.target.closest?.("[data-legend] tr[data-part]"));
});
document.addEventListener("focusin", (event) => {
  const column = columnAt(event.target);
  if (column) show(column);
  else hide();
  light(event.target.closest?.("[data-legend] tr[data-part]"));
});

/** Highlights the part of a legend's row in all columns. */
function light(row) {
  const chart = document.querySelector("[data-explore]");
  if (!chart) return;
  if (row) chart.dataset.lit = row.dataset.part;
  else delete chart.dataset.lit;
}

const STEPS = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && tip) {
    hide();
    return;
  }
  const column = columnAt(event.target);
  if (!column || !(event.key in STEPS) || event.altKey || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  const columns = columnsOf(column.closest("[data-explore]"));
  const place = Math.min(Math.max(columns.indexOf(column) + STEPS[event.key], 0), columns.length - 1);
  column.setAttribute("tabindex", "-1");
  columns[place].setAttribute("tabindex", "0");
  columns[place].focus();
});
document.addEventListener("sluice:content", hide);
