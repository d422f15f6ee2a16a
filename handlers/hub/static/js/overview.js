// Home, channel status, wallet: what a bar is on hover, and where its calls are.
import { written } from "./time.js";
import { UNSEEN, fetchPage, visit } from "./visit.js";

const DAY_MS = 86_400_000;

/** What the bar under the pointer is: its place, when it began, its counts. */
function barAt(link, event) {
  const bars = link.dataset.bars.split(",");
  const box = link.querySelector("svg").getBoundingClientRect();
  const place = Math.floor(((event.clientX - box.left) / box.width) * bars.length);
  const at = Math.min(Math.max(place, 0), bars.length - 1);
  const step = Number(link.dataset.step);
  const since = Number(link.dataset.since) + at * step;
  const [ok, failed, probes] = bars[at].split("/").map(Number);
  return { since, step, ok, failed, probes };
}

function told(link, bar) {
  const words = link.closest("[data-bar-calls]").dataset;
  const day = bar.step >= DAY_MS;
  const span = day ? written(new Date(bar.since), "date") + " UTC" : written(new Date(bar.since));
  const calls = bar.ok + bar.failed;
  let text = bar.probes ? words.barProbes : words.barNone;
  if (calls) text = bar.failed ? words.barCalls : words.barWell;
  const share = calls ? ((100 * bar.ok) / calls).toFixed(2) : "";
  const values = { span, calls, failed: bar.failed, probes: bar.probes, share };
  return text.replace(/\{(\w+)\}/g, (whole, name) => values[name] ?? whole);
}

document.addEventListener("pointermove", (event) => {
  const link = event.target.closest?.("[data-bars]");
  if (link) link.title = told(link, barAt(link, event));
});

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("[data-bars]");
  if (!link || !event.detail) return; // by keyboard: the rows of all bars
  const bar = barAt(link, event);
  const url = new URL(link.href);
  url.searchParams.set("since", new Date(bar.since).toISOString());
  url.searchParams.set("until", new Date(bar.since + bar.step).toISOString());
  event.preventDefault();
  location.assign(url);
});

// Home before the first call: looks for it every two seconds while somebody looks at the page.
const LOOK_MS = 2000;

async function lookForCall() {
  if (!document.querySelector("[data-awaits-call]")) return;
  if (!document.hidden && location.pathname === "/") {
    try {
      const page = await fetchPage("/", { headers: UNSEEN });
      if (!page.querySelector("[data-awaits-call]")) {
        await visit("/", { push: false });
        return;
      }
    } catch {
      // The next look may reach it again; what the page shows holds.
    }
  }
  setTimeout(lookForCall, LOOK_MS);
}

setTimeout(lookForCall, LOOK_MS);
