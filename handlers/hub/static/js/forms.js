// Forms: no second submission while the first is in flight, typed confirmations, secrets shown once.

/** Shows the pressed button of a form as busy until the page is left. */
export function onBusySubmit(event) {
  if (event.defaultPrevented) return;
  const form = event.target;
  if (form.dataset.sent) {
    event.preventDefault();
    return;
  }
  if (form.method !== "post" || form.matches("[data-download]")) return;
  form.dataset.sent = "true";
  const button = event.submitter;
  // Set after the form was read, since the button's name and value are part of the form.
  if (button) setTimeout(() => setBusy(button, true));
  window.addEventListener("pageshow", () => release(form, button), { once: true });
}

export function setBusy(button, busy) {
  button.classList.toggle("busy", busy);
  button.setAttribute("aria-busy", String(busy));
}

export function release(form, button) {
  delete form.dataset.sent;
  if (button) setBusy(button, false);
}

/** Disables the button of a form until the name is typed. */
export function checkMatch(input) {
  const button = input.form?.querySelector("button:not([type='button'])");
  if (button) button.disabled = input.value !== input.dataset.match;
}

/** Asks for confirmation before leaving a new secret that was not copied, downloaded or marked as stored. */
export function guardSecret() {
  const secret = document.querySelector("[data-secret]");
  if (!secret) return;
  let stored = false;
  for (const name of ["sluice:copied", "submit"]) secret.addEventListener(name, () => { stored = true; });
  secret.addEventListener("click", (event) => {
    const sign = event.target.closest("[data-stored]");
    if (sign) stored = sign.checked ?? true;
  });
  window.addEventListener("beforeunload", (event) => {
    if (!stored) event.preventDefault();
  });
}
