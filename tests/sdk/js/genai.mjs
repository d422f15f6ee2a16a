// The Google Gen AI SDK: generate-content, under /v1beta (its default) and /v1.

import { GoogleGenAI } from "@google/genai";
import {
  all, BOTH_TOOLS, DESCRIPTION, HARBOUR, KETTLE, readBroken, RESULT, run, TOOL_NAMES, world,
} from "./steps.mjs";

function stepsOf(apiVersion, frail) {
  const client = (key) =>
    new GoogleGenAI({
      apiKey: world.keys[key],
      httpOptions: { baseUrl: world.baseUrl, ...(apiVersion && { apiVersion }) },
    });
  const { models } = client("main");
  const usual = { model: "tea", contents: "hello" };
  const generate = (asked, by = models) => by.generateContent({ ...usual, ...asked });
  const config = {
    tools: [
      {
        functionDeclarations: TOOL_NAMES.map((name) => ({
          name, description: DESCRIPTION, parametersJsonSchema: HARBOUR,
        })),
      },
    ],
  };
  const usageOf = ({ promptTokenCount: input, candidatesTokenCount: output }) => ({ input, output });

  return {
    async text() {
      const answer = await generate({});
      const callId = answer.sdkHttpResponse.headers["x-request-id"];
      return {
        text: answer.text, model: answer.modelVersion, callId, usage: usageOf(answer.usageMetadata),
      };
    },
    async stream() {
      const chunks = await all(await models.generateContentStream(usual));
      return {
        text: chunks.map((chunk) => chunk.text ?? "").join(""),
        pieces: chunks.length,
        usage: usageOf(chunks.at(-1).usageMetadata),
      };
    },
    async tools() {
      const first = { role: "user", parts: [{ text: BOTH_TOOLS }] };
      const chunks = await all(
        await models.generateContentStream({ model: "tea", contents: [first], config }),
      );
      const parts = chunks
        .flatMap((chunk) => chunk.candidates[0].content.parts ?? [])
        .filter((part) => part.functionCall);
      const results = parts.map(({ functionCall: { id, name } }) => ({
        functionResponse: { id, name, response: { it: RESULT } },
      }));
      const turns = [{ role: "model", parts }, { role: "user", parts: results }];
      const done = await generate({ contents: [first, ...turns], config });
      return {
        names: parts.map((part) => part.functionCall.name),
        inputs: parts.map((part) => part.functionCall.args),
        after: done.text,
      };
    },
    async structured() {
      const wanted = { responseMimeType: "application/json", responseJsonSchema: KETTLE };
      return JSON.parse((await generate({ config: wanted })).text);
    },
    models: async () =>
      (await all(await models.list({ config: { pageSize: 40 } }))).map(({ name }) =>
        name.replace("models/", ""),
      ),
    count: () => models.countTokens(usual),
    badKey: () => generate({}, client("nobodys").models),
    noModel: () => generate({ model: "no-such-model" }),
    noMoney: () => generate({}, client("poor").models),
    failing: () => generate({ model: frail[0], contents: "[[demo status=503]]" }),
    async broken() {
      const contents = "[[demo chunks=20 cut=6]]";
      const stream = await models.generateContentStream({ model: frail[1], contents });
      return readBroken(stream, (chunk) => chunk.text);
    },
  };
}

const frail = world.frail.generate_content;
const done = {
  generate_content: await run(stepsOf(undefined, frail.slice(0, 2))),
  "generate_content v1": await run(stepsOf("v1", frail.slice(2))),
};
console.log(JSON.stringify(done));
