// The script of every page: times in the browser's zone, copying, menus, sheets, toasts, shortcuts.
// Each page works without it.
import { showTimes } from "./time.js";
import { onCopy } from "./copy.js";
import { onKey } from "./keyboard.js";
import { focusWrong, onSheetClick, onSheetSubmit, onStep, watchHistory } from "./sheets.js";
import { onSoftChange, onSoftClick, onSoftInput, onSoftSubmit } from "./visit.js";
import { checkMatch, guardSecret, onBusySubmit } from "./forms.js";
import { onOver, onRowClick } from "./rows.js";
import { startToasts } from "./toast.js";
import { goOn } from "./session.js";
import { onFinderInput, onFinderKey } from "./finder.js";

/** Prepares new content of a page. Modules of single pages can listen for it, too. */
function prepare(root) {
  showTimes(root);
  for (const input of root.querySelectorAll("[data-match]")) checkMatch(input);
}

document.addEventListener("click", (event) => {
  closeMenus(event.target);
  onCopy(event);
  onSheetClick(event);
  onStep(event);
  onSoftClick(event);
  onRowClick(event);
});
document.addEventListener("pointerover", onOver, { passive: true });
document.addEventListener("focusin", onOver);
document.addEventListener("submit", (event) => {
  onSoftSubmit(event);
  onSheetSubmit(event);
  onBusySubmit(event);
});
document.addEventListener("change", onSoftChange);
document.addEventListener("input", (event) => {
  if (event.target.matches("[data-match]")) checkMatch(event.target);
  onSoftInput(event);
  onFinderInput(event);
});
document.addEventListener("keydown", onKey);
document.addEventListener("keydown", onFinderKey);
window.addEventListener("focus", goOn);
document.addEventListener("visibilitychange", goOn);
document.addEventListener("sluice:content", (event) => prepare(event.target));

function closeMenus(target) {
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    if (!menu.contains(target)) menu.open = false;
  }
}

prepare(document);
focusWrong(document);
guardSecret();
startToasts();
watchHistory();
