// A server with a key: asked for, tried, kept in the tab, forgotten.

import assert from "node:assert/strict";
import { after, test } from "node:test";

import { finish, openPage, picture, ready, says, serveScripted, state, words } from "./harness.mjs";

after(finish);

const KEY = "süß & 🔑";
const REFUSED = { allow: /401 \(Unauthorized\)/ };

test("the key is asked for, tried, and kept in the tab only", async (t) => {
  const server = await serveScripted({ api_key: KEY });
  const page = await openPage(t, server, REFUSED);
  const dialog = page.locator("#key-dialog");
  await dialog.waitFor();
  await picture(page, "key");
  await page.fill("#key", "wrong");
  await page.keyboard.press("Enter");
  await says(page, "key-error", "does not know this key");
  await page.fill("#key", KEY);
  await page.keyboard.press("Enter");
  await dialog.waitFor({ state: "hidden" });
  await page.fill("#text", "Open, sesame.");
  await page.click("#speak");
  await state(page, "done");

  const kept = await page.evaluate(() => [localStorage.length, document.cookie, location.href]);
  assert.deepEqual(kept, [0, "", server], "nowhere but in the tab");
  assert.ok(!(await words(page, "snippet-code")).includes(KEY));
  assert.match(await words(page, "snippet-code"), /Bearer \$PHONATE_API_KEY/);

  await page.reload();
  await ready(page);
  assert.ok(await dialog.isHidden(), "the tab still has it");
  const other = await openPage(t, server, REFUSED);
  await other.locator("#key-dialog").waitFor();

  await page.getByRole("button", { name: "Forget the key" }).click();
  await dialog.waitFor();
  await page.click("#key-later");
  await page.click("#speak");
  await dialog.waitFor();
});

test("a key that the server no longer takes is asked for again", async (t) => {
  const allow = /401 \(Unauthorized\)|HTTP Authentication failed/;
  const page = await openPage(t, await serveScripted({ api_key: KEY }), { allow });
  await page.evaluate(() => sessionStorage.setItem("phonate-key", "of yesterday"));
  await page.reload();
  await ready(page);
  await page.click("#speak");
  await says(page, "key-error", "does not take this key");
  await state(page, "failed");
  assert.match(await words(page, "player-error"), /API key/);
});

test("protected listings are loaded once there is a key", async (t) => {
  const page = await openPage(t, await serveScripted({ api_key: KEY, protect_listings: true }), REFUSED);
  await page.fill("#key", KEY);
  await page.keyboard.press("Enter");
  await ready(page);
});
