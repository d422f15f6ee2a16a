// Updates the preview of a rule while its form is edited: submits the form like its Preview button, and
// replaces the preview on the page by the one in the response.
import { UNSEEN } from "./visit.js";

const PAUSE_MS = 400;
let timer = 0;
let sent = 0;

document.addEventListener("input", (event) => {
  const form = event.target.closest("form[data-preview]");
  if (!form || event.target.name === "to") return;
  clearTimeout(timer);
  timer = setTimeout(() => refresh(form), PAUSE_MS);
});

async function refresh(form) {
  const number = ++sent;
  const body = new URLSearchParams(new FormData(form));
  body.set("do", "preview");
  const answer = await fetch(form.action, { method: "POST", body, headers: UNSEEN }).catch(() => null);
  if (!answer?.ok || number !== sent) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const preview = page.querySelector(".rule-preview");
  if (preview) form.querySelector(".rule-preview")?.replaceWith(document.importNode(preview, true));
}
