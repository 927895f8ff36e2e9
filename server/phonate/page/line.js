/** The place in the queue, while nothing is heard yet.
 *
 * The server tells how many wait, not who is where; but those who came before leave first, so the
 * number of waiting requests, once seen, is an upper bound for good.
 */

const FIRST_LOOK_MS = 250;
const LOOK_EVERY_MS = 600;

export class Line {
  #timer = null;
  #place = Infinity;

  /** onPlace(n): n wait before or with us; 0: it is our turn. */
  constructor(server, onPlace) {
    this.server = server;
    this.onPlace = onPlace;
  }

  start() {
    this.stop();
    this.#place = Infinity;
    this.#timer = setTimeout(() => this.#look(), FIRST_LOOK_MS);
  }

  stop() {
    clearTimeout(this.#timer);
    this.#timer = null;
  }

  async #look() {
    const timer = this.#timer;
    try {
      const health = await this.server.health();
      if (this.#timer !== timer) return;
      this.#place = Math.min(this.#place, health.queued_requests);
      this.onPlace(this.#place);
    } catch {
      // The session itself finds out that the server is gone.
    }
    if (this.#timer === timer) this.#timer = setTimeout(() => this.#look(), LOOK_EVERY_MS);
  }
}
