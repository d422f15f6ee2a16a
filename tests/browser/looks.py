"""Scripts that find faults in a page's appearance at the current width of its window; and axe's
findings, in each theme."""

from axe_playwright_python.sync_playwright import Axe

AXE = Axe()
THEMES = ("light", "dark")
# In addition to what axe rates serious or critical.
ALSO = {"empty-table-header", "empty-heading"}
RULES = {"resultTypes": ["violations"]}
RULES_OF = {"light": RULES, "dark": {**RULES, "runOnly": ["color-contrast"]}}


def axe_faults(page):
    """Return the serious faults that axe finds on a page."""
    faults = []
    for theme in reversed(THEMES):
        page.emulate_media(color_scheme=theme)
        for found in AXE.run(page, options=RULES_OF[theme]).response["violations"]:
            if found["impact"] in ("serious", "critical") or found["id"] in ALSO:
                where = [node["html"][:120] for node in found["nodes"][:3]]
                faults.append(f"{theme}: {found['id']}: {where}")
    return faults


WIDTH = """() => {
  const wide = document.documentElement.scrollWidth - innerWidth;
  return wide > 0 ? [`wider than the window by ${wide} px`] : [];
}"""

# Overlapping texts. Each line of a text is a box, clipped by its ancestors; fixed, sticky and
# floating elements may cover the rest.
OVERLAPS = """() => {
  const lines = [];
  const floats = new Map();
  const isOver = (element) => {
    if (element === document.body) return false;
    if (!floats.has(element)) {
      const { position, clipPath } = getComputedStyle(element);
      const over = position === "fixed" || position === "sticky" || clipPath !== "none"
        || element.matches(".panel, .search");
      floats.set(element, over || isOver(element.parentElement));
    }
    return floats.get(element);
  };
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const range = document.createRange();
  while (texts.nextNode()) {
    const text = texts.currentNode, element = text.parentElement;
    if (!text.data.trim() || element.closest("svg, .hidden-text, template, script, option"))
      continue;
    const seen = { visibilityProperty: true, opacityProperty: true };
    if (!element.checkVisibility(seen) || isOver(element)) continue;
    range.selectNodeContents(text);
    for (const { left, top, right, bottom } of range.getClientRects()) {
      const box = { left, top, right, bottom, element, words: text.data.trim().slice(0, 30) };
      for (let outer = element; outer !== document.body; outer = outer.parentElement) {
        if (getComputedStyle(outer).overflowX === "visible") continue;
        const limit = outer.getBoundingClientRect();
        box.left = Math.max(box.left, limit.left); box.right = Math.min(box.right, limit.right);
        box.top = Math.max(box.top, limit.top); box.bottom = Math.min(box.bottom, limit.bottom);
      }
      if (box.right - box.left > 1 && box.bottom - box.top > 1) lines.push(box);
    }
  }
  lines.sort((one, other) => one.top - other.top);
  const faults = [];
  lines.forEach((line, place) => {
    for (const other of lines.slice(place + 1)) {
      if (other.top > line.bottom - 4) break;
      const across = Math.min(line.right, other.right) - Math.max(line.left, other.left);
      const down = Math.min(line.bottom, other.bottom) - other.top;
      if (across > 1 && down > 4 && line.element !== other.element)
        faults.push(`"${line.words}" lies on "${other.words}" by ${across} x ${down} px`);
    }
  });
  return faults.slice(0, 5);
}"""

# Figures of a row, and headings of adjacent sections, that are slightly out of line.
ALIGNED = """() => {
  const faults = [];
  for (const row of document.querySelectorAll(".figures, .pair")) {
    const isPair = row.matches(".pair");
    const parts = [...row.children].map((part) => isPair ? part.querySelector("h2") : part)
      .filter((part) => part?.checkVisibility());
    parts.slice(1).forEach((part, place) => {
      const before = parts[place].getBoundingClientRect(), box = part.getBoundingClientRect();
      const off = Math.abs(before.top - box.top);
      if (before.right <= box.left + 2 && off > .5 && off < (isPair ? 3 : 24))
        faults.push(`"${part.textContent.trim().slice(0, 30)}" is ${off} px off its neighbour`);
    });
  }
  return faults;
}"""

# Text that is cut without an ellipsis.
CUT = """() => {
  const faults = [];
  for (const element of document.querySelectorAll("main *, nav *")) {
    const hasText = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!hasText || !element.checkVisibility()) continue;
    const { overflowX, textOverflow, clipPath } = getComputedStyle(element);
    if (overflowX !== "hidden" || textOverflow === "ellipsis" || clipPath !== "none") continue;
    const over = element.scrollWidth - element.clientWidth;
    if (over > 1) faults.push(`"${element.textContent.trim().slice(0, 30)}" is cut by ${over} px`);
  }
  return faults.slice(0, 5);
}"""

FAULTS = """() => {
  const faults = [];
  const said = (one) => one.outerHTML.slice(0, 120);
  const named = (one) => one.getAttribute("aria-label") || one.getAttribute("aria-labelledby")
    || one.title || one.textContent.trim() || one.querySelector("[aria-label], img[alt], title");
  for (const one of document.querySelectorAll("input:not([type=hidden]), select, textarea"))
    if (!one.labels.length && !one.getAttribute("aria-label")
      && !one.getAttribute("aria-labelledby") && !one.title) faults.push(`no label: ${said(one)}`);
  for (const one of document.querySelectorAll("button, a[href], summary"))
    if (!named(one) && one.getAttribute("tabindex") !== "-1") faults.push(`no name: ${said(one)}`);
  for (const one of document.querySelectorAll("img:not([alt])"))
    faults.push(`no alt: ${said(one)}`);
  const ids = [...document.querySelectorAll("[id]")].map((one) => one.id);
  for (const id of new Set(ids.filter((one, place) => ids.indexOf(one) !== place)))
    faults.push(`id twice: ${id}`);
  if (document.querySelectorAll("h1").length !== 1) faults.push("not one h1");
  if (document.querySelector("[style]:not(.uplot, .uplot *)")) faults.push("a style attribute");
  return faults;
}"""

# Dates and times outside a <time> in the common form of all pages. Texts that users type or copy,
# and those of a configuration or a vendor, are exempt.
DATES = """() => {
  const stray = new RegExp([
    /\\d{4}-\\d\\d-\\d\\d/, /\\d\\d?\\/\\d\\d?\\/\\d\\d/,
    /\\d ?[AP]M\\b/, /\\d\\d:\\d\\d:\\d\\d [A-Z]/,
  ].map((one) => one.source).join("|"));
  const raw = "code, pre, textarea, option, script, style, .mono, .help, .why, .c-why";
  const faults = [];
  const look = (text, element) => {
    if (stray.test(text) && !element.closest(raw)) faults.push(`a date of its own form: ${text}`);
  };
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) look(texts.currentNode.data.trim(), texts.currentNode.parentElement);
  for (const one of document.querySelectorAll("[title], [aria-label]"))
    if (one.tagName !== "TIME") look(`${one.title} ${one.getAttribute("aria-label") ?? ""}`, one);
  for (const one of document.querySelectorAll("time:not([title])"))
    faults.push(`a time without its zone: ${one.outerHTML}`);
  return faults.slice(0, 5);
}"""

# Rows that light up but have a place where a click does not open them.
ROWS = """() => {
  const faults = [];
  for (const row of document.querySelectorAll("tr.row")) {
    const link = row.querySelector("td:first-child > a, td.name > a, a.opens");
    if (!link || !row.checkVisibility()) continue;
    row.scrollIntoView({ block: "center" });
    for (const cell of row.cells) {
      const { left, top, width, height } = cell.getBoundingClientRect();
      const x = left + width / 2, y = top + height / 2;
      const box = (row.closest(".table-box") ?? document.body).getBoundingClientRect();
      if (!width || x < box.left || x > box.right) continue;
      const hit = document.elementFromPoint(x, y);
      const opens = hit.closest("a") === link || (hit.closest("[title]") && row.contains(hit));
      if (!opens && !(row.contains(hit) && hit.closest("button, label, .menu, a")))
        faults.push(`a row does not open at ${cell.className}: ${hit.outerHTML.slice(0, 80)}`);
    }
  }
  return faults.slice(0, 3);
}"""

# A text less than 32 px from the number before it; a table that scrolls without a shadow at its
# cut edge; a fraction of a call on a scale; empty space under a chart.
GAPS = """() => {
  const faults = new Map();
  const range = document.createRange();
  const boxOf = (cell) => {
    range.selectNodeContents(cell);
    const lines = [...range.getClientRects()].filter((line) => line.width > 0);
    if (!lines.length) return null;
    const [left, right] = [lines.map((line) => line.left), lines.map((line) => line.right)];
    return { left: Math.min(...left), right: Math.max(...right), top: lines[0].top,
      bottom: lines.at(-1).bottom };
  };
  for (const cell of document.querySelectorAll("td.num")) {
    let next = cell.nextElementSibling;
    while (next && !next.checkVisibility()) next = next.nextElementSibling;
    if (!next?.textContent.trim() || next.matches(".num, .cell")) continue;
    if (!cell.checkVisibility()) continue;
    const number = boxOf(cell), text = boxOf(next);
    if (!number || !text || text.top > number.bottom || text.bottom < number.top) continue;
    const gap = Math.round(text.left - number.right), kind = cell.className + " " + next.className;
    if (gap < 32) faults.set(kind, `${gap} px between ${cell.textContent} and ${next.textContent}`);
  }
  for (const box of document.querySelectorAll("*:has(> table)"))
    if (box.scrollWidth > box.clientWidth + 1 && getComputedStyle(box).overflowX !== "visible"
      && !getComputedStyle(box).backgroundImage.includes("gradient"))
      faults.set(box, `a table is cut without a shadow: ${box.outerHTML.slice(0, 80)}`);
  for (const chart of document.querySelectorAll(".chart")) {
    if (/^(Failed and refused c|C)alls/.test(chart.getAttribute("aria-label")))
      for (const { textContent } of chart.querySelector("svg").querySelectorAll("text"))
        if (/\\.\\d+$/.test(textContent)) faults.set(chart, `a scale of calls: ${textContent}`);
    const next = chart.nextElementSibling;
    if (!next?.checkVisibility() || !chart.checkVisibility()) continue;
    const dead = next.getBoundingClientRect().top - chart.getBoundingClientRect().bottom;
    if (dead > 32) faults.set(chart, `${Math.round(dead)} px under a chart`);
  }
  return [...faults.values()].slice(0, 5);
}"""
