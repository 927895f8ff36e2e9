/** One utterance as it grows: its samples, and which words belong to which of them. */

import { SAMPLE_RATE } from "./player.js";

export class Take {
  #pcm = new Int16Array(10 * SAMPLE_RATE);

  /** `request` is what was asked for (see composer.js); `label` names a sample of a voice. */
  constructor(request, label = null) {
    this.request = request;
    this.label = label;
    this.length = 0;
    this.fragments = []; // {from, to: in the text; start: sample, null until it is heard}
    this.complete = false;
    this.seed = null;
    this.voice = null;
  }

  get text() {
    return this.request.input;
  }

  get seconds() {
    return this.length / SAMPLE_RATE;
  }

  get samples() {
    return this.#pcm.subarray(0, this.length);
  }

  add(samples) {
    const needed = this.length + samples.length;
    if (needed > this.#pcm.length) {
      const larger = new Int16Array(Math.max(needed, 2 * this.#pcm.length));
      larger.set(this.samples);
      this.#pcm = larger;
    }
    this.#pcm.set(samples, this.length);
    this.length = needed;
  }

  /** The fragments joined are the text, so each begins where the one before ended. */
  addFragment(index, text) {
    const from = this.fragments.at(-1)?.end ?? 0;
    const inner = text.trim();
    const lead = from + text.indexOf(inner);
    this.fragments[index] = {
      from: lead,
      to: lead + inner.length,
      end: from + text.length,
      start: null,
    };
  }

  /** The next samples are the fragment's first. */
  beginFragment(index) {
    if (this.fragments[index]) this.fragments[index].start = this.length;
  }

  /** The fragment that is heard at a sample; null before the first. */
  fragmentAt(sample) {
    let found = null;
    for (const fragment of this.fragments) {
      if (fragment && fragment.start !== null && fragment.start <= sample) found = fragment;
    }
    return found;
  }
}
