// Rows of lists: a click anywhere opens the link of the row; what is cut has its whole as title.

const LINKS = "td:first-child > a, td.name > a, a.opens";
const PRESSED = "a, button, input, label, select, summary, .panel";

/** Returns the link that a row opens, if any. */
export function linkOf(row) {
  return row.querySelector(LINKS);
}

/** Opens the row that was clicked beside its link, on what has a title of its own. */
export function onRowClick(event) {
  const row = event.target.closest("tr.row");
  if (!row || event.defaultPrevented || event.target.closest(PRESSED) || String(getSelection())) return;
  const { ctrlKey, metaKey, shiftKey } = event;
  linkOf(row)?.dispatchEvent(new MouseEvent("click", { bubbles: true, cancelable: true, ctrlKey, metaKey, shiftKey }));
}

const CUT = "td, td *, .one-line, .badge, .chip b, h1, .segment > *, .side .who > b";

/** Gives what is cut under the pointer its whole text as title. */
export function onOver(event) {
  const place = event.target.closest?.("tr, section, header, nav, form");
  for (const element of place?.querySelectorAll(CUT) ?? []) {
    if (element.scrollWidth > element.clientWidth && element.clientWidth && !element.title && getComputedStyle(element).textOverflow === "ellipsis") {
      element.title = element.textContent.trim();
    }
  }
}
