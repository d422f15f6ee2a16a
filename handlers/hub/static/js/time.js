// Converts times on pages that were sent before the zone cookie was set from UTC to the browser's zone.
import { cookie } from "./api.js";

const language = document.documentElement.lang === "zh" ? "zh" : "en-GB"; // as in handlers/hub/web/zones.py
export const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
keepZone();

/** Stores the zone in a cookie, so that the server can format the times of the next page. */
function keepZone() {
  if (!zone || cookie("zone") === zone) return;
  const secure = location.protocol === "https:" ? "; secure" : "";
  document.cookie = `zone=${zone}; path=/; max-age=31536000; samesite=lax${secure}`;
}

const clock = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
const forms = {
  today: new Intl.DateTimeFormat(language, { ...clock, second: "2-digit" }),
  day: new Intl.DateTimeFormat(language, { day: "numeric", month: "short", ...clock }),
  year: new Intl.DateTimeFormat(language, { day: "numeric", month: "short", year: "numeric" }),
  date: new Intl.DateTimeFormat(language, { day: "numeric", month: "short" }),
  time: new Intl.DateTimeFormat(language, { ...clock, second: "2-digit" }),
  clock: new Intl.DateTimeFormat(language, clock),
  weekday: new Intl.DateTimeFormat(language, { weekday: "long", day: "numeric", month: "long", ...clock }),
  hour: new Intl.DateTimeFormat(language, { hour: "2-digit", hourCycle: "h23" }),
  full: new Intl.DateTimeFormat(language, {
    day: "numeric", month: "short", year: "numeric", ...clock, second: "2-digit", fractionalSecondDigits: 3,
  }),
};

/** Formats a time. `form`: a form of the part Moment. */
export function formatTime(at, form = "auto", now = new Date()) {
  if (["full", "time", "clock", "weekday"].includes(form)) return forms[form].format(at);
  const sameYear = at.getFullYear() === now.getFullYear();
  if (form === "date") return (sameYear ? forms.date : forms.year).format(at);
  if (at.toDateString() === now.toDateString()) return forms.today.format(at);
  return (sameYear ? forms.day : forms.year).format(at);
}

/** Formats the times below an element. */
export function showTimes(root) {
  for (const time of root.querySelectorAll("time[data-form]")) {
    time.textContent = formatTime(new Date(time.dateTime), time.dataset.form);
  }
  for (const tick of root.querySelectorAll("text[data-hour]")) {
    const hour = forms.hour.formatToParts(new Date(Number(tick.dataset.hour)));
    tick.textContent = hour.find((part) => part.type === "hour").value;
  }
  for (const note of root.querySelectorAll("[data-zone-note]")) {
    note.textContent = note.dataset.zoneNote.replace("{zone}", zone);
  }
}
