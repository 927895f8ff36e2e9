/** The loudspeaker: 24 kHz PCM in, sound out, through an AudioWorklet. One utterance at a time. */

export const SAMPLE_RATE = 24_000;

export class Player {
  #context = null;
  #port = null;
  #opening = null;
  #take = 0; // what the audio thread says of an older one comes too late
  #early = []; // told before the audio thread was there

  /** onProgress({position, waiting, over, played, audible}): samples; see the worklet. */
  constructor(onProgress) {
    this.onProgress = onProgress;
  }

  /** Must first be called from a click or a key: browsers allow sound only then. */
  async open() {
    this.#opening ??= this.#start();
    try {
      await this.#opening;
    } catch (error) {
      this.#opening = null;
      throw error;
    }
    await this.#context.resume();
  }

  async #start() {
    const context = new AudioContext({ sampleRate: SAMPLE_RATE, latencyHint: "interactive" });
    await context.audioWorklet.addModule(new URL("player-worklet.js", import.meta.url));
    const node = new AudioWorkletNode(context, "phonate-player", {
      numberOfInputs: 0,
      outputChannelCount: [1],
    });
    node.connect(context.destination);
    node.port.onmessage = ({ data }) => data.take === this.#take && this.onProgress(data);
    this.#context = context;
    this.#port = node.port;
    for (const message of this.#early.splice(0)) this.#port.postMessage(message);
  }

  /** Forget what was there, and play what comes. */
  begin() {
    this.#early = [];
    this.#take += 1;
    this.#tell({ reset: this.#take, play: true });
  }

  feed(samples) {
    this.#tell({ feed: samples });
  }

  /** No more samples will come. */
  end() {
    this.#tell({ end: true });
  }

  play() {
    this.#context?.resume();
    this.#tell({ play: true });
  }

  pause() {
    this.#tell({ play: false });
  }

  seek(sample) {
    this.#tell({ seek: sample });
  }

  #tell(message) {
    if (this.#port) this.#port.postMessage(message);
    else this.#early.push(message);
  }
}
