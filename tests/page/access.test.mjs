// For everybody: axe finds no serious fault in any state, and the keyboard is enough.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { after, test } from "node:test";

import { finish, openPage, picture, ready, serveScripted, sleep, state, words } from "./harness.mjs";

after(finish);

const AXE = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const NARROW = { width: 360, height: 740 };

async function check(page, where) {
  await page.evaluate(AXE);
  const { violations } = await page.evaluate(() => axe.run(document, { resultTypes: ["violations"] }));
  const grave = violations
    .filter(({ impact }) => ["serious", "critical"].includes(impact))
    .map(({ id, nodes }) => `${where}: ${id}: ${nodes.map(({ html }) => html).join(" ")}`);
  assert.deepEqual(grave, []);
}

for (const colorScheme of ["light", "dark"]) {
  test(`axe finds nothing serious (${colorScheme})`, async (t) => {
    const page = await openPage(t, await serveScripted(), { colorScheme, permissions: ["microphone"] });
    await ready(page);
    await check(page, "idle");
    await picture(page, `idle-${colorScheme}`, { fullPage: true });
    await page.click("#speak");
    await state(page, "speaking");
    await sleep(300);
    await check(page, "speaking");
    await page.click("#hold");
    await check(page, "paused");
    await page.click("#stop");
    await page.fill("#text", "Broken.");
    await page.click("#speak");
    await state(page, "failed");
    await check(page, "failed");
    await page.click("#add-voice");
    await page.click("#voice-save");
    await check(page, "adding a voice");
    await page.click("#voice-cancel");
    await page.setViewportSize(NARROW);
    await check(page, "narrow");
    await picture(page, `narrow-${colorScheme}`, { fullPage: true });
    const wider = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    assert.ok(wider <= 0, `${wider} px of the page are beside a narrow screen`);
  });
}

test("axe finds nothing serious when a key is asked for", async (t) => {
  const page = await openPage(t, await serveScripted({ api_key: "sesame" }));
  await page.locator("#key-dialog").waitFor();
  await check(page, "key");
});

test("the keyboard is enough", async (t) => {
  const page = await openPage(t, await serveScripted(), {
    permissions: ["clipboard-read", "clipboard-write"],
  });
  await ready(page);
  const focus = () => page.evaluate(() => document.activeElement.id || document.activeElement.className);
  const press = (key) => page.keyboard.press(key);
  const tabTo = async (id) => {
    for (let i = 0; i < 40; i += 1) {
      if ((await focus()) === id) return;
      await press("Tab");
    }
    assert.fail(`Tab does not lead to ${id}`);
  };

  await press("Tab");
  assert.equal(await focus(), "skip");
  await press("Enter");
  assert.equal(await focus(), "text");
  await press("Control+A");
  await page.keyboard.type("Slowly and by keyboard only, this is said from the first word to the last.");
  await press("Control+Enter");
  await state(page, "speaking");
  await tabTo("hold");
  await press("Space");
  await state(page, "paused");
  await press("Space");
  await state(page, "speaking");
  assert.equal(await focus(), "hold", "the focus stays where it was");
  await press("Escape");
  await state(page, "stopped");
  await tabTo("wave");
  await press("Home");
  await state(page, "speaking");
  await page.focus("#hold");
  await press("Tab");
  await press("Enter");
  await state(page, "stopped");
  assert.equal(await focus(), "stop", "a button that has done its work keeps the focus");

  await tabTo("tab-curl");
  await press("ArrowRight");
  assert.match(await words(page, "snippet-code"), /^from openai import OpenAI/);
  await press("ArrowLeft");
  await tabTo("copy");
  await press("Enter");
  await page.locator("#copy").filter({ hasText: "Copied" }).waitFor();
  const copied = await page.evaluate(() => navigator.clipboard.readText());
  assert.match(copied, /^curl /);

  await page.focus("#filter-field, #add-voice");
  await tabTo("choose");
  await press("Tab");
  await press("Tab");
  await press("Enter");
  assert.equal(await page.locator("#voice").inputValue(), "ton");
  await page.focus("#add-voice");
  await press("Enter");
  await page.locator("#voice-dialog").waitFor();
  await press("Escape");
  await page.locator("#voice-dialog").waitFor({ state: "hidden" });
  assert.equal(await focus(), "add-voice", "and comes back after a dialog");
});
