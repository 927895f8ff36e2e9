// SillyTavern's own route for OpenAI-compatible voices, in an Express of its own: the whole server
// would first build its web page for half a minute. Prints its port; ends with its standard input.
import { createRequire } from "node:module";
import { tmpdir } from "node:os";

const [root = tmpdir()] = process.argv.slice(2);
const from = createRequire(import.meta.resolve("sillytavern/package.json"));
const { CommandLineParser } = await import("sillytavern/src/command-line.js");
globalThis.DATA_ROOT = root;
globalThis.COMMAND_LINE_ARGS = new CommandLineParser().parse([
  ...process.argv.slice(0, 2), "--configPath", `${root}/config.yaml`, "--dataRoot", root,
]);
const { router } = await import("sillytavern/src/endpoints/openai.js");
const express = from("express");

const app = express();
app.use(express.json());
app.use((request, response, next) => {
  request.user = { directories: { root } };
  next();
});
app.use("/api/openai", router);
const server = app.listen(0, "127.0.0.1", () => console.log(`port ${server.address().port}`));
process.stdin.on("end", () => process.exit(0)).resume();
