// Sessions with the AI SDK; `api` is the family of its provider. Reads the sessions as JSON, plays
// them one after the other, and prints the results.
import { execSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createGoogleGenerativeAI } from "@ai-sdk/google";
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const ROUNDS_MAX = 8;

const tools = {
  read_file: tool({
    description: "Reads a file.",
    inputSchema: z.object({ path: z.string() }),
    execute: ({ path }) => readFileSync(path, "utf8"),
  }),
  edit_file: tool({
    description: "Replaces a text in a file by another one.",
    inputSchema: z.object({ path: z.string(), old: z.string(), new: z.string() }),
    execute: ({ path, old, new: text }) => {
      writeFileSync(path, readFileSync(path, "utf8").replace(old, text));
      return { changed: true };
    },
  }),
  write_file: tool({
    description: "Writes a file.",
    inputSchema: z.object({ path: z.string(), content: z.string() }),
    execute: ({ path, content }) => {
      writeFileSync(path, content);
      return { written: true };
    },
  }),
  run_command: tool({
    description: "Runs a line of the shell in a folder.",
    inputSchema: z.object({ command: z.string(), folder: z.string() }),
    execute: ({ command, folder }) => execSync(command, { cwd: folder, encoding: "utf8" }),
  }),
};

function modelOf({ api, base_url: base, key: apiKey }) {
  if (api === "messages") {
    return createAnthropic({ baseURL: `${base}/v1`, apiKey })("claude-sonnet-4-6");
  }
  if (api === "generate_content") {
    return createGoogleGenerativeAI({ baseURL: `${base}/v1beta`, apiKey })("gemini-3.1-pro-preview");
  }
  const provider = createOpenAI({ baseURL: `${base}/v1`, apiKey });
  return api === "responses" ? provider.responses("gpt-4o") : provider.chat("gpt-4o");
}

async function play(told) {
  const asked = {
    model: modelOf(told),
    system: "You edit files.",
    prompt: told.prompt,
    tools,
    stopWhen: stepCountIs(ROUNDS_MAX),
    maxRetries: 0,
  };
  if (!told.streamed) {
    return (await generateText(asked)).text;
  }
  let failed;
  const streaming = streamText({ ...asked, onError: ({ error }) => (failed = error) });
  await streaming.consumeStream();
  if (failed) {
    throw failed;
  }
  return await streaming.text;
}

const told = JSON.parse(readFileSync(0, "utf8"));
const found = [];
for (const one of told.sessions) {
  try {
    found.push({ text: await play({ ...told, ...one }) });
  } catch (error) {
    found.push({ error: `${error.stack} ${error.responseBody ?? ""}` });
  }
}
console.log(JSON.stringify(found));
