/** What to say and how: the text and the controls that this server's model has. */

import { byId, element, show } from "./dom.js";
import { Fields } from "./fields.js";
import { languageName } from "./languages.js";

const KIND_HEADINGS = {
  built_in: "Built in",
  speaker: "Speakers of the model",
  starter: "Starter voices",
  registered: "Cloned",
  designed: "Designed",
};

export class Composer extends EventTarget {
  #capabilities;
  #fields = new Fields({
    input: "text",
    voice: "voice",
    language: "language",
    speed: "speed",
    instructions: "instructions",
  });

  constructor() {
    super();
    this.text = byId("text");
    this.voice = byId("voice");
    this.language = byId("language");
    this.speed = byId("speed");
    this.instructions = byId("instructions");
    this.formats = byId("format");
    for (const control of [this.voice, this.language, this.speed, this.instructions, this.formats]) {
      control.addEventListener("input", () => this.#changed());
    }
    this.text.addEventListener("input", () => this.#changed());
  }

  /** Offer what the server can do, and nothing else. */
  offer(capabilities) {
    this.#capabilities = capabilities;
    const { languages, controls, features, audio } = capabilities;
    const only = languages.spoken.length === 1;
    this.language.replaceChildren(
      element("option", { value: "" }, only ? languageName(languages.spoken[0]) : "Automatic"),
      ...(only ? [] : languages.spoken).map((name) =>
        element("option", { value: name }, languageName(name)),
      ),
    );
    show(byId("speed-field"), Boolean(controls.speed));
    if (controls.speed) Object.assign(this.speed, controls.speed, { value: 1 });
    show(byId("instructions-field"), controls.instructions);
    byId("instructions-label").textContent = features.voice_design
      ? "Describe the voice"
      : "Instructions";
    this.instructions.placeholder = features.voice_design
      ? "A warm, low voice of an older woman, speaking slowly"
      : "Cheerful, a little breathless";
    this.formats.replaceChildren(
      ...Object.keys(audio.formats).map((name) =>
        element("option", { value: name, selected: name === audio.default_format }, name),
      ),
    );
    this.#changed();
  }

  /** Choose among these; what was chosen stays chosen, if it is still there. */
  setVoices(voices) {
    const chosen = this.voice.value;
    const groups = new Map();
    for (const voice of voices) {
      const heading = KIND_HEADINGS[voice.kind] ?? "Others";
      if (!groups.has(heading)) groups.set(heading, []);
      groups.get(heading).push(element("option", { value: voiceValue(voice) }, voice.name));
    }
    this.voice.replaceChildren(
      ...[...groups].map(([label, options]) => element("optgroup", { label }, ...options)),
    );
    if (!voices.length) this.voice.append(element("option", { value: "" }, "The model’s own"));
    if ([...this.voice.options].some(({ value }) => value === chosen)) this.voice.value = chosen;
    const design = this.#capabilities.features.voice_design;
    show(byId("voice-field"), !(design && !voices.length));
    this.#changed();
  }

  chooseVoice(value) {
    this.voice.value = value;
    this.#fields.clear();
    this.#changed();
  }

  /** The fields of POST /v1/audio/speech; those that are as the server would choose are left out. */
  get request() {
    const request = { input: this.text.value };
    if (this.voice.value) request.voice = this.voice.value;
    if (this.language.value) request.language = this.language.value;
    if (Number(this.speed.value) !== 1) request.speed = Number(this.speed.value);
    const instructions = this.instructions.value.trim();
    if (this.#capabilities?.controls.instructions && instructions) {
      request.instructions = instructions;
    }
    return request;
  }

  get format() {
    return this.formats.value;
  }

  /** Words at the field a refusal is about; false if it is about none. */
  refuse(refusal) {
    return this.#fields.refuse(refusal);
  }

  clearFaults() {
    this.#fields.clear();
  }

  #changed() {
    byId("speed-value").textContent = `${Number(this.speed.value).toFixed(2)}×`;
    this.speed.setAttribute("aria-valuetext", `${this.speed.value} times`);
    this.#count();
    this.dispatchEvent(new Event("change"));
  }

  #count() {
    const limit = this.#capabilities?.limits.max_input_chars;
    const length = [...this.text.value].length; // code points, as the server counts
    const over = limit !== undefined && length > limit;
    const count = byId("text-count");
    count.textContent = over
      ? `${length} characters: it can be heard, but not downloaded in one piece (${limit})`
      : `${length}${limit ? ` / ${limit}` : ""}`;
    count.classList.toggle("over", over);
  }
}

/** What to send as `voice`: names of people are easier to read in an example than ids. */
export function voiceValue(voice) {
  return voice.kind === "built_in" || voice.kind === "speaker" ? voice.id : voice.name;
}
