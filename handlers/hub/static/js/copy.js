// Buttons that copy a text: [data-copy="text"], or [data-copy-from="id of an element"].
const DONE_MS = 2000;

export async function onCopy(event) {
  const button = event.target.closest("[data-copy], [data-copy-from]");
  if (!button) return;
  const from = button.dataset.copyFrom && document.getElementById(button.dataset.copyFrom);
  if (await copyText(from ? from.textContent : button.dataset.copy)) showDone(button);
}

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copyBySelection(text); // the clipboard API needs HTTPS
  }
}

function copyBySelection(text) {
  const field = document.createElement("textarea");
  field.value = text;
  field.className = "hidden-text";
  const host = document.querySelector("dialog[open]") ?? document.body;
  host.append(field);
  field.select();
  const done = document.execCommand("copy");
  field.remove();
  return done;
}

function showDone(button) {
  const word = document.body.dataset.copied;
  const use = button.querySelector("use");
  const label = button.querySelector("[data-word]");
  const before = label?.textContent;
  button.classList.add("done");
  use?.setAttribute("href", "#i-check");
  if (label) label.textContent = word;
  announce(word);
  button.dispatchEvent(new CustomEvent("sluice:copied", { bubbles: true }));
  setTimeout(() => {
    button.classList.remove("done");
    use?.setAttribute("href", "#i-copy");
    if (label) label.textContent = before;
  }, DONE_MS);
}

/** Announces a text to screen readers. */
export function announce(text) {
  let live = document.getElementById("live");
  if (!live) {
    live = Object.assign(document.createElement("p"), { id: "live", className: "hidden-text" });
    live.setAttribute("aria-live", "polite");
    document.body.append(live);
  }
  live.textContent = text;
}
