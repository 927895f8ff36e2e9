// Servers, a browser, and a page that is watched: a console error, a request to anywhere else or an
// exception that nobody caught fails the test that saw it.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdir, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

import { chromium } from "playwright-core";

const HERE = fileURLToPath(new URL(".", import.meta.url));
const ROOT = join(HERE, "..", "..");
const PYTHON = process.env.PHONATE_PYTHON ?? "python3";
const ARTEFACTS = join(ROOT, "artefacts", "page");
const START_MS = 60_000;

const FLAGS = [
  "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
  "--disable-background-networking", "--disable-component-update", "--disable-sync",
  "--host-resolver-rules=MAP speech.test 127.0.0.1", "--use-fake-ui-for-media-stream",
  "--use-fake-device-for-media-stream",
]; // prettier-ignore

const ends = []; // what is to be done when all tests of a file are over
const shared = new Map(); // settings as JSON -> address of a server for all tests of a file

/** `phonate serve` as a user starts it, with the voice that ships. */
export function serveBuiltIn() {
  return share("built in", async () => {
    const voices = await mkdtemp(join(tmpdir(), "phonate-page-"));
    ends.push(() => rm(voices, { recursive: true, force: true }));
    const options = ["--port", "0", "--voice-dir", voices, "--log-level", "warning"];
    return start(["-m", "phonate", "serve", ...options]);
  });
}

/** See scripted_server.py. Tests with the same settings have the same server... */
export function serveScripted(settings = {}) {
  return share(JSON.stringify(settings), () => serveAlone(settings));
}

/** ... unless they leave something behind. */
export function serveAlone(settings = {}) {
  return start([join(HERE, "scripted_server.py"), JSON.stringify(settings)]);
}

function share(name, make) {
  if (!shared.has(name)) shared.set(name, make());
  return shared.get(name);
}

async function start(args) {
  const server = spawn(PYTHON, args, {
    stdio: ["pipe", "pipe", "inherit"],
    env: { PYTHONPATH: join(ROOT, "server"), ...process.env },
  });
  ends.unshift(() => ended(server));
  const timer = setTimeout(() => server.kill(), START_MS);
  for await (const line of createInterface({ input: server.stdout })) {
    const address = /listens on (http:\S+)/.exec(line)?.[1];
    if (address) {
      clearTimeout(timer);
      return `${address}/`;
    }
  }
  throw new Error(`The server did not start: ${args.join(" ")}`);
}

function ended(server) {
  return new Promise((resolve) => {
    if (server.exitCode !== null || server.signalCode !== null) resolve();
    server.once("exit", resolve);
    server.stdin.end();
    server.kill("SIGTERM");
  });
}

let browser = null;

/** The page, in a tab of its own. `allow`: console errors that belong to the test. */
export async function openPage(t, address, { allow = /$^/, path = "", ...options } = {}) {
  browser ??= await launch();
  const context = await browser.newContext({ reducedMotion: "reduce", ...options });
  const page = await context.newPage();
  const faults = watch(page, new URL(address).origin, allow);
  t.after(async () => {
    await context.close();
    assert.deepEqual(faults, [], "what went wrong in the page");
  });
  await page.goto(address + path);
  return page;
}

async function launch() {
  const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium";
  return chromium.launch({ executablePath, args: FLAGS, ignoreDefaultArgs: ["--mute-audio"] });
}

/** Once all tests of a file are over. */
export async function finish() {
  await browser?.close();
  for (const end of ends) await end();
}

function watch(page, origin, allow) {
  const faults = [];
  page.on("pageerror", (error) => faults.push(`exception: ${error.message}`));
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type()) && !allow.test(message.text())) {
      faults.push(`console: ${message.text()}`);
    }
  });
  page.on("request", (request) => {
    const url = request.url().replace(/^blob:/, "");
    if (new URL(url).origin !== origin) faults.push(`outside: ${url}`);
  });
  return faults;
}

/** The page knows what the server can do. */
export async function ready(page) {
  await page.locator(".voice").first().waitFor();
}

export async function state(page, wanted, timeout = 15_000) {
  await page.locator(`#player[data-state="${wanted}"]`).waitFor({ timeout });
}

/** Samples that the audio thread has put out, and those of them that could be heard. */
export async function heard(page) {
  const { played = 0, audible = 0 } = await page.locator("#player").evaluate((p) => ({ ...p.dataset }));
  return { played: Number(played), audible: Number(audible) };
}

export async function words(page, id) {
  return (await page.locator(`#${id}`).textContent()).trim();
}

/** Until the words of #id match. */
export async function says(page, id, wanted, timeout = 10_000) {
  await page.locator(`#${id}`).filter({ hasText: wanted }).first().waitFor({ state: "attached", timeout });
}

export async function picture(page, name, options = {}) {
  await mkdir(ARTEFACTS, { recursive: true });
  await page.screenshot({ path: join(ARTEFACTS, `${name}.png`), ...options });
}

/** Has the engine, or a place in the queue, for somebody else until the function it gives is called. */
export async function occupy(server) {
  const held = async () => {
    const health = await (await fetch(`${server}health`)).json();
    return health.active_requests + health.queued_requests;
  };
  const before = await held();
  const call = new AbortController();
  const body = JSON.stringify({ input: `Slowly ${"and on and on ".repeat(60)}`, response_format: "pcm" });
  const headers = { "Content-Type": "application/json" };
  fetch(`${server}v1/audio/speech`, { method: "POST", headers, body, signal: call.signal })
    .then((answer) => answer.arrayBuffer())
    .catch(() => {}); // It is aborted.
  while ((await held()) <= before) await sleep(20);
  return () => call.abort();
}

/** Until it is so; a failure names what was not. */
export async function until(check, what, timeout = 15_000) {
  const end = Date.now() + timeout;
  while (!(await check())) {
    if (Date.now() > end) throw new Error(`not within ${timeout} ms: ${what}`);
    await sleep(50);
  }
}

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
