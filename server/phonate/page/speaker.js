/** Speaks one text at a time: what state it is in, what was made, and what is heard of it.
 *
 *     idle -> waiting -> speaking <-> paused
 *                 |          |--> done       all of it was heard
 *                 |          |--> stopped    by the listener
 *                 '----------'--> failed     `refusal` says why
 *
 * done, stopped and failed lead back to speaking (again, from the start or from a place) and to
 * waiting (a new text). A "change" event follows every step, a "progress" event every bit of sound.
 */

import { Line } from "./line.js";
import { Refusal } from "./server.js";
import { Session } from "./session.js";
import { Take } from "./take.js";

const ACTIVE = new Set(["waiting", "speaking", "paused"]);

export class Speaker extends EventTarget {
  #session = null;
  #line;
  #askedAt = 0;
  #workSince = 0; // when the engine began, on our clock
  #pausedMs = 0;
  #pausedAt = 0;

  constructor(server, makePlayer) {
    super();
    this.server = server;
    this.player = makePlayer((progress) => this.#onProgress(progress));
    this.#line = new Line(server, (place) => this.#update({ place }));
    this.state = "idle";
    this.take = null;
    this.#forget();
  }

  #forget() {
    this.place = null; // in the queue: 0 is our turn, null is unknown
    this.firstSoundMs = null;
    this.factor = null; // seconds of work for a second of sound
    this.refusal = null;
    this.notes = [];
    this.position = 0;
    this.starved = false;
    this.played = 0;
    this.audible = 0;
    this.#pausedMs = 0;
    this.#pausedAt = 0;
  }

  get active() {
    return ACTIVE.has(this.state);
  }

  /** Whether there is something that can be heard again. */
  get replayable() {
    return !this.active && this.take !== null && this.take.length > 0;
  }

  /** `request` as composer.js makes it. */
  speak(request, label = null) {
    this.#session?.cancel();
    this.#forget();
    this.#askedAt = performance.now();
    const take = (this.take = new Take(request, label));
    const { input, ...config } = request;
    this.#session = new Session(this.server, config, input, this.#listenFor(take));
    this.player.begin();
    this.player.open().catch((error) => {
      if (this.take === take) this.#fail(error);
    });
    this.#line.start();
    this.#update({ state: "waiting" });
  }

  pause() {
    if (this.state !== "speaking") return;
    this.player.pause();
    if (!this.#session.over) {
      this.#session.pause();
      this.#pausedAt = performance.now();
    }
    this.#update({ state: "paused" });
  }

  resume() {
    if (this.state !== "paused") return;
    this.#settlePause();
    if (!this.#session.over) this.#session.resume();
    this.player.play();
    this.#update({ state: "speaking" });
  }

  stop() {
    if (!this.active) return;
    this.#session.cancel();
    this.#line.stop();
    this.player.pause();
    this.player.end();
    this.#update({ state: "stopped" });
  }

  /** Hear what there is once more. */
  again() {
    if (this.replayable) this.#playFrom(0);
  }

  /** Go to a place in what there is. */
  seek(sample) {
    if (!this.take?.length || this.state === "waiting") return;
    if (this.active) {
      this.player.seek(sample);
      this.position = sample;
      this.#changed("progress");
    } else this.#playFrom(sample);
  }

  #playFrom(sample) {
    this.refusal = null;
    this.position = sample;
    this.player.seek(sample);
    this.player.play();
    this.#update({ state: "speaking" });
  }

  #listenFor(take) {
    const current = (handle) => (event) => this.take === take && handle(event);
    return {
      ready: current(({ seed, voice }) => Object.assign(take, { seed, voice })),
      fragment: current(({ fragment, text }) => {
        take.addFragment(fragment, text);
        this.#changed("progress");
      }),
      sound: current(({ fragment, timings }) => {
        take.beginFragment(fragment);
        if (!take.length) this.#workSince = performance.now() - timings.synthesis_to_first_pcm_ms;
      }),
      pcm: current((samples) => this.#onPcm(samples)),
      warning: current(({ message, text }) => {
        this.notes.push(`${message} (“${shortened(text)}”)`);
        this.#changed("change");
      }),
      done: current(() => this.#onDone()),
      cancelled: current(() => this.#onCancelled()),
      failed: current((refusal) => this.#fail(refusal)),
    };
  }

  #onPcm(samples) {
    const { take } = this;
    const first = take.length === 0;
    take.add(samples);
    this.player.feed(samples);
    const worked = performance.now() - this.#workSince - this.#pausedMs;
    this.factor = worked / 1000 / take.seconds;
    if (first) {
      this.#line.stop();
      this.#timeFirstSound(take);
      this.#update({ state: "speaking", place: 0 });
    } else this.#changed("progress");
  }

  /** Sound that is there is not heard before the loudspeaker is open. */
  async #timeFirstSound(take) {
    await this.player.open();
    if (this.take !== take) return;
    this.firstSoundMs = performance.now() - this.#askedAt;
    this.#changed("progress");
  }

  #onDone() {
    this.#line.stop();
    this.player.end();
    this.take.complete = true;
    if (this.take.length) this.#changed("change");
    else this.#fail(new Refusal(this.notes.pop() ?? "Nothing audible was made of this text."));
  }

  /** Not by us: it was paused for too long. */
  #onCancelled() {
    this.#settlePause();
    this.player.end();
    this.notes.push(
      "The server let this go because it was paused for long. What it had made is still here.",
    );
    this.#changed("change");
  }

  #fail(error) {
    this.#session?.cancel();
    this.#line.stop();
    this.player.pause();
    this.player.end();
    this.#update({ state: "failed", refusal: error });
  }

  #settlePause() {
    if (this.#pausedAt) this.#pausedMs += performance.now() - this.#pausedAt;
    this.#pausedAt = 0;
  }

  #onProgress({ position, waiting, over, played, audible = 0 }) {
    if (this.state === "waiting") return; // the last words about the take before
    const starved = waiting && this.state === "speaking";
    Object.assign(this, { position, played, audible });
    if (over && this.state === "speaking") this.#update({ state: "done", starved: false });
    else if (starved !== this.starved) this.#update({ starved });
    else this.#changed("progress");
  }

  #update(fields) {
    Object.assign(this, fields);
    this.#changed("change");
  }

  #changed(what) {
    this.dispatchEvent(new Event(what));
  }
}

function shortened(text = "") {
  const words = text.trim();
  return words.length > 40 ? `${words.slice(0, 39)}…` : words;
}
