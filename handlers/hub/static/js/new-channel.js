// A new channel: fields filled in for the chosen vendor, keys in price cells, test results shown as the
// tests finish. Without script, forms do the same.
import { api } from "./api.js";
import { prepareCells } from "./cells.js";
import { setBusy } from "./forms.js";
import { onFailure } from "./session.js";
import { fetchPage } from "./visit.js";
import { phrase } from "./words.js";

const TESTS_AT_ONCE = 4;
const MARGIN = { zero: 22, width: 64, gain: 30, loss: 15 }; // as web/charts.py draws it
let running = 0;

function prepare(root) {
  const account = root.querySelector("[data-account]");
  if (account) prepareAccount(account);
  const models = root.querySelector("[data-models]");
  if (models) prepareModels(models);
  const tests = root.querySelector("[data-tests]");
  if (tests) prepareTests(tests);
}

// ---- vendor and key

function prepareAccount(form) {
  const search = form.querySelector("[data-card-search]");
  search.hidden = false;
  search.addEventListener("input", (event) => {
    const text = event.target.value.trim().toLowerCase();
    for (const card of form.querySelectorAll(".vendor")) card.hidden = !card.dataset.words.includes(text);
    for (const list of form.querySelectorAll(".cards")) list.hidden = !list.querySelector(".vendor:not([hidden])");
  });
  const reveal = form.querySelector("[data-reveal]");
  reveal.hidden = false;
  reveal.addEventListener("click", () => {
    for (const input of form.querySelectorAll('[name="keys"]')) input.type = input.type === "text" ? "password" : "text";
  });
  let before = chosenVendor(form);
  form.addEventListener("change", (event) => {
    if (event.target.name === "vendor") {
      takeVendor(form, before);
      before = event.target;
    }
    showAddress(form);
  });
  form.elements.base_url.addEventListener("input", () => showAddress(form));
  showAddress(form);
}

function chosenVendor(form) {
  return form.querySelector('[name="vendor"]:checked');
}

/** Fills in the fields that depend on the vendor. Typed values remain. */
function takeVendor(form, before) {
  const vendor = chosenVendor(form);
  const paths = JSON.parse(vendor.dataset.paths);
  const url = form.elements.base_url;
  if (!url.value || url.value === before?.dataset.base) url.value = vendor.dataset.base;
  const name = form.elements.name;
  if (!name.value || name.value === name.dataset.proposed) name.value = name.dataset.proposed = vendor.value;
  form.querySelector("h2[data-label]").textContent = vendor.dataset.label;
  const link = form.querySelector("a[data-keys]");
  link.hidden = !vendor.dataset.keys;
  link.href = vendor.dataset.keys || "#";
  for (const input of form.querySelectorAll('[name="family"]')) {
    input.parentElement.hidden = !(input.value in paths);
    input.checked = input.value === Object.keys(paths)[0];
  }
}

function showAddress(form) {
  const vendor = chosenVendor(form);
  const family = form.querySelector('[name="family"]:checked');
  const base = form.elements.base_url.value.trim().replace(/\/+$/, "");
  const path = JSON.parse(vendor.dataset.paths)[family?.value] ?? "";
  const versioned = "anyVersion" in vendor.dataset && /\/v\d/.test(base.replace(/^https?:\/\/[^/]*/, ""));
  form.querySelector("[data-address]").textContent = base ? base + (versioned ? path.replace(/^\/v1(beta)?/, "") : path) : "–";
}

// ---- models and prices

function prepareModels(form) {
  const all = form.querySelector("[data-all]");
  if (all) all.hidden = false;
  prepareCells(form);
  form.addEventListener("input", () => judge(form));
  form.addEventListener("change", (event) => {
    if (event.target === all) for (const box of ticks(form)) box.checked = all.checked;
    judge(form);
  });
  const search = form.elements.search;
  search.addEventListener("input", () => {
    const text = search.value.trim().toLowerCase();
    for (const row of form.querySelectorAll(".offered tbody > tr")) {
      const names = [row.querySelector("code").textContent, row.querySelector(".own-name > input")?.value ?? ""];
      row.hidden = !names.some((name) => name.toLowerCase().includes(text));
    }
  });
}

function ticks(form) {
  return [...form.querySelectorAll('[name="chosen"]')];
}

function counted(form) {
  const count = ticks(form).filter((box) => box.checked).length;
  for (const element of form.querySelectorAll("[data-count]")) {
    element.textContent = phrase(element.dataset.count, { count, total: ticks(form).length });
  }
}

/** Marks missing cells in chosen rows, and cells that differ from the list. */
function judge(form) {
  counted(form);
  for (const row of form.querySelectorAll(".offered tbody > tr")) {
    const chosen = row.querySelector('[name="chosen"]')?.checked ?? false;
    row.classList.toggle("unchosen", !chosen);
    for (const input of row.querySelectorAll('.cell > input[inputmode="decimal"]')) {
      input.parentElement.classList.toggle("own", Boolean(input.value) && input.value !== input.dataset.list);
      if (input.value !== input.dataset.before) row.querySelector(".source").textContent = form.dataset.typed;
      if (!("needed" in input.dataset)) continue;
      const missing = chosen && !input.value.trim();
      input.placeholder = missing ? input.dataset.needed : "";
      if (missing) input.setAttribute("aria-invalid", "true");
      else input.removeAttribute("aria-invalid");
    }
  }
  const missing = form.querySelector("[data-missing]");
  const row = form.querySelector('.offered [aria-invalid="true"]')?.closest("tr");
  const chosen = ticks(form).some((box) => box.checked);
  missing.textContent = row ? missing.dataset.missing.replace("{name}", row.querySelector("code").textContent) : chosen ? "" : missing.dataset.none;
}

// ---- tests

function prepareTests(form) {
  form.addEventListener("change", () => counted(form));
  form.addEventListener("input", () => showMargins(form));
  form.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button || button.name !== "do") return;
    const again = button.value.startsWith("again=") && button.value.slice("again=".length);
    if (!again && button.value !== "run") return;
    event.preventDefault();
    const chosen = ticks(form).filter((box) => box.checked).map((box) => box.value);
    const untested = names(form, "[data-untested]");
    testAll(form, again ? [again] : untested.length ? untested : chosen);
  });
  testAll(form, names(form, "[data-untested]"));
}

function names(form, selector) {
  return [...form.querySelectorAll(`tbody${selector}`)].map((part) => part.dataset.model);
}

async function testAll(form, queue) {
  if (!queue.length || running) return;
  const waiting = [...queue];
  const button = form.querySelector('button[value="run"]');
  setBusy(button, true);
  await Promise.all(Array.from({ length: Math.min(TESTS_AT_ONCE, waiting.length) }, () => work(form, waiting)));
  setBusy(button, false);
}

async function work(form, waiting) {
  running += 1;
  try {
    while (waiting.length) await test(form, waiting.shift());
  } catch (error) {
    waiting.length = 0;
    onFailure(error, () => testAll(form, names(form, "[data-untested]")));
  } finally {
    running -= 1;
  }
}

async function test(form, model) {
  const row = form.querySelector(`tbody[data-model="${CSS.escape(model)}"]`);
  const word = row.querySelector("[data-result] b");
  if (word) word.textContent = form.dataset.tests;
  await api("POST", "/api/admin/channels/draft/test", { models: [model], stream: true });
  const page = await fetchPage(location.href);
  for (const selector of [`tbody[data-model="${CSS.escape(model)}"]`, "#test-counts", "#run-word"]) {
    const fresh = page.querySelector(`[data-tests] ${selector}`);
    if (fresh) form.querySelector(selector).replaceWith(document.importNode(fresh, true));
  }
  counted(form);
}

/** Redraws the groups' margins as the server would. */
function showMargins(form) {
  const pay = form.querySelector('[name="pay"]:checked').value;
  const share = pay === "factor" ? Number(form.elements.cost_factor.value.replace(",", ".")) : pay === "models" ? sharePaid(form) : NaN;
  for (const row of form.querySelectorAll("[data-multiplier]")) {
    const percent = 100 * (1 - share / Number(row.dataset.multiplier));
    const known = Number.isFinite(percent);
    row.querySelector(".percent").textContent = known ? percent.toFixed(1).replace("-", "−") : "–";
    const svg = row.querySelector("svg.margin");
    for (const old of svg.querySelectorAll("rect, .cut")) old.remove();
    if (!known || !percent) continue;
    const gains = percent > 0;
    const length = gains ? (MARGIN.width - MARGIN.zero) * Math.min(percent / MARGIN.gain, 1) : MARGIN.zero * Math.min(-percent / MARGIN.loss, 1);
    const rect = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    const values = { class: gains ? "gain" : "loss", x: gains ? MARGIN.zero : MARGIN.zero - length, y: 2, width: length, height: 8 };
    for (const [name, value] of Object.entries(values)) rect.setAttribute(name, value);
    svg.prepend(rect);
    if (percent <= MARGIN.gain && percent >= -MARGIN.loss) continue;
    const cut = document.createElementNS("http://www.w3.org/2000/svg", "path");
    cut.setAttribute("class", "cut");
    cut.setAttribute("d", `M${gains ? MARGIN.width - 8 : 4} 12l4-12`);
    rect.after(cut);
  }
}

/** Returns the ratio of cost to price over the models that have both; NaN if none has. */
function sharePaid(form) {
  let cost = 0;
  let price = 0;
  for (const input of form.querySelectorAll('.costs input[name$=".input"], .costs input[name$=".output"]')) {
    if (!input.value || !input.dataset.price) continue;
    cost += Number(input.value);
    price += Number(input.dataset.price);
  }
  return price ? cost / price : NaN;
}

document.addEventListener("sluice:content", (event) => prepare(event.target));
prepare(document);
