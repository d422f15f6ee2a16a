// Home for administrators: brings its parts up to date each minute while the page is visible, and
// those that took long as soon as they are there. The page does not move: only parts that changed are
// exchanged, and none that is in use.
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
    return; // the next one may succeed; until then the page stays as it is
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
