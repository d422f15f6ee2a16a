// Try it: shows answers as they arrive, and changes settings without a new page. The final look of an answer
// comes from the server, which gets the conversation and renders it.
import { xsrf } from "./api.js";
import { announce } from "./copy.js";
import { fetchPage } from "./visit.js";
import { focusWrong } from "./sheets.js";
import { onFailure, SessionEnded } from "./session.js";
import { toast } from "./toast.js";
import { phrase } from "./words.js";

const REDRAW_MS = 400;
const CHARS_PER_TOKEN = 4;
const MILLION = 1e6;
const LEAST_COST = 0.00005; // below it, four decimals are all 0
const NEAR_END_PX = 160;
const NUMBERS = ["temperature", "top_p"];
const form = document.getElementById("try");
const words = (name, values = {}) => phrase(form.dataset[`words${name}`], values);
let running = []; // the AbortControllers of running calls
let redrawing;

// ---- the text in an event of any family; two compared models may use two families ------------------------

const TEXTS = [
  (event) => event.choices?.[0]?.delta?.content,
  (event) => (event.type === "response.output_text.delta" ? event.delta : ""),
  (event) => (event.type === "content_block_delta" ? event.delta?.text : ""),
  (event) => event.candidates?.[0]?.content?.parts?.filter((part) => !part.thought).map((part) => part.text ?? "").join(""),
];
const textOf = (event) => TEXTS.map((read) => read(event)).find(Boolean) ?? "";

/** Reads events as they arrive, and calls `take` with the name and the data of each. */
async function readEvents(answer, take) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const events = (rest + value).split(/\r?\n\r?\n/);
    rest = events.pop();
    for (const event of events) {
      const lines = event.split(/\r?\n/);
      const name = lines.find((line) => line.startsWith("event:"))?.slice(6).trim();
      const data = lines.filter((line) => line.startsWith("data:")).map((line) => line.slice(5).trimStart()).join("\n");
      if (data) take(name, data);
    }
  }
}

// ---- calls ----------------------------------------------------------------------------------------------

function bodyOf(model, turns) {
  const fields = new FormData(form);
  const body = { model, turns, stream: fields.has("stream"), search: fields.has("search") };
  for (const name of ["key", "system", "effort", "further", "max_tokens"]) body[name] = fields.get(name) ?? "";
  for (const name of NUMBERS) if (fields.get(name)) body[name] = Number(fields.get(name));
  if (form.querySelector("[name='model']").value === model) body.entry = fields.get("entry");
  return body;
}

/** Calls a model and shows its answer in `place` as it arrives. Returns the turn of the conversation. */
async function call(model, turns, place, control) {
  const live = place.querySelector("[data-live]") ?? place;
  const select = form.querySelector(`select[name='${place.dataset.side === "1" ? "with" : "model"}']`);
  const inner = document.getElementById("try-live").content.firstElementChild.cloneNode(true);
  const part = (selector) => inner.querySelector(selector);
  const caret = part(".caret");
  if (place.dataset.side) part("[data-model]").remove();
  else part("[data-model] > code").textContent = model;
  live.append(inner);
  const turn = { role: "assistant", text: "", model };
  const beganAt = performance.now();
  let firstAt = 0;
  const showState = () => {
    const seconds = ((performance.now() - beganAt) / 1000).toFixed(2);
    const tokens = Math.round(turn.text.length / CHARS_PER_TOKEN);
    const cost = (tokens * Number(select.dataset.priceOutput || 0)) / MILLION;
    if (cost >= LEAST_COST) part("[data-cost]").textContent = words("About", { cost: `${cost.toFixed(4)} ${form.dataset.currency}` });
    part("[data-time]").textContent = firstAt ? words("First", { seconds: ((firstAt - beganAt) / 1000).toFixed(2) }) : words("Since", { seconds });
    if (tokens) part("[data-out]").textContent = words("Out", { count: tokens });
  };
  showState();
  const timer = setInterval(showState, 250);
  try {
    const answer = await fetch("/api/try", {
      method: "POST",
      headers: { "Content-Type": "application/json", "X-XSRFToken": xsrf() },
      body: JSON.stringify(bodyOf(model, turns)),
      signal: control.signal,
    });
    if (!answer.ok) {
      const { code, message } = (await answer.json()).error;
      throw ["unauthorized", "form_expired"].includes(code) ? new SessionEnded() : Object.assign(new Error(message), { isRefusal: true });
    }
    await readEvents(answer, (name, data) => {
      if (name === "sluice") {
        const { text: whole, ...facts } = JSON.parse(data);
        turn.text ||= whole;
        turn.call = facts;
        return;
      }
      let more = "";
      try {
        more = textOf(JSON.parse(data));
      } catch {
        return; // [DONE]
      }
      if (!more) return;
      firstAt ||= performance.now();
      turn.text += more;
      caret.before(more);
      keepInView();
    });
    turn.call ??= { complete: false };
  } catch (error) {
    if (error.name !== "AbortError") {
      inner.remove();
      throw error;
    }
    turn.call = { outcome: "client_gone", complete: false, error: words("Stopped") };
  } finally {
    clearInterval(timer);
    caret.remove();
  }
  return turn;
}

function keepInView() {
  const box = form.querySelector(".try-turns");
  if (box.scrollHeight - box.scrollTop - box.clientHeight < NEAR_END_PX) showEnd();
}

/** Scrolls to the end of the conversation, in its box or, if the page scrolls instead, on the page. */
function showEnd() {
  const box = form.querySelector(".try-turns");
  box.scrollTop = box.scrollHeight;
  box.querySelector("[data-live]")?.scrollIntoView({ block: "nearest" });
}

function turnsFor(conversation, prompt, isComparison) {
  const turns = [];
  for (const turn of isComparison ? [] : conversation) {
    if (turn.role === "user") {
      if (turns.at(-1)?.role === "user") turns.pop();
      turns.push({ role: "user", text: turn.text });
    } else if (turns.at(-1)?.role === "user" && turn.text) turns.push({ role: "assistant", text: turn.text });
  }
  if (turns.at(-1)?.role === "user") turns.pop();
  return [...turns, { role: "user", text: prompt }];
}

async function ask(action) {
  const field = form.elements.turns;
  let conversation = field.value ? JSON.parse(field.value) : [];
  let prompt = form.elements.prompt.value.trim();
  if (action === "again") {
    const at = conversation.findLastIndex((turn) => turn.role === "user");
    prompt = conversation[at].text;
    conversation = conversation.slice(0, at);
  } else if (action === "go_on") prompt = form.dataset.goOn;
  if (!prompt || running.length) return;
  const sides = [...form.querySelectorAll("[data-side]")];
  const places = sides.length ? sides : [form.querySelector(".try-turns")];
  const models = sides.length ? ["model", "with"].map((name) => form.elements[name].value) : [form.elements.model.value];
  const turns = turnsFor(conversation, prompt, sides.length > 0);
  showQuestion(prompt, sides);
  form.elements.prompt.value = "";
  setRunning(models.map(() => new AbortController()));
  announce(document.getElementById("try-live").content.querySelector(".state").textContent.trim());
  try {
    const answers = await Promise.all(models.map((model, place) => call(model, turns, places[place], running[place])));
    field.value = JSON.stringify([...conversation, { role: "user", text: prompt }, ...answers]);
    await redraw(["conversation", "compared", "code", "bar"]);
  } catch (error) {
    for (const control of running) control.abort();
    form.elements.prompt.value = prompt;
    if (error.isRefusal) await showRefusal(error).catch(onFailure);
    else {
      onFailure(error);
      if (!(error instanceof SessionEnded)) await redraw(["conversation"]).catch(onFailure);
    }
  } finally {
    setRunning([]);
  }
}

/** Marks the invalid setting, and shows the server's text for why nothing was sent. */
async function showRefusal(error) {
  const page = await redraw(["conversation", "settings"]);
  toast(page.querySelector("form > .notice[role='alert']")?.textContent.trim() ?? error.message);
  focusWrong(form);
}

function showQuestion(prompt, sides) {
  for (const side of sides) for (const old of side.querySelectorAll(":scope > :not(.model-field, .help, [data-live])")) old.remove();
  const turn = Object.assign(document.createElement("div"), { className: "turn" });
  const you = Object.assign(document.createElement("p"), { className: "label", textContent: words("You") });
  turn.append(you, Object.assign(document.createElement("p"), { className: "text", textContent: prompt }));
  const box = form.querySelector(".try-turns");
  box.querySelector(":scope > .empty")?.remove();
  if (sides.length) {
    box.querySelector(":scope > .turn")?.remove();
    box.prepend(turn);
  } else box.querySelector("[data-live]").before(turn);
  showEnd();
}

function setRunning(controls) {
  running = controls;
  form.querySelector("[data-stop]").hidden = !controls.length;
  form.querySelector("[data-send]").disabled = controls.length > 0;
}

// ---- parts that the server renders ----------------------------------------------------------------------

/** Replaces parts of the page by what the server renders for the current form. */
async function redraw(parts) {
  const fields = new FormData(form);
  fields.set("do", "show");
  const page = await fetchPage("/try", { method: "POST", body: new URLSearchParams(fields), headers: { Accept: "text/html" } });
  for (const part of parts) {
    const next = page.querySelector(`[data-part='${part}']`);
    const old = form.querySelector(`[data-part='${part}']`);
    if (!next || !old) continue;
    const language = old.querySelector("[name='shown-code']:checked")?.value;
    const focused = old.contains(document.activeElement) && document.activeElement.id;
    old.replaceWith(document.importNode(next, true));
    const drawn = form.querySelector(`[data-part='${part}']`);
    if (language) drawn.querySelector(`[name='shown-code'][value='${language}']`).checked = true;
    if (part === "conversation") showEnd();
    if (focused) document.getElementById(focused)?.focus();
  }
  prepareSliders();
  return page;
}

function redrawLater(parts) {
  clearTimeout(redrawing);
  redrawing = setTimeout(() => redraw(parts).catch(onFailure), REDRAW_MS);
}

/** Turns number fields into sliders. A slider that was not moved sends no value. */
function prepareSliders() {
  for (const box of form.querySelectorAll("[data-slider]:not([data-ready])")) {
    box.dataset.ready = "";
    const number = box.querySelector("input");
    const output = box.querySelector("output");
    const range = document.createElement("input");
    for (const name of ["min", "max", "step", "id"]) range.setAttribute(name, number.getAttribute(name));
    range.type = "range";
    range.disabled = number.disabled;
    range.value = number.value || number.max;
    number.removeAttribute("id");
    number.type = "hidden";
    const show = () => {
      output.textContent = number.value || box.dataset.unsent;
      if (number.value) output.append(unset);
      range.setAttribute("aria-valuetext", output.textContent);
    };
    const name = box.querySelector("label > span").textContent;
    const unset = Object.assign(document.createElement("button"), { type: "button", className: "copy", textContent: "×" });
    unset.setAttribute("aria-label", box.dataset.unset.replace("{name}", name));
    const set = (value) => {
      number.value = value;
      if (!value) range.value = range.max;
      show();
      redrawLater(["code"]);
    };
    unset.addEventListener("click", (event) => {
      event.preventDefault();
      set("");
      range.focus();
    });
    range.addEventListener("input", () => set(range.value));
    number.after(range);
    show();
  }
}

if (form) {
  prepareSliders();
  form.addEventListener("submit", (event) => {
    const action = event.submitter?.value ?? "send";
    if (!["send", "again", "go_on"].includes(action)) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    ask(action);
  });
  form.addEventListener("change", (event) => {
    if (event.target.matches("[data-redraw]")) redraw(["bar", "settings", "code", "conversation", "compared"]).catch(onFailure);
    else if (!event.target.matches("[name='shown-code'], [name='prompt'], [type='range']")) redrawLater(["code"]);
  });
  form.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      ask("send");
    }
  });
  // Sheets on a phone and the code are fragments of this page. Back must not step through them.
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href^='#']:not(.skip)");
    if (!link) return;
    event.preventDefault();
    location.replace(link.getAttribute("href"));
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && running.length) for (const control of running) control.abort();
  });
  form.addEventListener("click", (event) => {
    if (event.target.closest("[data-stop]")) for (const control of running) control.abort();
  });
}
