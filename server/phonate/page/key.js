/** The API key: kept in this tab (sessionStorage), never in an address, never in a snippet. */

const NAME = "phonate-key";

export class Key {
  #value = "";

  constructor() {
    try {
      this.#value = sessionStorage.getItem(NAME) ?? "";
    } catch {
      // Storage is switched off: the key lives until the page is left.
    }
  }

  get present() {
    return this.#value !== "";
  }

  set(value) {
    this.#value = value;
    try {
      if (value) sessionStorage.setItem(NAME, value);
      else sessionStorage.removeItem(NAME);
    } catch {
      // See above.
    }
  }

  get headers() {
    return this.present ? { Authorization: `Bearer ${headerSafe(this.#value)}` } : {};
  }

  /** A browser cannot set headers on a WebSocket: the key goes as a subprotocol. The server
   * answers with the one that holds no key. */
  get subprotocols() {
    if (!this.present) return ["phonate"];
    const base64 = btoa(headerSafe(this.#value));
    const urlSafe = base64.replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
    return ["phonate", `bearer.${urlSafe}`];
  }
}

/** A key in any script, as the bytes of its UTF-8 in a string, which is what headers carry. */
function headerSafe(key) {
  return String.fromCharCode(...new TextEncoder().encode(key));
}
