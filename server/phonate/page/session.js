/** One utterance over the WebSocket /v1/audio/speech-stream: docs/PROTOCOL.md. */

import { Refusal, refusalOfEvent } from "./server.js";

const PATH = "v1/audio/speech-stream";
const PIECE = 8_000; // characters in an event; a frame may have 64 KiB

export class Session {
  #socket;
  #server;
  #listener;
  #over = false;
  #opened = false;

  /** listener: ready(event), fragment(event), sound(event), pcm(Int16Array), warning(event), and at
   * last exactly one of done(event), cancelled(event), failed(Refusal). */
  constructor(server, config, text, listener) {
    this.#server = server;
    this.#listener = listener;
    const socket = (this.#socket = server.openSocket(PATH));
    socket.binaryType = "arraybuffer";
    socket.onopen = () => {
      this.#opened = true;
      this.#send({ type: "config", response_format: "pcm", ...config });
      for (let at = 0; at < text.length; at += PIECE) {
        this.#send({ type: "text", text: text.slice(at, at + PIECE) });
      }
      this.#send({ type: "end" });
    };
    socket.onmessage = ({ data }) => this.#receive(data);
    socket.onclose = () => this.#closed();
  }

  get over() {
    return this.#over;
  }

  pause() {
    this.#send({ type: "pause" });
  }

  resume() {
    this.#send({ type: "resume" });
  }

  /** Nothing is heard from this session any more. */
  cancel() {
    if (this.#over) return;
    this.#over = true;
    this.#send({ type: "cancel" });
    this.#socket.close();
  }

  #send(event) {
    if (this.#socket.readyState === WebSocket.OPEN) this.#socket.send(JSON.stringify(event));
  }

  #receive(data) {
    if (this.#over) return;
    if (data instanceof ArrayBuffer) {
      this.#listener.pcm(new Int16Array(data));
      return;
    }
    const event = JSON.parse(data);
    if (event.type === "ready") this.#listener.ready(event);
    else if (event.type === "fragment_ready") this.#listener.fragment(event);
    else if (event.type === "first_pcm_ready") this.#listener.sound(event);
    else if (event.type === "warning") this.#listener.warning(event);
    else if (event.type === "done") this.#end(() => this.#listener.done(event));
    else if (event.type === "cancelled") this.#end(() => this.#listener.cancelled(event));
    else if (event.type === "error") {
      this.#end(() => this.#listener.failed(refusalOfEvent(event)));
    }
  }

  #end(tell) {
    this.#over = true;
    tell();
  }

  async #closed() {
    if (this.#over) return;
    this.#over = true;
    const why = this.#opened
      ? new Refusal("The connection to the server was lost in mid-speech.")
      : await this.#whyNot();
    this.#listener.failed(why);
  }

  /** A browser does not tell why a handshake was refused: ask over HTTP. */
  async #whyNot() {
    try {
      await this.#server.checkKey();
      await this.#server.request("ready");
    } catch (refusal) {
      if (refusal.status !== 503) return refusal;
      return new Refusal("The server is starting or stopping. Try again in a moment.");
    }
    return new Refusal(
      "The server answers, but opens no WebSocket: too many sessions may be open, this address " +
        "may not be allowed (--cors-origin), or a proxy in between may not pass WebSockets on.",
    );
  }
}
