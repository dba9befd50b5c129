/** The audio thread: a jitter buffer behind a message port, and nothing else. */
import { JitterBuffer } from "./jitter.js";

const STATUS_EVERY_S = 0.05;

class PlayerProcessor extends AudioWorkletProcessor {
  #statusAt = 0;
  #idle = false;
  #buffer = new JitterBuffer(sampleRate, (event) => this.port.postMessage(event));

  constructor() {
    super();
    this.port.onmessage = ({ data }) => this.#apply(data);
  }

  process(_inputs, [[channel]]) {
    this.#buffer.pull(channel);
    if (currentTime >= this.#statusAt) this.#report();
    return true;
  }

  #report() {
    const status = this.#buffer.status();
    if (status.state !== "idle" || !this.#idle) this.port.postMessage({ type: "status", ...status });
    this.#idle = status.state === "idle";
    this.#statusAt = currentTime + STATUS_EVERY_S;
  }

  #apply(message) {
    switch (message.op) {
      case "push":
        this.#buffer.push(message.stream, message.samples);
        break;
      case "end":
        this.#buffer.end(message.stream);
        break;
      case "excuse":
        this.#buffer.excuse(message.stream);
        break;
      case "flush":
        this.port.postMessage({ type: "flushed", ...this.#buffer.flush(message.fadeMs) });
    }
  }
}

registerProcessor("moss-player", PlayerProcessor);
