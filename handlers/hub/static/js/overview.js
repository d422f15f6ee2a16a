// Titles and links for the bars on the pages home, channel status and wallet.
import { formatTime } from "./time.js";
import { UNSEEN, fetchPage, visit } from "./visit.js";
import { phrase } from "./words.js";

const DAY_MS = 86_400_000;

/** Returns the bar under the pointer: its start, length and counts. */
function barAt(link, event) {
  const bars = link.dataset.bars.split(",");
  const box = link.querySelector("svg").getBoundingClientRect();
  const index = Math.floor(((event.clientX - box.left) / box.width) * bars.length);
  const at = Math.min(Math.max(index, 0), bars.length - 1);
  const step = Number(link.dataset.step);
  const since = Number(link.dataset.since) + at * step;
  const [ok, failed, probes] = bars[at].split("/").map(Number);
  return { since, step, ok, failed, probes };
}

function barTitle(link, bar) {
  const words = link.closest("[data-bar-calls]").dataset;
  const day = bar.step >= DAY_MS;
  const span = day ? formatTime(new Date(bar.since), "date") + " UTC" : formatTime(new Date(bar.since));
  const calls = bar.ok + bar.failed;
  let text = bar.probes ? words.barProbes : words.barNone;
  if (calls) text = bar.failed ? words.barCalls : words.barWell;
  const share = calls ? ((100 * bar.ok) / calls).toFixed(2) : "";
  const values = { span, calls, failed: bar.failed, probes: bar.probes, share };
  return phrase(text, values);
}

document.addEventListener("pointermove", (event) => {
  const link = event.target.closest?.("[data-bars]");
  if (link) link.title = barTitle(link, barAt(link, event));
});

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("[data-bars]");
  if (!link || !event.detail) return; // by keyboard, the link leads to the calls of all bars
  const bar = barAt(link, event);
  const url = new URL(link.href);
  url.searchParams.set("since", new Date(bar.since).toISOString());
  url.searchParams.set("until", new Date(bar.since + bar.step).toISOString());
  event.preventDefault();
  location.assign(url);
});

// The home page before the first call: checks for the call every two seconds while the page is visible.
// The completed steps remain until the user goes to the home page.
const LOOK_MS = 2000;
let looking;

async function lookForCall() {
  clearTimeout(looking);
  if (!document.querySelector("[data-awaits-call]")) return;
  if (!document.hidden && location.pathname === "/") {
    try {
      const page = await fetchPage("/", { headers: UNSEEN });
      if (!page.querySelector("[data-awaits-call]")) {
        await visit("/", { push: false });
        document.getElementById("go-home")?.focus();
        return;
      }
    } catch {
      // Keep the page; the next check may succeed.
    }
  }
  looking = setTimeout(lookForCall, LOOK_MS);
}

document.addEventListener("click", (event) => {
  if (!event.target.closest?.("[data-look]")) return;
  event.preventDefault();
  lookForCall();
});

looking = setTimeout(lookForCall, LOOK_MS);
