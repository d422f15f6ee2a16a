// The openai SDK: the endpoints beside chat. Forms are uploaded chunked, without a length.

import OpenAI, { toFile } from "openai";
import { all, run, world } from "./steps.mjs";

const { embeddings, completions, moderations, images, audio } = new OpenAI({
  baseURL: `${world.baseUrl}/v1`, apiKey: world.keys.main, maxRetries: 0,
});
const model = "tea";
const file = (bytes) => toFile(new Uint8Array(bytes), "tea.png", { type: "image/png" });
const types = async (stream) => (await all(await stream)).map((event) => event.type);

const steps = {
  async embeddings() {
    const answer = await embeddings.create({ model, input: ["a", "b"], dimensions: 3 });
    return answer.data.map((row) => row.embedding);
  },
  async completions() {
    const request = { model, prompt: "once" };
    const whole = await completions.create(request);
    const chunks = await all(await completions.create({ ...request, stream: true }));
    return [whole.choices[0].text, chunks.map((chunk) => chunk.choices[0].text).join("")];
  },
  async moderations() {
    return (await moderations.create({ model, input: "a" })).results[0].flagged;
  },
  async images() {
    const request = { model, prompt: "a cat" };
    const whole = await images.generate({ ...request, n: 2 });
    const edited = await images.edit({ ...request, image: await file(2_000_000) });
    const kinds = await types(images.generate({ ...request, stream: true }));
    return [whole.data.length, edited.data.length, ...kinds];
  },
  async speech() {
    const answer = await audio.speech.create({ model, voice: "alloy", input: "Tea." });
    return (await answer.arrayBuffer()).byteLength;
  },
  async transcriptions() {
    const request = { model, file: await file(3_000_000) };
    const { text } = await audio.transcriptions.create(request);
    const kinds = await types(audio.transcriptions.create({ ...request, stream: true }));
    return [text, ...kinds];
  },
};

console.log(JSON.stringify({ endpoints: await run(steps) }));
