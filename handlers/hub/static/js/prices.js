// Prices of many models: marks changed cells, and offers a checkbox for all rows. The page works without it.
import { prepareCells } from "./cells.js";
import { phrase } from "./words.js";

function prepare(root) {
  for (const form of root.querySelectorAll("[data-cells], [data-ticks]")) {
    const all = form.querySelector("[data-all]");
    all.hidden = false;
    all.addEventListener("change", () => {
      for (const box of form.querySelectorAll('[name="chosen"], [name="take"]')) box.checked = all.checked && !box.disabled;
    });
    if (!("cells" in form.dataset)) continue;
    prepareCells(form);
    form.addEventListener("input", () => judge(form));
  }
}

/** Marks changed cells and cells that need a price, and counts the changed models. */
function judge(form) {
  let edited = 0;
  for (const row of form.querySelectorAll("tbody > tr")) {
    let changed = false;
    for (const input of row.querySelectorAll(".cell > input")) {
      const differs = input.value.trim() !== input.dataset.was;
      input.parentElement.classList.toggle("own", differs);
      changed ||= differs;
      if (!("needed" in input.dataset)) continue;
      const missing = !input.value.trim();
      input.placeholder = missing ? input.dataset.needed : "";
      input.toggleAttribute("aria-invalid", missing);
      if (missing) input.setAttribute("aria-invalid", "true");
    }
    edited += changed;
  }
  const words = form.querySelector("[data-edited]");
  words.textContent = phrase(words.dataset.edited, { count: edited });
}

prepare(document);
document.addEventListener("sluice:content", (event) => prepare(event.target));
