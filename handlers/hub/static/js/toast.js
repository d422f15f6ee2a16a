// A toast says what was done, for 8 s, longer while it is looked at.
const SHOWN_MS = 8000;

export function startToasts() {
  for (const one of document.querySelectorAll(".toast")) start(one);
}

/** Shows a toast with a text. */
export function toast(text) {
  for (const old of document.querySelectorAll(".toast")) old.remove();
  const made = document.createElement("div");
  made.className = "toast";
  made.setAttribute("role", "status");
  const words = document.createElement("p");
  words.textContent = text;
  made.append(words);
  document.body.append(made);
  start(made);
}

function start(one) {
  let timer = setTimeout(() => one.remove(), SHOWN_MS);
  const stay = () => clearTimeout(timer);
  const leave = () => {
    clearTimeout(timer);
    timer = setTimeout(() => one.remove(), SHOWN_MS);
  };
  one.addEventListener("pointerenter", stay);
  one.addEventListener("focusin", stay);
  one.addEventListener("pointerleave", leave);
  one.addEventListener("focusout", leave);
}
