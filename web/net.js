/** The socket: numbered messages out, messages and sound in, and coming back after a loss. */

const SUBPROTOCOL = "moss.v1.json";
const RETRY_MS = [500, 1000, 2000, 4000, 8000];
const PING_MS = 20_000;
const CLOSE_PROTOCOL = 4400;
const CLOSE_IDLE = 4408;
const CLOSE_REPLACED = 4409;
const STAYS_CLOSED = new Map([
  [1000, "The session was closed."],
  [CLOSE_PROTOCOL, "The server did not understand this page. Reload it."],
  [CLOSE_IDLE, "The session was closed because nothing happened for a while."],
  [CLOSE_REPLACED, "The session went on in another window."],
]);

export class Connection {
  #socket = null;
  #messages = 0;
  #failures = 0;
  #timer = 0;
  #ping = 0;
  #base;
  #access;
  #handlers;

  /**
   * `base` is the server's URL, `access` the page's credential. `handlers`: `open()`,
   * `message(object)`, `audio(ArrayBuffer)`, `roundTrip(ms)` and `lost({reason, retryInMs,
   * needsAccess})`, where `retryInMs` is null when it stays closed.
   */
  constructor(base, access, handlers) {
    this.#base = base;
    this.#access = access;
    this.#handlers = handlers;
  }

  async open() {
    clearTimeout(this.#timer);
    await this.#access.renew().catch(() => {}); // the socket finds out why
    const url = new URL("v1/speech", this.#base);
    url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
    const socket = new WebSocket(url, [SUBPROTOCOL, ...this.#access.subprotocols]);
    socket.binaryType = "arraybuffer";
    let opened = false;
    socket.onopen = () => {
      opened = true;
      this.#messages = 0;
      this.#handlers.open();
      this.#ping = setInterval(() => this.send("ping", { t: performance.now() }), PING_MS);
    };
    socket.onmessage = ({ data }) => this.#receive(data);
    socket.onclose = ({ code }) => this.#lost(socket, code, opened);
    this.#socket = socket;
  }

  /** Send a message; false, and nothing sent, while there is no connection. */
  send(type, fields = {}) {
    if (this.#socket?.readyState !== WebSocket.OPEN) return false;
    this.#socket.send(JSON.stringify({ type, m: ++this.#messages, ...fields }));
    return true;
  }

  /** Call once the session has started: the next loss counts as the first. */
  settled() {
    this.#failures = 0;
    this.send("ping", { t: performance.now() });
  }

  #receive(data) {
    if (data instanceof ArrayBuffer) {
      this.#handlers.audio(data);
      return;
    }
    const message = JSON.parse(data);
    if (message.type === "pong") this.#handlers.roundTrip(performance.now() - message.t);
    else this.#handlers.message(message);
  }

  async #lost(socket, code, opened) {
    clearInterval(this.#ping);
    const final = STAYS_CLOSED.get(code);
    if (final) {
      this.#handlers.lost({ reason: final, retryInMs: null });
      return;
    }
    const { reason, needsAccess } = opened
      ? { reason: "The connection was lost." }
      : await this.#whyRefused();
    if (socket !== this.#socket) return;
    if (needsAccess) {
      this.#handlers.lost({ reason, retryInMs: null, needsAccess });
      return;
    }
    const wait = RETRY_MS[Math.min(this.#failures++, RETRY_MS.length - 1)];
    this.#timer = setTimeout(() => this.open(), wait);
    this.#handlers.lost({ reason, retryInMs: wait });
  }

  /** Browsers hide why a WebSocket was refused; ask over HTTP. */
  async #whyRefused() {
    try {
      const { ok } = await fetch(new URL("readyz", this.#base));
      if (!ok) return { reason: "The server is still getting ready." };
      if (await this.#access.isMissing()) {
        return { reason: "This server wants an API key or a client token.", needsAccess: true };
      }
      return { reason: "The server refused the connection." };
    } catch {
      return { reason: "The server does not answer." };
    }
  }
}
