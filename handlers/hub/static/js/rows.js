// Rows of lists: a click anywhere on a row opens its link. Truncated texts get the whole text as title.

const LINKS = "td:first-child > a, td.name > a, a.opens";
const PRESSED = "a, button, input, label, select, summary, .panel";

/** Returns the link that a row opens, if any. */
export function linkOf(row) {
  return row.querySelector(LINKS);
}

/** Opens a row's link for clicks on elements above the link, which have a title of their own. */
export function onRowClick(event) {
  const row = event.target.closest("tr.row");
  if (!row || event.defaultPrevented || event.target.closest(PRESSED) || String(getSelection())) return;
  const { ctrlKey, metaKey, shiftKey } = event;
  linkOf(row)?.dispatchEvent(new MouseEvent("click", { bubbles: true, cancelable: true, ctrlKey, metaKey, shiftKey }));
}

const CUT = "td, td *, .one-line, .badge, .chip b, h1, .segment > *, .side .who > b";

/** Adds titles with the whole text to truncated elements near the pointer. */
export function onOver(event) {
  const place = event.target.closest?.("tr, section, header, nav, form");
  for (const element of place?.querySelectorAll(CUT) ?? []) {
    if (element.scrollWidth > element.clientWidth && element.clientWidth && !element.title && getComputedStyle(element).textOverflow === "ellipsis") {
      element.title = element.textContent.trim();
    }
  }
}
