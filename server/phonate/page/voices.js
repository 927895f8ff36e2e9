/** The list of voices: choose one, hear it, delete one's own. */

import { voiceValue } from "./composer.js";
import { byId, element, icon, show } from "./dom.js";
import { greeting, languageName } from "./languages.js";

const KINDS = { built_in: "built in", speaker: "of the model", starter: "starter voice", registered: "cloned", designed: "designed" };
const OWN = new Set(["registered", "designed"]);
const FILTER_FROM = 9;

export class Voices {
  #voices = [];
  #condemned = null;
  #dialog = byId("delete-dialog");

  constructor(server, stage, composer, onLocked) {
    this.server = server;
    this.stage = stage;
    this.composer = composer;
    this.onLocked = onLocked;
    this.spoken = [];
    composer.addEventListener("change", () => this.#showChoice());
    byId("filter").addEventListener("input", () => this.#show());
    byId("delete-keep").addEventListener("click", () => this.#dialog.close());
    byId("delete-confirm").addEventListener("click", () => this.#delete());
  }

  /** Ask the server again, and show it. */
  async load() {
    byId("voices-error").textContent = "";
    try {
      ({ voices: this.#voices } = await this.server.json("v1/audio/voices"));
    } catch (refusal) {
      if (refusal.status === 401) this.onLocked();
      byId("voices-error").textContent = refusal.message;
      return;
    }
    this.composer.setVoices(this.#voices);
    this.#show();
  }

  say(words) {
    byId("voices-words").textContent = words;
  }

  #show() {
    show(byId("filter-field"), this.#voices.length >= FILTER_FROM);
    const wanted = byId("filter").value.trim().toLowerCase();
    const shown = this.#voices.filter(({ name }) => name.toLowerCase().includes(wanted));
    byId("voice-list").replaceChildren(...shown.map((voice) => this.#row(voice)));
    if (!this.#voices.length) this.say("There is no voice yet.");
    else this.say(shown.length ? "" : "No voice has that name.");
    this.#showChoice();
  }

  #row(voice) {
    const about = [languageName(voice.language), KINDS[voice.kind] ?? voice.kind];
    const choose = element(
      "button",
      {
        type: "button",
        class: "choose",
        "aria-pressed": "false",
        "data-voice": voiceValue(voice),
        onclick: () => this.composer.chooseVoice(voiceValue(voice)),
      },
      element("span", { class: "face", "aria-hidden": "true" }, [...voice.name][0].toUpperCase()),
      element(
        "span",
        { class: "words" },
        element("span", { class: "name", title: voice.name }, voice.name),
        element("span", { class: "kind" }, about.filter(Boolean).join(" · ")),
      ),
    );
    const hear = this.#tool("play", `Hear ${voice.name}`, () => this.#hear(voice));
    const remove =
      OWN.has(voice.kind)
        ? this.#tool("bin", `Delete ${voice.name}`, () => this.#ask(voice))
        : null;
    return element("li", { class: "voice" }, choose, hear, remove);
  }

  #tool(symbol, label, onclick) {
    return element(
      "button",
      { type: "button", class: "tool", "aria-label": label, title: label, onclick },
      icon(symbol),
    );
  }

  #showChoice() {
    for (const button of byId("voice-list").querySelectorAll(".choose")) {
      const chosen = button.dataset.voice === this.composer.voice.value;
      button.setAttribute("aria-pressed", String(chosen));
    }
  }

  #hear(voice) {
    const input = greeting(voice.language, this.spoken);
    this.stage.speakSample({ input, voice: voiceValue(voice) }, `a sample of ${voice.name}`);
  }

  #ask(voice) {
    this.#condemned = voice;
    byId("delete-words").textContent =
      `“${voice.name}” and everything made from its recording are removed from the server.`;
    byId("delete-error").textContent = "";
    this.#dialog.showModal();
  }

  async #delete() {
    const voice = this.#condemned;
    try {
      await this.server.request(`v1/audio/voices/${encodeURIComponent(voice.id)}`, {
        method: "DELETE",
      });
    } catch (refusal) {
      if (refusal.status === 401) this.onLocked();
      byId("delete-error").textContent = refusal.message;
      return;
    }
    this.#dialog.close();
    await this.load();
    this.say(`${voice.name} was deleted.`);
    byId("voices-title").focus();
  }
}
