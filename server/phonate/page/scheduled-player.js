/** The loudspeaker where there is no AudioWorklet: pages over http that are not on localhost.
 *
 * The same interface as `player.js`. Every chunk is handed to the browser with the time at which it
 * is to sound, which is less exact when sound is late, and all that such a page can do.
 */

import { SAMPLE_RATE } from "./player.js";

const SOON_S = 0.03;
const RESERVE_S = 0.5; // after a gap
const REPORT_MS = 40;

export class ScheduledPlayer {
  #context = null;
  #chunks = []; // {from: sample, pcm}
  #total = 0;
  #scheduled = []; // {at: context time, from: sample, length, source}
  #next = 0; // the context's time at which the next chunk sounds
  #from = 0; // where the listener went last
  #ended = false;
  #playing = false;
  #told = "";

  constructor(onProgress) {
    this.onProgress = onProgress;
    setInterval(() => this.#report(), REPORT_MS);
  }

  async open() {
    this.#context ??= new AudioContext({ sampleRate: SAMPLE_RATE });
    if (this.#playing) await this.#context.resume();
    this.#schedule();
  }

  begin() {
    this.#silence();
    this.#chunks = [];
    this.#total = 0;
    this.#from = 0;
    this.#ended = false;
    this.play();
  }

  feed(samples) {
    this.#chunks.push({ from: this.#total, pcm: samples });
    this.#total += samples.length;
    this.#schedule();
  }

  end() {
    this.#ended = true;
  }

  play() {
    this.#playing = true;
    this.#context?.resume();
  }

  pause() {
    this.#playing = false;
    this.#context?.suspend();
  }

  seek(sample) {
    this.#silence();
    this.#from = sample;
    this.#schedule();
  }

  /** Forget what was to sound. */
  #silence() {
    for (const { source } of this.#scheduled) source.stop();
    this.#scheduled = [];
    this.#next = 0;
  }

  /** Where the next chunk to be scheduled begins. */
  get #edge() {
    const last = this.#scheduled.at(-1);
    return last ? last.from + last.length : this.#from;
  }

  #schedule() {
    if (!this.#context) return;
    for (const { from, pcm } of this.#chunks) {
      const edge = this.#edge;
      if (from + pcm.length > edge) this.#scheduleOne(edge, pcm.subarray(edge - from));
    }
  }

  #scheduleOne(from, pcm) {
    const context = this.#context;
    const now = context.currentTime;
    if (this.#next < now) this.#next = now + (this.#scheduled.length ? RESERVE_S : SOON_S);
    const buffer = context.createBuffer(1, pcm.length, SAMPLE_RATE);
    buffer.copyToChannel(Float32Array.from(pcm, (x) => x / 32768), 0);
    const source = context.createBufferSource();
    source.buffer = buffer;
    source.connect(context.destination);
    source.start(this.#next);
    this.#scheduled.push({ at: this.#next, from, length: pcm.length, source });
    this.#next += pcm.length / SAMPLE_RATE;
  }

  get #position() {
    const now = this.#context?.currentTime ?? 0;
    let position = this.#from;
    for (const { at, from, length } of this.#scheduled) {
      if (at > now) break;
      position = from + Math.min(length, Math.round((now - at) * SAMPLE_RATE));
    }
    return position;
  }

  #report() {
    const position = this.#position;
    const over = this.#ended && position >= this.#total;
    const waiting = this.#playing && !over && position >= this.#total;
    const told = `${position} ${over} ${waiting}`;
    if (told === this.#told) return;
    this.#told = told;
    this.onProgress({ position, waiting, over, played: position });
  }
}
