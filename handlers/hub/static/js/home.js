// The home page for administrators: refreshes its parts every minute while the page is visible, and loads
// late parts as soon as they are ready. To keep the page steady, only parts that changed and are not in
// use are replaced.
import { UNSEEN, fetchPage } from "./visit.js";

const EVERY_MS = 60_000;
const parts = () => document.querySelectorAll("[data-part]");
const shown = new Map(); // the markup of each part as the server sent it
let refreshed = Date.now();

function isInUse(part) {
  const active = document.activeElement;
  return (active !== document.body && part.contains(active)) || part.querySelector("details[open]");
}

async function refresh() {
  if (document.hidden || location.pathname !== "/" || !parts().length) return;
  refreshed = Date.now();
  const address = new URL(location);
  address.searchParams.set("wait", "1");
  let page;
  try {
    page = await fetchPage(address, { headers: UNSEEN });
  } catch {
    return; // keep the page; the next refresh may succeed
  }
  for (const part of parts()) {
    const name = part.dataset.part;
    const fresh = page.querySelector(`[data-part="${name}"]`);
    if (!fresh || isInUse(part) || shown.get(name) === fresh.outerHTML) continue;
    shown.set(name, fresh.outerHTML);
    part.replaceChildren(...fresh.childNodes);
    part.dispatchEvent(new CustomEvent("sluice:content", { bubbles: true }));
  }
}

function completeParts() {
  shown.clear();
  refreshed = Date.now();
  if (document.querySelector("[data-late]")) refresh();
}

document.addEventListener("sluice:content", (event) => {
  if (event.target.id === "content") completeParts();
});
setInterval(refresh, EVERY_MS);
document.addEventListener("visibilitychange", () => {
  if (Date.now() - refreshed > EVERY_MS) refresh();
});
completeParts();
