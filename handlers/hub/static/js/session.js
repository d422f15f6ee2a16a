// When a session has ended, a notice links to the sign-in page in a new tab, and the page stays as it is. After
// signing in, the failed request is repeated and forms can be sent.
import { toast } from "./toast.js";

export class SessionEnded extends Error {}

let resume = null; // repeats the request that failed because the session had ended, if possible

/** Returns whether a response is the sign-in page, or asks to send a form of an earlier session again. */
export function isEnded(answer, page) {
  return new URL(answer.url).pathname === "/sign-in" || Boolean(page.querySelector("form[data-resend]"));
}

/** Reports a failed request. `again` repeats it after the next sign-in. */
export function onFailure(error, again = null) {
  if (!(error instanceof SessionEnded)) {
    toast(document.body.dataset.failed);
    return;
  }
  resume = again;
  const place = document.querySelector("dialog[open] article") ?? document.getElementById("content");
  if (!place.querySelector("[data-session]")) {
    const notice = document.getElementById("session-ended").content.cloneNode(true);
    const head = place.querySelector(".head, .sheet-head");
    if (head) head.after(notice);
    else place.prepend(notice);
  }
  goOn(); // another tab may have signed in
}

/** If there is a session again: removes the notice, sets the new token in all forms, repeats the request. */
export async function goOn() {
  if (!document.querySelector("[data-session]")) return;
  const answer = await fetch("/account", { headers: { Accept: "text/html", "X-Unseen": "1" } });
  if (!answer.ok || new URL(answer.url).pathname === "/sign-in") return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const token = page.querySelector('input[name="_xsrf"]').value;
  for (const input of document.querySelectorAll('input[name="_xsrf"]')) input.value = token;
  for (const notice of document.querySelectorAll("[data-session]")) notice.remove();
  const again = resume;
  resume = null;
  again?.();
}
