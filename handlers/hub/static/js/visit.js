// Navigation without reloading: a GET form [data-soft] or a link a[data-soft] fetches its target page and
// replaces the content. The URL is updated, and Back works.
import { onFailure, isEnded, SessionEnded } from "./session.js";

/** Headers for pages that are not shown: they keep the toast for later, and do not count as use of the session. */
export const UNSEEN = { Accept: "text/html", "X-Unseen": "1" };

const TYPING_MS = 300;
let visits = 0;
let typing;

export function onSoftClick(event) {
  const link = event.target.closest("a[data-soft]");
  if (!link || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
  event.preventDefault();
  visit(link.href);
}

export function onSoftSubmit(event) {
  const form = event.target.closest("form[data-soft]");
  if (!form || event.defaultPrevented) return;
  event.preventDefault();
  visitForm(form);
}

export function onSoftChange(event) {
  const form = event.target.form;
  if (form?.matches("[data-soft]") && !event.target.matches("[type='search'], [type='text']")) visitForm(form);
}

export function onSoftInput(event) {
  const form = event.target.form;
  if (!form?.matches("[data-soft]") || !event.target.matches("[type='search']")) return;
  clearTimeout(typing);
  typing = setTimeout(() => visitForm(form), TYPING_MS);
}

function visitForm(form) {
  const query = new URLSearchParams();
  for (const [name, value] of new FormData(form)) if (value) query.append(name, value);
  const path = form.getAttribute("action") || location.pathname;
  visit(String(query) ? `${path}?${query}` : path);
}

/** Shows the content of another URL. `push` false: the browser has this URL already. */
export async function visit(url, { push = true } = {}) {
  clearTimeout(typing); // a pending search must not undo a newer choice
  const number = ++visits;
  const content = document.getElementById("content");
  content.setAttribute("aria-busy", "true");
  let page;
  try {
    page = await fetchPage(url);
  } catch (error) {
    if (number === visits) {
      content.removeAttribute("aria-busy");
      onFailure(error, () => visit(url, { push }));
    }
    return;
  }
  if (number !== visits) return;
  const active = document.activeElement;
  const focused = content.contains(active) && selectorOf(active);
  const at = active?.selectionStart;
  if (push) history.pushState({ soft: true }, "", page.redirected ? page.finalUrl : url);
  content.replaceChildren(...page.getElementById("content").childNodes);
  content.removeAttribute("aria-busy");
  document.title = page.title;
  content.dispatchEvent(new CustomEvent("sluice:content", { bubbles: true }));
  const next = focused && content.querySelector(focused);
  if (next) {
    next.focus();
    if (at !== null && at !== undefined) next.setSelectionRange(at, at);
  }
}

/** Returns a selector for the same field or link in the next content; null for elements without id and href. */
function selectorOf(element) {
  if (element.id) return `#${CSS.escape(element.id)}`;
  const address = element.getAttribute("href");
  return address && `a[href="${CSS.escape(address)}"]`;
}

/** Fetches a page of the Hub as a document, and adds its icons to this page. Throws SessionEnded. */
export async function fetchPage(url, options) {
  const answer = await fetch(url, { headers: { Accept: "text/html" }, ...options });
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  if (isEnded(answer, page)) throw new SessionEnded();
  const sheet = document.querySelector(".sheet-of-icons");
  for (const symbol of page.querySelectorAll(".sheet-of-icons symbol")) {
    if (!document.getElementById(symbol.id)) sheet.append(document.importNode(symbol, true));
  }
  page.finalUrl = answer.url;
  page.redirected = answer.redirected;
  return page;
}
