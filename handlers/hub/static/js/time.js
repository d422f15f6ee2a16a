// Times are sent in UTC and shown in the browser's zone; UTC is there on hover.
const language = document.documentElement.lang || "en";
export const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;

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

/** A moment as pages write it; `form` as in the part Moment. */
export function written(at, form = "auto", now = new Date()) {
  if (["full", "time", "clock", "weekday"].includes(form)) return forms[form].format(at);
  const sameYear = at.getFullYear() === now.getFullYear();
  if (form === "date") return (sameYear ? forms.date : forms.year).format(at);
  if (at.toDateString() === now.toDateString()) return forms.today.format(at);
  return (sameYear ? forms.day : forms.year).format(at);
}

/** Rewrites the times below an element. */
export function showTimes(root) {
  for (const one of root.querySelectorAll("time[datetime]")) {
    const at = new Date(one.dateTime);
    if (Number.isNaN(at.getTime()) || one.title) continue;
    one.title = at.toISOString().replace("T", " ").replace("Z", " UTC");
    one.textContent = written(at, one.dataset.form);
  }
  for (const one of root.querySelectorAll("text[data-hour]")) {
    const hour = forms.hour.formatToParts(new Date(Number(one.dataset.hour)));
    one.textContent = hour.find((part) => part.type === "hour").value;
  }
  for (const one of root.querySelectorAll("[data-zone-note]")) {
    one.textContent = one.dataset.zoneNote.replace("{zone}", zone);
  }
}
