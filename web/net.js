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
  #handlers;

  /**
   * `base` is the server's URL. `handlers`: `open()`, `message(object)`, `audio(ArrayBuffer)`,
   * `roundTrip(ms)` and `lost({reason, retryInMs})`, where `retryInMs` is null when it stays closed.
   */
  constructor(base, handlers) {
    this.#base = base;
    this.#handlers = handlers;
  }

  open() {
    clearTimeout(this.#timer);
    const url = new URL("v1/speech", this.#base);
    url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
    const socket = new WebSocket(url, SUBPROTOCOL);
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
    const wait = RETRY_MS[Math.min(this.#failures++, RETRY_MS.length - 1)];
    this.#timer = setTimeout(() => this.open(), wait);
    const reason = opened ? "The connection was lost." : await this.#whyRefused();
    if (socket === this.#socket) this.#handlers.lost({ reason, retryInMs: wait });
  }

  /** Browsers hide why a WebSocket was refused; ask over HTTP. */
  async #whyRefused() {
    try {
      const { ok } = await fetch(new URL("readyz", this.#base));
      return ok ? "The server refused the connection." : "The server is still getting ready.";
    } catch {
      return "The server does not answer.";
    }
  }
}
