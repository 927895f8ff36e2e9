// The examples run: as they are copied, against the server that the page came from.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { promisify } from "node:util";

import { finish, openPage, ready, serveScripted, words } from "./harness.mjs";

after(finish);

const run = promisify(execFile);
const TEXT = `"It's" $HOME \\n\n\`two\` lines — and an emoji: 🎺`;

const RUNNERS = {
  curl: { file: "example.sh", command: "sh" },
  python: { file: "example.py", command: process.env.PHONATE_PYTHON ?? "python3" },
  javascript: { file: "example.mjs", command: process.execPath },
};

test("curl, Python and JavaScript get the same sound", async (t) => {
  const page = await openPage(t, await serveScripted({ api_key: "sesame" }));
  await page.fill("#key", "sesame");
  await page.keyboard.press("Enter");
  await page.locator("#key-dialog").waitFor({ state: "hidden" });
  await ready(page);
  await page.fill("#text", TEXT);
  await page.selectOption("#voice", "ton");
  await page.selectOption("#format", "pcm");
  await page.fill("#instructions", "Say 'it' \"so\".");
  await page.locator("#speed").fill("1.5");

  const folder = await mkdtemp(join(tmpdir(), "phonate-snippets-"));
  t.after(() => rm(folder, { recursive: true, force: true }));
  const sounds = {};
  for (const [name, { file, command }] of Object.entries(RUNNERS)) {
    await page.click(`#tab-${name}`);
    await writeFile(join(folder, file), await words(page, "snippet-code"));
    const env = { ...process.env, PHONATE_API_KEY: "sesame" };
    await run(command, [file], { cwd: folder, env, timeout: 30_000 });
    sounds[name] = await readFile(join(folder, "speech.pcm"));
    await rm(join(folder, "speech.pcm"));
  }
  assert.ok(sounds.curl.length > 48_000);
  assert.ok(sounds.curl.equals(sounds.python), "curl and Python");
  assert.ok(sounds.curl.equals(sounds.javascript), "curl and JavaScript");
});
