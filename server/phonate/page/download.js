/** Saves the text as a file: what was just heard when that will do, else what the server makes. */

import { byId, enable, isEnabled } from "./dom.js";
import { SAMPLE_RATE } from "./player.js";
import { wavFile } from "./wav.js";

export class Download {
  constructor(server, speaker, composer) {
    this.server = server;
    this.speaker = speaker;
    this.composer = composer;
    this.button = byId("download");
    this.button.addEventListener("click", () => isEnabled(this.button) && this.#save());
    for (const name of ["change", "progress"]) {
      speaker.addEventListener(name, () => this.#forget());
    }
  }

  /** What was said of another text or file is over. */
  #forget() {
    if (this.speaker.state === "waiting") this.#say("");
  }

  async #save() {
    const { request, format } = this.composer;
    this.composer.clearFaults();
    enable(this.button, false);
    this.#say(format === "wav" ? "" : `Making the ${format} file …`);
    try {
      const blob = this.#heard(request, format) ?? (await this.#made(request, format));
      offer(blob, fileName(request, format));
      this.#say(`Saved as ${format}, ${sizeWords(blob.size)}.`);
    } catch (refusal) {
      this.#say("");
      if (refusal.status === 401) this.button.dispatchEvent(new Event("locked"));
      if (!this.composer.refuse(refusal)) byId("download-error").textContent = refusal.message;
    } finally {
      enable(this.button, true);
    }
  }

  #say(words) {
    byId("download-words").textContent = words;
    byId("download-error").textContent = "";
  }

  /** The take that was heard, if it is all of this and nothing needs to be encoded. */
  #heard(request, format) {
    const { take } = this.speaker;
    const same = take?.complete && JSON.stringify(take.request) === JSON.stringify(request);
    if (!same) return null;
    if (format === "wav") return wavFile(take.samples, SAMPLE_RATE);
    return format === "pcm" ? new Blob([take.samples.slice()], { type: "audio/pcm" }) : null;
  }

  async #made(request, format) {
    const body = { ...request, response_format: format, stream: false };
    return (await this.server.postJson("v1/audio/speech", body)).blob();
  }
}

function offer(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

const SUFFIX = { opus: "ogg" };

/** The first words of the text, in letters that every file system takes. */
export function fileName(request, format) {
  const words = request.input.normalize("NFC").match(/[\p{L}\p{N}]+/gu) ?? ["speech"];
  const name = words.slice(0, 6).join("-").slice(0, 48).toLowerCase();
  return `${name}.${SUFFIX[format] ?? format}`;
}

function sizeWords(bytes) {
  return bytes < 1e6 ? `${Math.max(1, Math.round(bytes / 1e3))} kB` : `${(bytes / 1e6).toFixed(1)} MB`;
}
