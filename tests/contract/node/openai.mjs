// The OpenAI SDK. What to do is the third argument; what came of it is printed as JSON.
import { writeFile } from "node:fs/promises";
import OpenAI from "openai";

const [address, task, ...rest] = process.argv.slice(2);
const client = new OpenAI({ baseURL: `${address}/v1`, apiKey: "sk-x", maxRetries: 0 });
const text = "The weather is lovely today, so let us go for a walk.";

const tasks = {
  async speak(format, file) {
    const answer = await client.audio.speech.create({
      model: "gpt-4o-mini-tts",
      voice: "alloy",
      input: text,
      response_format: format,
    });
    await writeFile(file, Buffer.from(await answer.arrayBuffer()));
    return { type: answer.headers.get("content-type"), id: answer.headers.get("x-request-id") };
  },

  async events(file) {
    const answer = await client.audio.speech.create({
      model: "gpt-4o-mini-tts",
      voice: "coral",
      input: text,
      response_format: "pcm",
      stream_format: "sse",
    });
    let body = "";
    for await (const piece of answer.body.pipeThrough(new TextDecoderStream())) body += piece;
    const events = body
      .split("\n")
      .filter((line) => line.startsWith("data: "))
      .map((line) => JSON.parse(line.slice(6)));
    const audio = events.filter((event) => event.type === "speech.audio.delta");
    await writeFile(file, Buffer.concat(audio.map((x) => Buffer.from(x.audio, "base64"))));
    return events.at(-1);
  },

  async models() {
    const found = [];
    for await (const model of client.models.list()) found.push(model.id);
    return found;
  },

  async refused(fields) {
    const body = { model: "tts-1", voice: "alloy", input: text, ...JSON.parse(fields) };
    try {
      await client.audio.speech.create(body);
      return null;
    } catch (error) {
      return {
        class: error.constructor.name,
        isOurs: error instanceof OpenAI.APIError,
        status: error.status,
        param: error.param,
        code: error.code,
        id: error.requestID,
      };
    }
  },

  async cut(input) {
    const answer = await client.audio.speech.create({ model: "tts-1", voice: "alloy", input });
    try {
      return { bytes: (await answer.arrayBuffer()).byteLength };
    } catch (error) {
      return { class: error.constructor.name, status: answer.status };
    }
  },

  async abort(input) {
    const controller = new AbortController();
    const answer = await client.audio.speech.create(
      { model: "tts-1", voice: "alloy", input, response_format: "pcm" },
      { signal: controller.signal },
    );
    const reader = answer.body.getReader();
    await reader.read();
    console.log("speaking");
    await new Promise((resolve) => process.stdin.once("data", resolve));
    controller.abort();
    let name = null;
    try {
      while (!(await reader.read()).done);
    } catch (error) {
      name = error.name;
    }
    // The process stays, so that the connection is closed by the abort and by nothing else.
    console.log(JSON.stringify({ name }));
    await new Promise((resolve) => process.stdin.once("data", resolve));
    process.exit(0);
  },
};

console.log(JSON.stringify(await tasks[task](...rest)));
