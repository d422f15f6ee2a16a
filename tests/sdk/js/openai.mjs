// The openai SDK: chat completions and responses.

import OpenAI from "openai";
import {
  all, BOTH_TOOLS, DESCRIPTION, HARBOUR, KETTLE, readBroken, RESULT, run, TOOL_NAMES, world,
} from "./steps.mjs";

const client = (key) =>
  new OpenAI({ baseURL: `${world.baseUrl}/v1`, apiKey: world.keys[key], maxRetries: 0 });
const main = client("main");
const models = async () => (await all(main.models.list())).map((model) => model.id);

const user = (content) => [{ role: "user", content }];
const chat = (asked, by = main) =>
  by.chat.completions.create({ model: "tea", messages: user("hello"), ...asked });
const chatTools = TOOL_NAMES.map((name) => ({
  type: "function",
  function: { name, description: DESCRIPTION, parameters: HARBOUR },
}));

const chatSteps = {
  async text() {
    const answer = await chat({});
    const { prompt_tokens: input, completion_tokens: output } = answer.usage;
    return {
      text: answer.choices[0].message.content,
      model: answer.model,
      callId: answer._request_id,
      usage: { input, output },
    };
  },
  async stream() {
    const chunks = await all(
      await chat({ stream: true, stream_options: { include_usage: true } }),
    );
    const { prompt_tokens: input, completion_tokens: output } = chunks.at(-1).usage;
    const text = chunks.map((chunk) => chunk.choices[0]?.delta.content ?? "").join("");
    return { text, pieces: chunks.length, usage: { input, output } };
  },
  async tools() {
    const messages = user(BOTH_TOOLS);
    const stream = main.chat.completions.stream({ model: "tea", messages, tools: chatTools });
    const { message } = (await stream.finalChatCompletion()).choices[0];
    const results = message.tool_calls.map((call) => ({
      role: "tool",
      tool_call_id: call.id,
      content: RESULT,
    }));
    const done = await chat({ messages: [...messages, message, ...results], tools: chatTools });
    return {
      names: message.tool_calls.map((call) => call.function.name),
      inputs: message.tool_calls.map((call) => JSON.parse(call.function.arguments)),
      after: done.choices[0].message.content,
    };
  },
  async structured() {
    const json_schema = { name: "kettle", strict: true, schema: KETTLE };
    const answer = await chat({ response_format: { type: "json_schema", json_schema } });
    return JSON.parse(answer.choices[0].message.content);
  },
  models,
  badKey: () => chat({}, client("nobodys")),
  noModel: () => chat({ model: "no-such-model" }),
  noMoney: () => chat({}, client("poor")),
  failing: () =>
    chat({ model: world.frail.chat_completions[0], messages: user("[[demo status=503]]") }),
  async broken() {
    const messages = user("[[demo chunks=20 cut=6]]");
    const stream = await chat({ model: world.frail.chat_completions[1], messages, stream: true });
    return readBroken(stream, (chunk) => chunk.choices[0]?.delta.content);
  },
};

const respond = (asked, by = main) => by.responses.create({ model: "tea", input: "hello", ...asked });
const responseTools = TOOL_NAMES.map((name) => ({
  type: "function", name, description: DESCRIPTION, parameters: HARBOUR, strict: true,
}));
const responseUsage = ({ input_tokens: input, output_tokens: output }) => ({ input, output });
const delta = (event) => (event.type === "response.output_text.delta" ? event.delta : "");

const responsesSteps = {
  async text() {
    const answer = await respond({});
    return {
      text: answer.output_text,
      model: answer.model,
      callId: answer._request_id,
      usage: responseUsage(answer.usage),
    };
  },
  async stream() {
    const events = await all(await respond({ stream: true }));
    return {
      text: events.map(delta).join(""),
      pieces: events.length,
      usage: responseUsage(events.at(-1).response.usage),
    };
  },
  async tools() {
    const input = user(BOTH_TOOLS);
    const asked = { tools: responseTools, store: false };
    const stream = main.responses.stream({ model: "tea", input, ...asked });
    const { output } = await stream.finalResponse();
    const results = output.map((call) => ({
      type: "function_call_output",
      call_id: call.call_id,
      output: RESULT,
    }));
    // Removes fields that the helper adds to calls for its user; the vendor must not get them.
    const calls = output.map(({ parsed_arguments, ...call }) => call);
    const done = await respond({ ...asked, input: [...input, ...calls, ...results] });
    return {
      names: output.map((call) => call.name),
      inputs: output.map((call) => JSON.parse(call.arguments)),
      after: done.output_text,
    };
  },
  async structured() {
    const format = { type: "json_schema", name: "kettle", strict: true, schema: KETTLE };
    return JSON.parse((await respond({ text: { format } })).output_text);
  },
  models,
  badKey: () => respond({}, client("nobodys")),
  noModel: () => respond({ model: "no-such-model" }),
  noMoney: () => respond({}, client("poor")),
  failing: () => respond({ model: world.frail.responses[0], input: "[[demo status=503]]" }),
  async broken() {
    const input = "[[demo chunks=20 cut=8]]";
    const stream = await respond({ model: world.frail.responses[1], input, stream: true });
    return readBroken(stream, delta);
  },
};

const done = { chat_completions: await run(chatSteps), responses: await run(responsesSteps) };
console.log(JSON.stringify(done));
