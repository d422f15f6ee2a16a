// The first run: a vendor brings its address and models, unless others were typed.

const form = document.getElementById("channel");
const field = (name) => form.elements.namedItem(name);
let typedModels = Boolean(Number(form?.dataset.tested));

form?.addEventListener("input", (event) => {
  if (event.target.name === "models") typedModels = true;
  if (event.target.name !== "vendor") return;
  field("base_url").placeholder = event.target.dataset.url;
  if (!typedModels) field("models").value = event.target.dataset.models;
});
