/** Adding a voice: a clip from the microphone or a file, what is said in it, a name, and consent. */

import { byId, element, enable, isEnabled, show } from "./dom.js";
import { Fields } from "./fields.js";
import { languageName } from "./languages.js";
import { Microphone } from "./microphone.js";

const MAX_BYTES = 10 * 2 ** 20;
const NAME = "Give the voice a name.";
const CLIP = "Record something, or choose a file.";
const CONSENT = "A voice may only be made with the consent of the person it belongs to.";

export class VoiceForm {
  #clip = null;
  #dialog = byId("voice-dialog");
  #record = byId("record");
  #save = byId("voice-save");
  #fields = new Fields({
    audio_sample: "clip-file",
    ref_text: "transcript",
    name: "voice-name",
    language: "voice-language",
    consent: "consent",
  });
  #microphone = new Microphone(
    (level, seconds) => this.#onLevel(level, seconds),
    (blob) => this.#onRecorded(blob),
  );

  /** onAdded(voice), once the server has it. */
  constructor(server, onAdded, onLocked) {
    this.server = server;
    this.onAdded = onAdded;
    this.onLocked = onLocked;
    byId("add-voice").addEventListener("click", () => this.#dialog.showModal());
    byId("voice-cancel").addEventListener("click", () => this.#dialog.close());
    this.#dialog.addEventListener("close", () => this.#microphone.stop());
    this.#record.addEventListener("click", () => this.#onRecord());
    byId("clip-file").addEventListener("change", ({ target }) => this.#take(target.files[0]));
    byId("voice-form").addEventListener("submit", (event) => {
      event.preventDefault();
      if (isEnabled(this.#save)) this.#send();
    });
    this.#acceptDrops(byId("drop"));
  }

  /** Where the model can clone. */
  offer({ languages, features }) {
    show(byId("add-voice"), features.clone);
    show(byId("no-cloning"), !features.clone);
    byId("voice-language").replaceChildren(
      element("option", { value: "" }, "Not said"),
      ...languages.spoken.map((name) => element("option", { value: name }, languageName(name))),
    );
  }

  #acceptDrops(zone) {
    const over = (event, on) => {
      event.preventDefault();
      zone.classList.toggle("over", on);
    };
    zone.addEventListener("dragover", (event) => over(event, true));
    zone.addEventListener("dragleave", (event) => over(event, false));
    zone.addEventListener("drop", (event) => {
      over(event, false);
      this.#take(event.dataTransfer.files[0]);
    });
  }

  async #onRecord() {
    if (this.#microphone.recording) {
      this.#microphone.stop();
      return;
    }
    byId("clip-file-error").textContent = "";
    try {
      await this.#microphone.start();
    } catch (error) {
      byId("clip-file-error").textContent = error.message;
      return;
    }
    show(byId("clip"), false);
    show(byId("level"), true);
    this.#record.classList.add("recording");
    byId("record-words").textContent = "Stop recording";
    byId("clip-words").textContent = "Recording. Speak now.";
  }

  #onLevel(level, seconds) {
    byId("level").value = level;
    byId("record-words").textContent = `Stop recording (${Math.floor(seconds)} s)`;
  }

  #onRecorded(blob) {
    this.#record.classList.remove("recording");
    byId("record-words").textContent = "Record again";
    show(byId("level"), false);
    const suffix = blob.type.includes("mp4") ? "m4a" : blob.type.includes("ogg") ? "ogg" : "webm";
    this.#take(new File([blob], `recording.${suffix}`, { type: blob.type }));
  }

  #take(file) {
    if (!file) return;
    this.#fields.clear();
    if (file.size > MAX_BYTES) {
      this.#fields.refuse({ param: "audio_sample", message: "The file has more than 10 MiB." });
      return;
    }
    this.#clip = file;
    const player = byId("clip");
    URL.revokeObjectURL(player.src);
    player.src = URL.createObjectURL(file);
    show(player, true);
    byId("clip-words").textContent = `${file.name}, ${Math.ceil(file.size / 1000)} kB`;
  }

  /** The first thing that is missing, as the server would say it. */
  #missing() {
    if (!this.#clip) return { param: "audio_sample", message: CLIP };
    if (!byId("voice-name").value.trim()) return { param: "name", message: NAME };
    return byId("consent").checked ? null : { param: "consent", message: CONSENT };
  }

  async #send() {
    this.#fields.clear();
    byId("voice-form-error").textContent = "";
    const missing = this.#missing();
    if (missing) {
      this.#fields.refuse(missing);
      return;
    }
    enable(this.#save, false);
    this.#save.textContent = "Adding …";
    try {
      const answer = await this.server.request("v1/audio/voices", {
        method: "POST",
        body: this.#body(),
      });
      this.#reset();
      this.#dialog.close();
      this.onAdded(await answer.json());
    } catch (refusal) {
      if (refusal.status === 401) this.onLocked();
      if (!this.#fields.refuse(refusal)) byId("voice-form-error").textContent = refusal.message;
    } finally {
      enable(this.#save, true);
      this.#save.textContent = "Add the voice";
    }
  }

  #body() {
    const body = new FormData();
    body.set("name", byId("voice-name").value.trim());
    body.set("audio_sample", this.#clip, this.#clip.name);
    body.set("consent", "given");
    const transcript = byId("transcript").value.trim();
    if (transcript) body.set("ref_text", transcript);
    if (byId("voice-language").value) body.set("language", byId("voice-language").value);
    return body;
  }

  #reset() {
    byId("voice-form").reset();
    this.#clip = null;
    show(byId("clip"), false);
    byId("clip-words").textContent = "";
    byId("record-words").textContent = "Record";
  }
}
