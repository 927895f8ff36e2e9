/** The server this page came from: addresses relative to the page, errors as words. */

/** What the server said no with. `param` names the field that it is about. */
export class Refusal extends Error {
  constructor(message, { status = 0, param = null, code = null, retryAfter = null } = {}) {
    super(message);
    this.status = status;
    this.param = param;
    this.code = code;
    this.retryAfter = retryAfter;
  }
}

export class Server {
  constructor(key) {
    this.key = key;
    this.needsKey = false; // until the server says so
  }

  /** Nothing but listings would be answered. */
  get locked() {
    return this.needsKey && !this.key.present;
  }

  /** Where the page is, with its path prefix, ending in a slash. */
  get base() {
    return new URL(".", document.baseURI);
  }

  url(path) {
    return new URL(path, this.base).href;
  }

  /** wss where the page came over https. */
  socketUrl(path) {
    return this.url(path).replace(/^http/, "ws");
  }

  openSocket(path) {
    return new WebSocket(this.socketUrl(path), this.key.subprotocols);
  }

  /** The response, or a Refusal. */
  async request(path, options = {}) {
    const headers = { ...this.key.headers, ...options.headers };
    let response;
    try {
      response = await fetch(this.url(path), { ...options, headers });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Refusal("The server cannot be reached. Is it still running?", {
        code: "unreachable",
      });
    }
    if (!response.ok) throw await refusalOf(response);
    return response;
  }

  async json(path, options) {
    return (await this.request(path, options)).json();
  }

  postJson(path, body, options = {}) {
    return this.request(path, {
      ...options,
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body),
    });
  }

  /** Raises a Refusal of status 401 for a key that does not open this server. */
  async checkKey() {
    await this.request("v1/audio/voice_consents?limit=1");
  }

  /** Health as it is told, also when it is bad, which is status 503. */
  async health() {
    const response = await fetch(this.url("health"), { headers: this.key.headers });
    const report = await response.json();
    if (!report.status) throw new Refusal("The server did not tell its health.");
    return report;
  }
}

async function refusalOf(response) {
  const { status } = response;
  const retryAfter = Number(response.headers.get("Retry-After")) || null;
  let error = null;
  try {
    ({ error } = await response.json());
  } catch {
    // Not ours: a proxy in between answered.
  }
  const message = error?.message ?? `The server answered ${status} ${response.statusText}.`;
  return new Refusal(message, {
    status,
    param: error?.param ?? null,
    code: error?.code ?? null,
    retryAfter,
  });
}

/** The same from an `error` event of a WebSocket. */
export function refusalOfEvent(event) {
  return new Refusal(event.message, {
    param: event.error?.param ?? null,
    code: event.error?.code ?? null,
    retryAfter: event.retry_after_s ?? null,
  });
}
