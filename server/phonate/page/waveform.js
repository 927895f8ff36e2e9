/** Draws a take as bars, grows with it, and takes the listener to a place in it.
 *
 * While it grows, a bar stands for a fixed time, which doubles when the width is used up; when it is
 * complete, the bars are spread over the whole width.
 */

import { SAMPLE_RATE } from "./player.js";

const BIN = SAMPLE_RATE / 50; // 20 ms
const BAR = 3;
const GAP = 2;
const STEP_S = 2; // arrow keys
const FULL = 0.6; // a peak that fills the height: speech rarely reaches 1

export class Waveform {
  #canvas;
  #peaks = [];
  #seen = 0; // samples in #peaks
  #take = null;
  #position = 0;
  #perBar = 2; // bins a bar
  #drawing = false;

  constructor(slider, onSeek) {
    this.slider = slider;
    this.onSeek = onSeek;
    this.#canvas = slider.querySelector("canvas");
    new ResizeObserver(() => this.#redraw()).observe(slider);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#redraw());
    slider.addEventListener("pointerdown", (event) => this.#onPointer(event));
    slider.addEventListener("keydown", (event) => this.#onKey(event));
  }

  /** Show `take` as it is now, heard up to `position`. */
  show(take, position) {
    if (take !== this.#take) {
      this.#take = take;
      this.#peaks = [];
      this.#seen = 0;
      this.#perBar = 2;
    }
    this.#position = position;
    this.#measure();
    this.#describe();
    this.#redraw();
  }

  /** Highest |x| of every whole bin that is new; of a part of one at the end. */
  #measure() {
    const { samples, complete } = this.#take ?? { samples: [], complete: true };
    while (samples.length - this.#seen >= BIN || (complete && this.#seen < samples.length)) {
      let peak = 0;
      const stop = Math.min(this.#seen + BIN, samples.length);
      for (let i = this.#seen; i < stop; i += 1) peak = Math.max(peak, Math.abs(samples[i]));
      this.#peaks.push(peak / 32768);
      this.#seen = stop;
    }
  }

  #describe() {
    const total = this.#take?.seconds ?? 0;
    const now = Math.min(this.#position / SAMPLE_RATE, total);
    const { slider } = this;
    slider.setAttribute("aria-valuemax", total.toFixed(1));
    slider.setAttribute("aria-valuenow", now.toFixed(1));
    slider.setAttribute(
      "aria-valuetext",
      total ? `${now.toFixed(1)} of ${total.toFixed(1)} seconds` : "nothing yet",
    );
    slider.setAttribute("aria-disabled", String(!total));
  }

  #redraw() {
    if (this.#drawing) return;
    this.#drawing = true;
    requestAnimationFrame(() => {
      this.#drawing = false;
      this.#draw();
    });
  }

  get #nBars() {
    return Math.max(1, Math.floor((this.slider.clientWidth + GAP) / (BAR + GAP)));
  }

  #scale() {
    const n = this.#nBars;
    if (this.#take?.complete) return this.#peaks.length / n;
    while (this.#peaks.length > n * this.#perBar) this.#perBar *= 2;
    return this.#perBar;
  }

  #draw() {
    const { clientWidth: width, clientHeight: height } = this.slider;
    const ratio = devicePixelRatio || 1;
    const canvas = this.#canvas;
    const size = { width: Math.round(width * ratio), height: Math.round(height * ratio) };
    if (canvas.width !== size.width || canvas.height !== size.height) Object.assign(canvas, size);
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    const style = getComputedStyle(this.slider);
    const [heard, made, empty] = ["--wave-heard", "--wave-made", "--wave-empty"].map((name) =>
      style.getPropertyValue(name),
    );
    const perBar = this.#scale();
    const headBin = this.#position / BIN;
    for (let bar = 0; bar < this.#nBars; bar += 1) {
      const from = bar * perBar;
      const peak = this.#peakIn(from, from + perBar);
      const tall = peak === null ? 3 : Math.max(3, Math.min(1, peak / FULL) ** 0.8 * (height - 4));
      if (peak === null) pen.fillStyle = empty;
      else pen.fillStyle = from < headBin ? heard : made;
      pen.beginPath();
      pen.roundRect(bar * (BAR + GAP), (height - tall) / 2, BAR, tall, BAR / 2);
      pen.fill();
    }
  }

  /** null where nothing was made yet. */
  #peakIn(from, to) {
    const first = Math.floor(from);
    if (first >= this.#peaks.length) return null;
    let peak = 0;
    for (let i = first; i < Math.max(first + 1, Math.round(to)); i += 1) {
      peak = Math.max(peak, this.#peaks[i] ?? 0);
    }
    return peak;
  }

  #onPointer(event) {
    if (event.button !== 0 || !this.#take?.length) return;
    const bar = (event.clientX - this.slider.getBoundingClientRect().left) / (BAR + GAP);
    this.#seek(Math.max(0, bar) * this.#scale() * BIN);
  }

  #onKey(event) {
    const step = STEP_S * SAMPLE_RATE;
    const to = {
      ArrowLeft: this.#position - step,
      ArrowDown: this.#position - step,
      ArrowRight: this.#position + step,
      ArrowUp: this.#position + step,
      Home: 0,
      End: this.#take?.length,
    }[event.key];
    if (to === undefined || !this.#take?.length) return;
    event.preventDefault();
    this.#seek(to);
  }

  #seek(sample) {
    this.onSeek(Math.round(Math.max(0, Math.min(sample, this.#take.length))));
  }
}
