// The end of a session: a notice leads to the sign-in in a new tab, and what is on the page stays. Once
// somebody has signed in, what was asked for is asked for again, and forms can be sent.
import { toast } from "./toast.js";

export class SessionEnded extends Error {}

let resume = null; // the request that the end of the session refused, if it can be repeated

/** Tells whether an answer is the sign-in, or a form of an earlier session. */
export function isEnded(answer, page) {
  return new URL(answer.url).pathname === "/sign-in" || Boolean(page.querySelector("form[data-resend]"));
}

/** Reports a request that failed; `again` repeats it after the next sign-in. */
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

/** Removes the notice if there is a session again, gives all forms its token, and repeats the request. */
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
