/** The health line: one sentence about the server, looked up again while the page is looked at. */

import { byId } from "./dom.js";

const EVERY_MS = 5_000;

export class Health {
  #about = "";

  constructor(server) {
    this.server = server;
    setInterval(() => document.visibilityState === "visible" && this.look(), EVERY_MS);
    document.addEventListener("visibilitychange", () => {
      if (document.visibilityState === "visible") this.look();
    });
  }

  /** Which model this is about. */
  describe({ engine, server }) {
    const model = engine.name === "builtin" ? "built-in voice" : engine.model;
    this.#about = `${model} on ${engine.device}`;
    byId("about").textContent = `phonate ${server.version}`;
  }

  async look() {
    let state = "bad";
    let words;
    try {
      const health = await this.server.health();
      if (health.status !== "ok") words = "In trouble: the engine makes no progress";
      else {
        const { active_requests: active, queued_requests: queued } = health;
        state = active ? "busy" : "ok";
        words = active ? `${active} speaking` : "Ready";
        if (queued) words += `, ${queued} waiting`;
      }
    } catch {
      words = "The server cannot be reached";
    }
    byId("health").dataset.health = state;
    const sentence = state === "bad" || !this.#about ? words : `${words} · ${this.#about}`;
    const target = byId("health-words");
    if (target.textContent !== sentence) target.textContent = sentence;
  }
}
