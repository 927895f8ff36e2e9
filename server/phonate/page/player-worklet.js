/** Plays PCM as it arrives. Runs on the audio thread; `player.js` is its other end.
 *
 * Everything that was fed stays, so that it can be heard again from any place. When the next samples
 * are late it is silent until RESERVE more are there, rather than stutter.
 *
 * in:  {feed: Int16Array} {end: true} {play: true|false} {seek: sample} {reset: number of the take}
 * out: {take, position, waiting, over, played, audible}, about 30 times a second while something moves
 */

const RESERVE = 12_000; // half a second
const RAMP = 1 / 128; // pausing and resuming do not click
const AUDIBLE = 0.01;
const REPORT_EVERY = 6; // blocks of 128 samples

class PhonatePlayer extends AudioWorkletProcessor {
  constructor() {
    super();
    this.reset(0);
    this.port.onmessage = ({ data }) => this.receive(data);
  }

  reset(take) {
    this.take = take;
    this.chunks = [];
    this.starts = [];
    this.total = 0;
    this.position = 0;
    this.chunk = 0; // the one that holds `position`
    this.ended = false;
    this.playing = false;
    this.reserve = 1; // samples that must be ahead before sound goes on
    this.gain = 0;
    this.played = 0;
    this.audible = 0;
    this.blocks = 0;
    this.told = "";
  }

  receive(message) {
    if (message.reset) this.reset(message.reset);
    if (message.feed) {
      this.starts.push(this.total);
      this.chunks.push(message.feed);
      this.total += message.feed.length;
    }
    if (message.end) this.ended = true;
    if (message.play !== undefined) this.playing = message.play;
    if (message.seek !== undefined) this.seek(message.seek);
  }

  seek(sample) {
    this.position = Math.max(0, Math.min(sample, this.total));
    this.chunk = 0;
    while (this.chunk < this.chunks.length - 1 && this.starts[this.chunk + 1] <= this.position) {
      this.chunk += 1;
    }
  }

  process(_inputs, outputs) {
    const out = outputs[0][0];
    const ahead = this.total - this.position;
    if (ahead >= this.reserve || (this.ended && ahead > 0)) this.reserve = 1;
    const flowing = this.playing && ahead > 0 && this.reserve === 1;
    for (let i = 0; i < out.length; i += 1) {
      this.gain = flowing ? Math.min(1, this.gain + RAMP) : Math.max(0, this.gain - RAMP);
      out[i] = this.gain > 0 ? this.next() * this.gain : 0;
    }
    for (let channel = 1; channel < outputs[0].length; channel += 1) outputs[0][channel].set(out);
    if (flowing && this.position === this.total && !this.ended) this.reserve = RESERVE;
    this.report();
    return true;
  }

  next() {
    if (this.position >= this.total) return 0;
    const start = this.starts[this.chunk];
    const piece = this.chunks[this.chunk];
    const value = piece[this.position - start] / 32768;
    this.position += 1;
    if (this.position - start >= piece.length && this.chunk < this.chunks.length - 1) {
      this.chunk += 1;
    }
    this.played += 1;
    if (Math.abs(value) > AUDIBLE) this.audible += 1;
    return value;
  }

  report() {
    this.blocks += 1;
    if (this.blocks % REPORT_EVERY) return;
    const over = this.ended && this.position === this.total;
    const waiting = this.playing && !over && (this.position === this.total || this.reserve > 1);
    const { take, position, played, audible } = this;
    const told = `${position} ${waiting} ${over} ${this.total}`;
    if (told === this.told) return;
    this.told = told;
    this.port.postMessage({ take, position, waiting, over, played, audible });
  }
}

registerProcessor("phonate-player", PhonatePlayer);
