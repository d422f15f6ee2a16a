// A toast is visible for 8 s, longer while it has the pointer or the focus.
const SHOWN_MS = 8000;

export function startToasts() {
  for (const shown of document.querySelectorAll(".toast")) startTimer(shown);
}

/** Shows a toast with a text. */
export function toast(text) {
  for (const old of document.querySelectorAll(".toast")) old.remove();
  const element = document.createElement("div");
  element.className = "toast";
  element.setAttribute("role", "status");
  const words = document.createElement("p");
  words.textContent = text;
  element.append(words);
  document.body.append(element);
  startTimer(element);
}

function startTimer(element) {
  let timer = setTimeout(() => element.remove(), SHOWN_MS);
  const stay = () => clearTimeout(timer);
  const leave = () => {
    clearTimeout(timer);
    timer = setTimeout(() => element.remove(), SHOWN_MS);
  };
  element.addEventListener("pointerenter", stay);
  element.addEventListener("focusin", stay);
  element.addEventListener("pointerleave", leave);
  element.addEventListener("focusout", leave);
}
