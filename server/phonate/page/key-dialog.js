/** Asks for the API key, tries it, and keeps it in the tab. */

import { byId, show } from "./dom.js";

export class KeyDialog {
  #dialog = byId("key-dialog");
  #field = byId("key");
  #button = byId("key-button");

  /** onKey() once a key opens the server. */
  constructor(server, onKey) {
    this.server = server;
    this.onKey = onKey;
    byId("key-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#try();
    });
    byId("key-later").addEventListener("click", () => this.#dialog.close());
    this.#button.addEventListener("click", () => this.#onButton());
  }

  /** Call where the server has keys: offers the button, and asks if there is none yet. */
  need() {
    show(this.#button, true);
    this.#label();
    if (!this.server.key.present) this.ask();
  }

  ask(words = "") {
    byId("key-error").textContent = words;
    if (!this.#dialog.open) this.#dialog.showModal();
    this.#field.focus();
  }

  /** The server did not take the key that is kept. */
  refused() {
    this.ask(this.server.key.present ? "The server does not take this key (any more)." : "");
  }

  #onButton() {
    if (!this.server.key.present) {
      this.ask();
      return;
    }
    this.server.key.set("");
    this.#label();
    this.ask();
  }

  #label() {
    byId("key-button-words").textContent = this.server.key.present ? "Forget the key" : "Enter key";
  }

  async #try() {
    const before = this.server.key;
    before.set(this.#field.value.trim());
    try {
      if (before.present) await this.server.checkKey();
    } catch (refusal) {
      before.set("");
      const wrong = refusal.status === 401;
      byId("key-error").textContent = wrong ? "The server does not know this key." : refusal.message;
      this.#field.select();
      return;
    } finally {
      this.#label();
    }
    if (!before.present) return;
    this.#field.value = "";
    this.#dialog.close();
    this.onKey();
  }
}
