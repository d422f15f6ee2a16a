// The common part of the scripts. Each runs its steps one after another with the gateway named on
// stdin, and prints one JSON object: the result of each step, or the error that it raised.

import { text } from "node:stream/consumers";

export const HARBOUR = {
  type: "object",
  properties: { harbour: { type: "string" } },
  required: ["harbour"],
  additionalProperties: false,
};
export const KETTLE = {
  type: "object",
  properties: { name: { type: "string" }, cups: { type: "integer" } },
  required: ["name", "cups"],
  additionalProperties: false,
};
export const BOTH_TOOLS = "Tell me get_weather and get_tide";
export const TOOL_NAMES = ["get_weather", "get_tide"];
export const DESCRIPTION = "Of a harbour.";
export const RESULT = "calm";

/** baseUrl, keys by name, and for each family the models for its failing steps. */
export const world = JSON.parse(await text(process.stdin));

/** Runs the steps in order: name -> its value, or {raised, status, code, type, message}. */
export async function run(steps) {
  const done = {};
  for (const [name, step] of Object.entries(steps)) {
    try {
      done[name] = await step();
    } catch (error) {
      done[name] = told(error);
    }
  }
  return done;
}

function told(error) {
  const { status, code, type, message } = error;
  return { raised: error.constructor.name, status, code, type, message };
}

/** Reads a stream that may break; returns what came before, and the error. */
export async function readBroken(stream, textOf) {
  let shown = "";
  try {
    for await (const event of stream) shown += textOf(event) ?? "";
  } catch (error) {
    return { shown, ...told(error) };
  }
  return { shown, raised: null };
}

/** Returns everything of an async iterable; an endless one is cut. */
export async function all(iterable) {
  const found = [];
  for await (const one of iterable) {
    if (found.push(one) === 1000) break;
  }
  return found;
}
