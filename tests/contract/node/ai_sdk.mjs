// Vercel's AI SDK. What to do is the third argument; what came of it is printed as JSON.
import { writeFile } from "node:fs/promises";
import { createOpenAI } from "@ai-sdk/openai";
import { APICallError, experimental_generateSpeech as generateSpeech } from "ai";

const [address, task, ...rest] = process.argv.slice(2);
const openai = createOpenAI({ baseURL: `${address}/v1`, apiKey: "sk-x" });
const text = "The weather is lovely today, so let us go for a walk.";

const tasks = {
  async speak(format, file) {
    const { audio, warnings } = await generateSpeech({
      model: openai.speech("tts-1"),
      text,
      voice: "nova",
      ...(format === "default" ? {} : { outputFormat: format }),
    });
    await writeFile(file, audio.uint8Array);
    return { type: audio.mediaType, format: audio.format, warnings };
  },

  async refused(model, voice) {
    try {
      await generateSpeech({ model: openai.speech(model), text, voice, maxRetries: 0 });
      return null;
    } catch (error) {
      return {
        isOurs: APICallError.isInstance(error),
        status: error.statusCode,
        message: error.message,
        retryable: error.isRetryable,
      };
    }
  },

  async cut(input) {
    try {
      await generateSpeech({ model: openai.speech("tts-1"), text: input, voice: "alloy", maxRetries: 0 });
      return null;
    } catch (error) {
      return { name: error.name, isOurs: APICallError.isInstance(error), message: error.message };
    }
  },

  async abort(input) {
    const controller = new AbortController();
    const speech = generateSpeech({
      model: openai.speech("tts-1"),
      text: input,
      voice: "alloy",
      maxRetries: 0,
      abortSignal: controller.signal,
    });
    const name = speech.then(
      () => null,
      (error) => error.name,
    );
    console.log("speaking");
    await new Promise((resolve) => process.stdin.once("data", resolve));
    controller.abort();
    console.log(JSON.stringify({ name: await name }));
    await new Promise((resolve) => process.stdin.once("data", resolve));
    process.exit(0);
  },
};

console.log(JSON.stringify(await tasks[task](...rest)));
