/** Records a clip from the microphone, with a level to look at. */

const MAX_MS = 30_000; // what the server takes at most
const TYPES = ["audio/webm;codecs=opus", "audio/mp4", "audio/ogg;codecs=opus"];

export class Microphone {
  #recorder = null;
  #stream = null;
  #context = null;
  #timer = null;

  /** onLevel(level 0..1, seconds) several times a second; onClip(Blob) at the end. */
  constructor(onLevel, onClip) {
    this.onLevel = onLevel;
    this.onClip = onClip;
  }

  get recording() {
    return this.#recorder !== null;
  }

  /** Raises an Error in words. */
  async start() {
    if (!navigator.mediaDevices?.getUserMedia || !window.MediaRecorder) {
      throw new Error(
        "This browser records only over https or on localhost. Choose a file instead.",
      );
    }
    try {
      // What makes calls sound better makes a voice sound less like itself.
      const audio = { channelCount: 1, echoCancellation: false, noiseSuppression: false };
      this.#stream = await navigator.mediaDevices.getUserMedia({ audio });
    } catch (error) {
      throw new Error(inWords(error));
    }
    const mimeType = TYPES.find((type) => MediaRecorder.isTypeSupported(type));
    const recorder = new MediaRecorder(this.#stream, { mimeType, audioBitsPerSecond: 128_000 });
    const parts = [];
    recorder.ondataavailable = ({ data }) => parts.push(data);
    recorder.onstop = () => this.onClip(new Blob(parts, { type: recorder.mimeType }));
    recorder.start();
    this.#recorder = recorder;
    this.#watch();
  }

  stop() {
    if (!this.recording) return;
    clearInterval(this.#timer);
    this.#recorder.stop();
    this.#recorder = null;
    for (const track of this.#stream.getTracks()) track.stop();
    this.#context.close();
  }

  #watch() {
    const started = performance.now();
    this.#context = new AudioContext();
    const analyser = this.#context.createAnalyser();
    this.#context.createMediaStreamSource(this.#stream).connect(analyser);
    const wave = new Float32Array(analyser.fftSize);
    this.#timer = setInterval(() => {
      analyser.getFloatTimeDomainData(wave);
      const elapsed = performance.now() - started;
      this.onLevel(Math.max(...wave.map(Math.abs)), elapsed / 1000);
      if (elapsed > MAX_MS - 500) this.stop();
    }, 80);
  }
}

function inWords(error) {
  const words = {
    NotAllowedError: "The microphone is not allowed here. Allow it in the browser, or choose a file.",
    NotFoundError: "There is no microphone. Choose a file instead.",
    NotReadableError: "Another program uses the microphone. Close it, or choose a file.",
  };
  return words[error.name] ?? `The microphone does not work: ${error.message}`;
}
