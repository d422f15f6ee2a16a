// The preview of a rule follows what is typed: the form is sent as by its button, and the preview of
// the answer takes the place of the one on the page.
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
