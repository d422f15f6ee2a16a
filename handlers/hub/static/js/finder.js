// The dialog of /find: searches while the user types; arrow keys move through the results.
import { fetchPage } from "./visit.js";
import { onFailure } from "./session.js";

const TYPING_MS = 150;
let typing;
let asked = 0;

export function onFinderInput(event) {
  const form = event.target.closest("[data-finder]");
  if (!form) return;
  clearTimeout(typing);
  typing = setTimeout(() => look(form), TYPING_MS);
}

async function look(form) {
  const number = ++asked;
  try {
    const page = await fetchPage(`/find?${new URLSearchParams(new FormData(form))}`);
    const place = form.parentElement.querySelector("[data-found]");
    if (number === asked && place) place.replaceChildren(...page.querySelector("[data-found]").childNodes);
  } catch (error) {
    onFailure(error, () => look(form));
  }
}

/** Moves through the results; Enter in the field opens the first. */
export function onFinderKey(event) {
  const finder = event.target.closest("[data-sheet='finder']");
  if (!finder) return;
  const links = [...finder.querySelectorAll("[data-found] a")];
  const at = links.indexOf(document.activeElement);
  if (event.key === "Enter" && at < 0 && links.length && !finder.closest("main")) {
    event.preventDefault();
    links[0].click();
  } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    event.preventDefault();
    const next = at + (event.key === "ArrowDown" ? 1 : -1);
    (links[Math.min(next, links.length - 1)] ?? finder.querySelector("input")).focus();
  }
}
