// The first run: choosing a vendor fills in its address and models, unless models were typed.

const form = document.getElementById("channel");
const field = (name) => form.elements.namedItem(name);
let modelsEdited = Boolean(Number(form?.dataset.tested));

form?.addEventListener("input", (event) => {
  if (event.target.name === "models") modelsEdited = true;
  if (event.target.name !== "vendor") return;
  field("base_url").placeholder = event.target.dataset.url;
  if (!modelsEdited) field("models").value = event.target.dataset.models;
});
