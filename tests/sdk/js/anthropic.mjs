// The anthropic SDK: messages.

import Anthropic from "@anthropic-ai/sdk";
import {
  all, BOTH_TOOLS, DESCRIPTION, HARBOUR, KETTLE, readBroken, RESULT, run, TOOL_NAMES, world,
} from "./steps.mjs";

const client = (key) =>
  new Anthropic({ baseURL: world.baseUrl, apiKey: world.keys[key], maxRetries: 0 });
const main = client("main");
const user = (content) => [{ role: "user", content }];
const usual = { model: "tea", max_tokens: 300, messages: user("hello") };
const create = (asked, by = main) => by.messages.create({ ...usual, ...asked });
const tools = TOOL_NAMES.map((name) => ({
  name, description: DESCRIPTION, input_schema: HARBOUR,
}));
const usageOf = ({ input_tokens: input, output_tokens: output }) => ({ input, output });
const delta = (event) => (event.type === "content_block_delta" ? event.delta.text : "");

const steps = {
  async text() {
    const answer = await create({});
    return {
      text: answer.content[0].text,
      model: answer.model,
      callId: answer._request_id,
      usage: usageOf(answer.usage),
    };
  },
  async stream() {
    const stream = main.messages.stream(usual);
    const events = await all(stream);
    const text = events.map(delta).join("");
    return { text, pieces: events.length, usage: usageOf((await stream.finalMessage()).usage) };
  },
  async tools() {
    const messages = user(BOTH_TOOLS);
    const { content } = await main.messages.stream({ ...usual, messages, tools }).finalMessage();
    const results = content.map((block) => ({
      type: "tool_result",
      tool_use_id: block.id,
      content: RESULT,
    }));
    const turns = [{ role: "assistant", content }, ...user(results)];
    const done = await create({ messages: [...messages, ...turns], tools });
    return {
      names: content.map((block) => block.name),
      inputs: content.map((block) => block.input),
      after: done.content[0].text,
    };
  },
  async structured() {
    const output_config = { format: { type: "json_schema", schema: KETTLE } };
    return JSON.parse((await create({ output_config })).content[0].text);
  },
  models: async () => (await all(main.models.list({ limit: 40 }))).map((model) => model.id),
  count: () => main.messages.countTokens({ model: "tea", messages: user("hello") }),
  badKey: () => create({}, client("nobodys")),
  noModel: () => create({ model: "no-such-model" }),
  noMoney: () => create({}, client("poor")),
  failing: () => create({ model: world.frail.messages[0], messages: user("[[demo status=503]]") }),
  async broken() {
    const messages = user("[[demo chunks=20 cut=6]]");
    const stream = await create({ model: world.frail.messages[1], messages, stream: true });
    return readBroken(stream, delta);
  },
};

console.log(JSON.stringify({ messages: await run(steps) }));
