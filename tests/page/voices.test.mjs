// Voices: chosen, heard, added by microphone and by file, deleted.

import assert from "node:assert/strict";
import { after, test } from "node:test";

import {
  finish, heard, occupy, openPage, picture, ready, says, serveAlone, serveBuiltIn, serveScripted,
  state, words,
} from "./harness.mjs"; // prettier-ignore

after(finish);

test("a voice is recorded, heard and deleted", async (t) => {
  const server = await serveAlone();
  const page = await openPage(t, server, { permissions: ["microphone"] });
  await ready(page);
  await page.click("#add-voice");
  await page.click("#record");
  await says(page, "record-words", "Stop recording (2 s)");
  await page.click("#record");
  await page.locator("#clip").waitFor();
  await page.fill("#transcript", "Beep, beep, beep.");
  await page.fill("#voice-name", "Änne");

  await page.click("#voice-save");
  assert.match(await words(page, "consent-error"), /consent/);
  assert.equal((await listed(server)).length, 2, "nothing is sent without the consent");

  await page.check("#consent");
  await picture(page, "add-voice");
  await page.click("#voice-save");
  await says(page, "voices-words", "Änne was added.");
  assert.equal(await page.locator("#voice").inputValue(), "Änne", "it is chosen at once");
  const added = (await listed(server)).at(-1);
  assert.equal(added.name, "Änne");
  const whole = await (await fetch(`${server}v1/audio/voices/${added.id}`)).json();
  assert.equal(whole.ref_text, "Beep, beep, beep.");
  assert.equal(whole.consent, "given");

  await page.getByRole("button", { name: "Hear Änne" }).click();
  await state(page, "done");
  assert.match(await words(page, "state-words"), /a sample of Änne/);
  assert.ok((await heard(page)).audible > 10_000);

  await page.getByRole("button", { name: "Delete Änne" }).click();
  await page.click("#delete-keep");
  assert.equal((await listed(server)).length, 3);
  await page.getByRole("button", { name: "Delete Änne" }).click();
  await page.click("#delete-confirm");
  await says(page, "voices-words", "Änne was deleted.");
  assert.equal((await listed(server)).length, 2);
});

test("a file is dropped, and what is wrong with one is said beside it", async (t) => {
  const page = await openPage(t, await serveAlone(), { allow: /40[09] \(|415 \(/ });
  await ready(page);
  await page.click("#add-voice");
  await page.fill("#voice-name", "Tone");
  await page.check("#consent");
  await page.click("#voice-save");
  assert.match(await words(page, "clip-file-error"), /Record something/);

  const notes = { name: "notes.txt", mimeType: "text/plain", buffer: Buffer.from("no") };
  await page.setInputFiles("#clip-file", notes);
  await page.click("#voice-save");
  await says(page, "clip-file-error", "not audio that can be read");
  await drop(page, tone(0.3));
  await page.click("#voice-save");
  await says(page, "clip-file-error", "0.30 s long");
  await drop(page, tone(3));
  assert.equal(await words(page, "clip-file-error"), "");
  await page.click("#voice-save");
  await says(page, "voice-name-error", "built-in speaker");
  await page.fill("#voice-name", "Dropped");
  await page.click("#voice-save");
  await says(page, "voices-words", "Dropped was added.");
});

test("a model that cannot clone says so, and offers only what it has", async (t) => {
  const page = await openPage(t, await serveBuiltIn());
  await ready(page);
  assert.ok(await page.locator("#no-cloning").isVisible());
  assert.ok(await page.locator("#add-voice").isHidden());
  assert.ok(await page.locator("#instructions-field").isHidden());
  const formats = await page.locator("#format option").allTextContents();
  assert.deepEqual(formats, ["mp3", "opus", "aac", "flac", "wav", "pcm"]);
});

test("another engine's voices can be found among many", async (t) => {
  const server = await serveAlone();
  for (let i = 0; i < 9; i += 1) {
    const body = { name: `Voice ${i}`, wav_b64: tone(1.5).toString("base64") };
    const answer = await fetch(`${server}v1/audio/voices`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body),
    });
    assert.equal(answer.status, 200);
  }
  const page = await openPage(t, server);
  await ready(page);
  await page.fill("#filter", "ice 7");
  await page.locator(".voice").filter({ hasText: "Voice 6" }).waitFor({ state: "detached" });
  await page.locator(".voice .choose").click();
  assert.equal(await page.locator("#voice").inputValue(), "Voice 7");
  await page.fill("#filter", "nobody");
  await says(page, "voices-words", "No voice has that name.");
});

test("the health line tells what goes on", async (t) => {
  const server = await serveScripted();
  const page = await openPage(t, server);
  await says(page, "health-words", "Ready · scripted on cpu");
  assert.equal(await page.locator("#health").getAttribute("data-health"), "ok");
  const leave = await occupy(server);
  await says(page, "health-words", "1 speaking");
  leave();
});

async function listed(server) {
  return (await (await fetch(`${server}v1/audio/voices`)).json()).voices;
}

async function drop(page, wav) {
  const transfer = await page.evaluateHandle((bytes) => {
    const data = new DataTransfer();
    data.items.add(new File([new Uint8Array(bytes)], "clip.wav", { type: "audio/wav" }));
    return data;
  }, [...wav]);
  await page.dispatchEvent("#drop", "drop", { dataTransfer: transfer });
}

/** A WAV file: 16 kHz mono, half of full scale. */
function tone(seconds) {
  const n = Math.round(16_000 * seconds);
  const wav = Buffer.alloc(44 + 2 * n);
  wav.write("RIFF", 0);
  wav.writeUInt32LE(36 + 2 * n, 4);
  wav.write("WAVEfmt ", 8);
  [16, 0x00010001, 16_000, 32_000, 0x00100002].forEach((v, i) => wav.writeUInt32LE(v, 16 + 4 * i));
  wav.write("data", 36);
  wav.writeUInt32LE(2 * n, 40);
  for (let i = 0; i < n; i += 1) {
    wav.writeInt16LE(Math.round(16_000 * Math.sin(i / 9)), 44 + 2 * i);
  }
  return wav;
}
