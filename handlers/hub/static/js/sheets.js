// Drawers and dialogs: a link a[data-drawer] or a[data-dialog] opens the article[data-sheet] of its target
// page over this page. A drawer has a URL of its own, which works without script, too. Forms in a sheet that
// use POST are sent by fetch: a redirect is followed; a response with another sheet (the form with its
// problems) replaces this one.
import { UNSEEN, fetchPage, visit } from "./visit.js";
import { onFailure } from "./session.js";
import { release, setBusy } from "./forms.js";

let opened = null; // { dialog, link, back }

export function onSheetClick(event) {
  if (event.target.closest("[data-close]")) {
    const dialog = event.target.closest("dialog");
    if (dialog) {
      event.preventDefault();
      closeUnlessTyped(dialog);
    }
    return;
  }
  if (event.target.matches("dialog[open]") && outside(event)) {
    closeUnlessTyped(event.target);
    return;
  }
  const link = event.target.closest("a[data-drawer], a[data-dialog]");
  if (!link || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
  event.preventDefault();
  openSheet(link);
}

/** Returns whether any field in a sheet's forms was changed. */
function isTyped(dialog) {
  const fields = dialog.querySelectorAll("form[method='post'] :is(input:not([type='hidden']), select, textarea)");
  return "typed" in dialog.dataset || [...fields].some((field) => {
    if (field.matches("[type='checkbox'], [type='radio']")) return field.checked !== field.defaultChecked;
    if (!field.matches("select")) return field.value !== field.defaultValue;
    const chosen = [...field.options].findIndex((option) => option.defaultSelected);
    return field.selectedIndex !== Math.max(chosen, 0);
  });
}

/** Closes a sheet, after a confirmation if a field was changed. */
function closeUnlessTyped(dialog) {
  if (!isTyped(dialog) || confirm(document.body.dataset.typed)) dialog.close();
}

const FIRST_FIELD = "[autofocus], form :is(input:not([type='hidden'], [type='radio']), select, textarea)";

/** Focuses the first invalid field of a page or sheet. Returns whether there is one. */
export function focusWrong(root) {
  const field = root.querySelector("[aria-invalid='true']");
  field?.focus();
  return Boolean(field);
}

function outside(event) {
  const box = event.target.getBoundingClientRect();
  return event.clientX < box.left || event.clientX > box.right || event.clientY < box.top || event.clientY > box.bottom;
}

/** Opens the sheet of a link's target over the page. */
export async function openSheet(link) {
  let sheet;
  try {
    sheet = (await fetchPage(link.href)).querySelector("article[data-sheet]");
  } catch (error) {
    onFailure(error, () => openSheet(link));
    return;
  }
  if (!sheet) {
    location.assign(link.href);
    return;
  }
  const drawer = "drawer" in link.dataset;
  const dialog = opened?.dialog ?? makeDialog();
  dialog.className = drawer ? `drawer ${sheet.dataset.sheet || ""}` : "ask";
  const back = opened?.back ?? location.href;
  for (const row of document.querySelectorAll("tr.open")) row.classList.remove("open");
  link.closest("tr")?.classList.add("open");
  opened = { dialog, link, back };
  fill(dialog, sheet);
  link.closest("details.menu")?.removeAttribute("open");
  if (!dialog.open) dialog.showModal();
  dialog.querySelector(FIRST_FIELD)?.focus();
  if (drawer) history[history.state?.sheet ? "replaceState" : "pushState"]({ sheet: true }, "", link.href);
}

/** Returns where a sheet's form leads. The URL of the page behind the sheet gets the filters of that page. */
function leadingBack(url) {
  const back = opened?.back ?? url;
  return new URL(back, location.href).pathname === new URL(url).pathname ? back : url;
}

function makeDialog() {
  const dialog = document.createElement("dialog");
  dialog.addEventListener("close", onClosed);
  dialog.addEventListener("cancel", (event) => {
    event.preventDefault();
    closeUnlessTyped(dialog);
  });
  document.body.append(dialog);
  return dialog;
}

function fill(dialog, sheet) {
  const step = dialog.contains(document.activeElement) && document.activeElement.dataset.step;
  dialog.replaceChildren(document.importNode(sheet, true));
  if (step) dialog.querySelector(`[data-step="${step}"]`)?.focus();
  dialog.setAttribute("aria-label", sheet.querySelector("h2")?.textContent ?? "");
  dialog.scrollTop = 0;
  dialog.dispatchEvent(new CustomEvent("sluice:content", { bubbles: true }));
}

function onClosed() {
  const { dialog, link, back } = opened;
  opened = null;
  dialog.remove();
  for (const row of document.querySelectorAll("tr.open")) row.classList.remove("open");
  if (history.state?.sheet) history.replaceState(null, "", back);
  const target = document.contains(link) ? link : document.querySelector(`a[href="${CSS.escape(link.getAttribute("href"))}"]`);
  const menu = target?.closest("details.menu:not([open])"); // links in a closed menu cannot be focused
  (menu?.querySelector("summary") ?? target)?.focus();
}

/** Opens the next or previous sheet of the list behind a drawer: [data-step="1"], [data-step="-1"]. */
export function onStep(event) {
  const button = event.target.closest("[data-step]");
  if (button) step(Number(button.dataset.step));
}

export function step(by) {
  if (!opened) return false;
  const links = [...document.querySelectorAll("main a[data-drawer]")];
  const index = links.findIndex((link) => link.getAttribute("href") === opened.link.getAttribute("href"));
  const other = links[index + by];
  if (other) openSheet(other);
  return true;
}

export async function onSheetSubmit(event) {
  const form = event.target;
  if (event.defaultPrevented || form.method !== "post" || !form.closest("dialog article[data-sheet]")) return;
  if (form.matches("[data-whole]")) return;
  event.preventDefault();
  if (form.dataset.sent) return;
  form.dataset.sent = "true";
  if (event.submitter) setBusy(event.submitter, true);
  try {
    const body = new URLSearchParams(new FormData(form, event.submitter));
    const page = await fetchPage(event.submitter?.getAttribute("formaction") || form.action, { method: "POST", body, headers: UNSEEN });
    const sheet = page.querySelector("article[data-sheet]");
    if (page.redirected || !sheet) location.assign(page.redirected ? leadingBack(page.finalUrl) : location.href);
    else {
      const dialog = form.closest("dialog");
      dialog.dataset.typed = "";
      fill(dialog, sheet);
      if (!focusWrong(dialog)) dialog.querySelector(FIRST_FIELD)?.focus();
    }
  } catch (error) {
    onFailure(error);
  } finally {
    release(form, event.submitter);
  }
}

/** On Back in the browser, closes the drawer or restores the previous filters. */
export function watchHistory() {
  window.addEventListener("popstate", (event) => {
    if (!event.state && location.hash) return; // a fragment of this page
    if (opened) {
      opened.dialog.close();
    } else {
      visit(location.href, { push: false });
    }
  });
}
