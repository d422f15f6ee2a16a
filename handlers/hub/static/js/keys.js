// Shows the result of a test call in place, and fills a pasted secret into the snippets.
import { fetchPage } from "./visit.js";
import { release, setBusy } from "./forms.js";
import { onFailure } from "./session.js";

async function onTest(event) {
  const form = event.target.closest("form[data-test]");
  if (!form || event.defaultPrevented) return;
  event.preventDefault();
  event.stopImmediatePropagation();
  if (form.dataset.sent) return;
  form.dataset.sent = "true";
  const button = form.querySelector("button");
  setBusy(button, true);
  try {
    const page = await fetchPage(form.action, { method: "POST", body: new URLSearchParams(new FormData(form)) });
    const result = page.querySelector("[data-result]");
    document.querySelector("[data-result]").replaceWith(document.importNode(result, true));
    document.querySelector("[data-result]").dispatchEvent(new CustomEvent("sluice:content", { bubbles: true }));
  } catch (error) {
    onFailure(error);
  } finally {
    release(form, button);
  }
}

/** Makes the form's test call use the client that is shown. */
function onClientChoice(event) {
  if (event.target.name !== "shown-client") return;
  for (const field of document.querySelectorAll("input[type='hidden'][name='client']")) field.value = event.target.value;
}

// ---- "Your key": the secret is only used for the snippets on this page, and never sent ----------------------

const SECRET = /^[\w.-]{16,200}$/;
let pasted = "";

/** Inserts the pasted secret into all snippets, or the placeholder if it is no secret. */
function fillSnippets(field) {
  const { none, begin, end, other, short, filled } = field.dataset;
  const value = SECRET.test(pasted) ? pasted : none;
  for (const place of document.querySelectorAll(".use-panels .secret-value")) place.textContent = value;
  const help = document.getElementById("your-key-help");
  help.dataset.first ??= help.textContent;
  const isOther = begin !== undefined && !(pasted.startsWith(begin) && pasted.endsWith(end));
  if (!pasted) help.textContent = help.dataset.first;
  else if (value === none) help.textContent = short;
  else help.textContent = isOther ? other : filled;
  field.setAttribute("aria-invalid", String(Boolean(pasted) && (value === none || isOther)));
}

function onSecret(event) {
  const field = event.target.closest?.("[data-your-key]");
  if (!field) return;
  pasted = field.value.trim();
  fillSnippets(field);
}

/** Inserts the pasted secret into the snippets of new content. */
function keepSecret() {
  const field = document.querySelector("[data-your-key]");
  if (!field || !pasted) return;
  field.value = pasted;
  fillSnippets(field);
}

document.addEventListener("submit", onTest, { capture: true });
document.addEventListener("change", onClientChoice);
document.addEventListener("input", onSecret);
document.addEventListener("sluice:content", keepSecret);
