/** Shows how the speaker is doing, and takes the listener's wishes to it. */

import { byId, enable, isEnabled } from "./dom.js";
import { Highlight } from "./highlight.js";
import { Waveform } from "./waveform.js";

const WORDS = {
  idle: "Ready when you are",
  waiting: "Waiting for the first sound …",
  speaking: "Speaking",
  paused: "Paused",
  done: "Done",
  stopped: "Stopped",
  failed: "That did not work",
};

const HOLD = {
  pause: ["Pause", "#i-pause"],
  resume: ["Resume", "#i-play"],
  again: ["Play again", "#i-again"],
};

export class Stage {
  #highlight = new Highlight(byId("text"), byId("backdrop"));
  #refused = null;

  constructor(speaker, composer) {
    this.speaker = speaker;
    this.composer = composer;
    this.player = byId("player");
    this.hold = byId("hold");
    this.stop = byId("stop");
    this.waveform = new Waveform(byId("wave"), (sample) => speaker.seek(sample));
    byId("speak").addEventListener("click", () => this.speak());
    this.hold.addEventListener("click", () => isEnabled(this.hold) && this.#onHold());
    this.stop.addEventListener("click", () => isEnabled(this.stop) && speaker.stop());
    document.addEventListener("keydown", (event) => this.#onKey(event));
    speaker.addEventListener("change", () => this.#show());
    speaker.addEventListener("progress", () => this.#showProgress());
    if (/Mac|iPhone|iPad/.test(navigator.userAgent)) {
      byId("hint").textContent = "⌘ Enter speaks, Esc stops";
    }
  }

  /** Speak what is written, or say what is missing. */
  speak() {
    const { request } = this.composer;
    if (request.input.trim()) {
      this.#start(request, null);
      return;
    }
    this.composer.clearFaults();
    this.composer.refuse({ param: "input", message: "Write something to be spoken." });
  }

  /** A short sample of a voice. */
  speakSample(request, label) {
    this.#start(request, label);
  }

  #start(request, label) {
    this.composer.clearFaults();
    if (this.speaker.server.locked) this.#tellLocked();
    else this.speaker.speak(request, label);
  }

  /** The key is asked for elsewhere. */
  #tellLocked() {
    this.player.dispatchEvent(new Event("locked"));
  }

  #onHold() {
    const { speaker } = this;
    if (speaker.state === "speaking") speaker.pause();
    else if (speaker.state === "paused") speaker.resume();
    else speaker.again();
  }

  #onKey(event) {
    if (document.querySelector("dialog[open]")) return;
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      this.speak();
    } else if (event.key === "Escape" && this.speaker.active) this.speaker.stop();
  }

  #show() {
    const { speaker } = this;
    this.player.dataset.state = speaker.state;
    setText("state-words", this.#words());
    const [label, symbol] = HOLD[holdRole(speaker.state)];
    this.hold.setAttribute("aria-label", label);
    this.hold.title = label;
    byId("hold-icon").setAttribute("href", symbol);
    enable(this.hold, ["speaking", "paused"].includes(speaker.state) || speaker.replayable);
    enable(this.stop, speaker.active);
    this.#showRefusal();
    this.#showNotes();
    this.#showProgress();
  }

  #words() {
    const { state, place, starved, take } = this.speaker;
    if (state === "waiting" && place > 0) return `In the queue, place ${place}`;
    if (state === "speaking" && starved) return "Waiting for more sound …";
    const what = take?.label ? `: ${take.label}` : "";
    return `${WORDS[state]}${state === "failed" ? "" : what}`;
  }

  #showProgress() {
    const { speaker } = this;
    const { take, position, played, audible } = speaker;
    this.waveform.show(take, position);
    const spoken = speaker.active && position > 0 ? take.fragmentAt(position) : null;
    this.#highlight.mark(take?.text ?? "", spoken);
    this.player.dataset.played = played;
    this.player.dataset.audible = audible;
    const { firstSoundMs, factor, place } = speaker;
    setText("first-sound", firstSoundMs === null ? "–" : `${Math.round(firstSoundMs)} ms`);
    setText("factor", factor === null ? "–" : factor.toFixed(factor < 0.1 ? 3 : 2));
    setText("length", take?.length ? `${take.seconds.toFixed(1)} s` : "–");
    setText("place", placeWords(place));
  }

  #showRefusal() {
    const { refusal } = this.speaker;
    if (refusal === this.#refused) return;
    this.#refused = refusal;
    const elsewhere = refusal !== null && this.composer.refuse(refusal);
    const again = refusal?.retryAfter ? ` (in about ${Math.ceil(refusal.retryAfter)} s)` : "";
    setText("player-error", refusal && !elsewhere ? `${refusal.message}${again}` : "");
    if (refusal?.status === 401) this.#tellLocked();
  }

  #showNotes() {
    const items = this.speaker.notes.map((note) => {
      const item = document.createElement("li");
      item.textContent = note;
      return item;
    });
    byId("notes").replaceChildren(...items);
  }
}

function holdRole(state) {
  if (state === "paused") return "resume";
  return ["done", "stopped", "failed"].includes(state) ? "again" : "pause";
}

function placeWords(place) {
  if (place === null) return "–";
  return place === 0 ? "your turn" : String(place);
}

/** Only when it differs: a live region speaks at every change. */
function setText(id, words) {
  const target = byId(id);
  if (target.textContent !== words) target.textContent = words;
}
