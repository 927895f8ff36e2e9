// Speaking, pausing, stopping, saving: with the voice that ships, and where that would be over too
// soon, with the scripted engine.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { after, test } from "node:test";

import {
  finish, heard, occupy, openPage, picture, ready, says, serveBuiltIn, serveScripted, sleep, state,
  until, words,
} from "./harness.mjs"; // prettier-ignore

after(finish);

const RATE = 24_000;
const SLOW = "Slowly the evening came over the hills, and with it came the rain. ".repeat(2).trim();

test("the built-in voice is heard to the end, and its words are marked", async (t) => {
  const page = await openPage(t, await serveBuiltIn());
  await ready(page);
  const [first, second] = ["The train is late today.", "Nobody is waiting."];
  await page.fill("#text", `${first} ${second}`);
  await page.click("#speak");
  await state(page, "speaking");
  const mark = page.locator("#backdrop mark");
  assert.equal(await mark.textContent(), first);
  await mark.filter({ hasText: second }).waitFor();
  await picture(page, "speaking");
  await state(page, "done");

  const seconds = parseFloat(await words(page, "length"));
  const { played, audible } = await heard(page);
  assert.ok(Math.abs(played / RATE - seconds) < 0.1, `${played} samples of ${seconds} s`);
  assert.ok(audible > played / 4, `${audible} of ${played} samples could be heard`);
  assert.match(await words(page, "first-sound"), /^\d+ ms$/);
  assert.ok(parseFloat(await words(page, "factor")) > 0);
  assert.equal(await words(page, "state-words"), "Done");
  assert.equal(await mark.count(), 0, "the mark goes when all is said");
});

test("pause stops the sound and the engine, resume goes on, stop ends both", async (t) => {
  const server = await serveScripted();
  const page = await openPage(t, server);
  await ready(page);
  await page.fill("#text", SLOW);
  await page.click("#speak");
  await state(page, "speaking");
  await sleep(600);
  await page.getByRole("button", { name: "Pause" }).click();
  await state(page, "paused");
  await sleep(400); // what was on its way
  const [silent, made] = [await heard(page), await words(page, "length")];
  assert.ok(silent.played > 0);
  await sleep(700);
  assert.deepEqual(await heard(page), silent, "no sound while paused");
  assert.equal(await words(page, "length"), made, "the engine stands still meanwhile");

  await page.getByRole("button", { name: "Resume" }).click();
  await state(page, "speaking");
  await sleep(900);
  assert.ok((await heard(page)).played > silent.played + RATE / 3, "it goes on");
  assert.notEqual(await words(page, "length"), made);

  await page.getByRole("button", { name: "Stop" }).click();
  await state(page, "stopped");
  await sleep(400);
  const stopped = await heard(page);
  await sleep(400);
  assert.deepEqual(await heard(page), stopped, "no sound after a stop");
  const health = await (await fetch(`${server}health`)).json();
  assert.equal(health.active_requests, 0, "the engine is free");

  await page.getByRole("button", { name: "Play again" }).click();
  await state(page, "done");
  assert.ok((await heard(page)).played > stopped.played, "what there was is heard again");
});

test("a new text takes the place of the one being spoken", async (t) => {
  const page = await openPage(t, await serveScripted());
  await ready(page);
  await page.fill("#text", SLOW);
  await page.click("#speak");
  await state(page, "speaking");
  await sleep(500);
  await page.fill("#text", "Something else, and not long.");
  await page.click("#speak");
  await state(page, "done");
  const seconds = parseFloat(await words(page, "length"));
  assert.ok(seconds < 3);
  assert.ok(Math.abs((await heard(page)).played / RATE - seconds) < 0.1);
});

test("over plain http from another machine it is heard too", async (t) => {
  const server = await serveScripted({ api_key: "sesame" });
  const page = await openPage(t, server.replace("127.0.0.1", "speech.test"));
  const worklet = () => isSecureContext || "audioWorklet" in AudioContext.prototype;
  assert.equal(await page.evaluate(worklet), false);
  await page.fill("#key", "sesame");
  await page.keyboard.press("Enter");
  await page.locator("#key-dialog").waitFor({ state: "hidden" });
  await page.fill("#text", SLOW);
  await page.click("#speak");
  await state(page, "speaking");
  await sleep(600);
  await page.click("#hold");
  await state(page, "paused");
  await sleep(300);
  const paused = await heard(page);
  assert.ok(paused.played > 0);
  await sleep(400);
  assert.deepEqual(await heard(page), paused);
  await page.click("#hold");
  await sleep(500);
  assert.ok((await heard(page)).played > paused.played);
  await page.keyboard.press("Escape");
  await page.locator("#wave").press("Home");
  await state(page, "done");
  const seconds = parseFloat(await words(page, "length"));
  assert.ok(Math.abs((await heard(page)).played / RATE - seconds) < 0.1);
});

test("the waveform grows, and takes the listener to a place in it", async (t) => {
  const page = await openPage(t, await serveScripted(), { allow: /willReadFrequently/ });
  await ready(page);
  await page.fill("#text", SLOW);
  const pixels = () =>
    page.locator("#wave canvas").evaluate((canvas) => {
      const [r, g, b] = [184, 64, 14]; // --wave-heard
      const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
      let found = 0;
      for (let i = 0; i < data.length; i += 4) {
        if (data[i] === r && data[i + 1] === g && data[i + 2] === b) found += 1;
      }
      return found;
    });
  assert.equal(await pixels(), 0);
  await page.click("#speak");
  await state(page, "speaking");
  await until(async () => (await pixels()) > 0, "something was heard");
  const early = await pixels();
  await until(async () => (await pixels()) > 1.5 * early, "what was heard grows");

  const wave = page.getByRole("slider", { name: "Position in the sound" });
  const now = async () => Number(await wave.getAttribute("aria-valuenow"));
  await until(async () => (await now()) > 3, "it is well into the text");
  const before = await now();
  await wave.press("Home");
  await until(async () => (await now()) < before - 0.5, "Home goes back");
  await page.keyboard.press("Escape");
  const box = await wave.boundingBox();
  await page.mouse.click(box.x + 12, box.y + box.height / 2);
  await state(page, "speaking");
  await until(async () => (await now()) < before - 0.5, "so does a click at the beginning");
});

test("what is being made for others is told as a place in the queue", async (t) => {
  const server = await serveScripted();
  const page = await openPage(t, server);
  await ready(page);
  const leave = [await occupy(server), await occupy(server)];
  await page.fill("#text", "At last.");
  await page.click("#speak");
  await says(page, "state-words", "In the queue, place 2");
  await picture(page, "queued");
  leave[0]();
  await says(page, "state-words", "In the queue, place 1");
  leave[1]();
  await state(page, "done");
  assert.equal(await words(page, "place"), "your turn");
});

test("failures are told in words where they belong", async (t) => {
  const server = await serveScripted({ max_queued_requests: 0 });
  const page = await openPage(t, server);
  await ready(page);
  const speak = async (text) => {
    await page.fill("#text", text);
    await page.click("#speak");
  };

  await speak("  ");
  assert.match(await words(page, "text-error"), /Write something/);
  assert.equal(await page.evaluate(() => document.activeElement.id), "text");

  await speak("Broken.");
  await state(page, "failed");
  assert.match(await words(page, "player-error"), /The model broke/);
  await picture(page, "failed");
  await speak("Silent night.");
  await state(page, "failed");
  assert.match(await words(page, "player-error"), /silent/);

  // One part of three fails: the others are heard, and a note says which is missing.
  await speak("This is the first part. Broken is the second one. And this is the third.");
  await state(page, "done");
  assert.match(await words(page, "notes"), /The model broke.*Broken is the second one/);

  await page.locator("#language").evaluate((select) => {
    select.append(new Option("Klingon", "tlh"));
    select.value = "tlh";
    select.dispatchEvent(new Event("input"));
  });
  await speak("Hello there.");
  await state(page, "failed");
  assert.match(await words(page, "language-error"), /tlh/);
  assert.equal(await words(page, "player-error"), "");
  await page.selectOption("#language", "");
  assert.equal(await words(page, "language-error"), "");

  const leave = await occupy(server);
  await speak("Now me.");
  await state(page, "failed");
  assert.match(await words(page, "player-error"), /Try again later.*in about \d+ s/);
  leave();
});

test("a session that the server lets go keeps what was made", async (t) => {
  const page = await openPage(t, await serveScripted({ pause_timeout: 1 }));
  await ready(page);
  await page.fill("#text", SLOW);
  await page.click("#speak");
  await state(page, "speaking");
  await sleep(300);
  await page.click("#hold");
  await says(page, "notes", "paused for long");
  await page.click("#hold");
  await state(page, "done");
});

test("speed, voice and instructions reach the engine", async (t) => {
  const page = await openPage(t, await serveScripted());
  await ready(page);
  await page.fill("#text", "This takes some time to say.");
  const length = async () => {
    await page.click("#speak");
    await state(page, "done");
    return parseFloat(await words(page, "length"));
  };
  const usual = await length();
  await page.locator("#speed").fill("2");
  assert.equal(await words(page, "speed-value"), "2.00×");
  const fast = await length();
  assert.ok(Math.abs(usual / fast - 2) < 0.3, `${usual} s and ${fast} s`);

  const configs = [];
  page.on("websocket", (socket) =>
    socket.on("framesent", ({ payload }) => configs.push(JSON.parse(payload))),
  );
  await page.selectOption("#voice", "ton");
  await page.fill("#instructions", "Whisper.");
  await length();
  const { voice, instructions, speed } = configs.find(({ type }) => type === "config");
  assert.deepEqual({ voice, instructions, speed }, { voice: "ton", instructions: "Whisper.", speed: 2 });
});

test("a file is saved, from what was heard or made by the server", async (t) => {
  const page = await openPage(t, await serveBuiltIn(), { allow: /400 \(Bad Request\)/ });
  await ready(page);
  await page.fill("#text", "Save me, please.");
  const save = async (format) => {
    await page.selectOption("#format", format);
    const [download] = await Promise.all([page.waitForEvent("download"), page.click("#download")]);
    await says(page, "download-words", `Saved as ${format}`);
    return { name: download.suggestedFilename(), data: await readFile(await download.path()) };
  };
  const mp3 = await save("mp3");
  assert.equal(mp3.name, "save-me-please.mp3");
  assert.ok(mp3.data.length > 5_000);
  assert.equal((await save("opus")).data.subarray(0, 4).toString(), "OggS");

  await page.click("#speak");
  await state(page, "done");
  let asked = 0;
  page.on("request", (request) => (asked += request.url().endsWith("/v1/audio/speech") ? 1 : 0));
  const wav = await save("wav");
  assert.equal(asked, 0, "nothing is made twice");
  const seconds = wav.data.readUInt32LE(40) / 2 / wav.data.readUInt32LE(24);
  assert.equal(wav.data.length, 44 + wav.data.readUInt32LE(40));
  assert.ok(Math.abs(seconds - parseFloat(await words(page, "length"))) < 0.06);

  await page.fill("#text", "x".repeat(5_000));
  await page.click("#download");
  await says(page, "text-error", "at most 4096 characters");
});
