/** Sound out: an AudioContext, the worklet, and where the listener is. */
import { Resampler } from "./resample.js";

const CONTEXT_RATE_HZ = 48000;
const FADE_MS = 8;
const ANSWER_WITHIN_MS = 150;

export class Player {
  #context = null;
  #node = null;
  #waiting = []; // messages for a worklet that is still loading
  #resamplers = new Map();
  #flushed = () => {};
  #status = { stream: null, playedMs: 0 };
  #handlers;

  /**
   * `handlers.status(status)` comes 20 times a second while there is sound; `handlers.event(event)`
   * with the events of the jitter buffer; `handlers.silenced(bool)` when the system holds sound back.
   */
  constructor(handlers) {
    this.#handlers = handlers;
  }

  /**
   * Allow sound; false where this browser has none. Call it in the handler of a click or key press:
   * browsers insist.
   */
  unlock() {
    if (!globalThis.AudioWorkletNode) return false;
    if (!this.#context) this.#create();
    if (this.#context.state !== "running") this.#context.resume();
    return true;
  }

  /** Whether the system holds sound back until the person touches the page again. */
  get isSilenced() {
    return this.#context !== null && this.#context.state !== "running";
  }

  /** An AnalyserNode beside the output, null before the first sound. */
  analyser = null;

  /** Add mono sound at `rateHz`; `last` marks the end of the stream. */
  push(stream, rateHz, samples, last) {
    if (!this.#resamplers.has(stream)) {
      this.#resamplers.set(stream, new Resampler(rateHz, this.#context.sampleRate));
    }
    const block = this.#resamplers.get(stream).process(samples, last);
    this.#post({ op: "push", stream, samples: block }, [block.buffer]);
    if (last) this.end(stream);
  }

  end(stream) {
    this.#resamplers.delete(stream);
    this.#post({ op: "end", stream });
  }

  /** The next gap of this stream is the text's, not an underrun. */
  excuse(stream) {
    this.#post({ op: "excuse", stream });
  }

  /**
   * Silence at once. Resolves when the fade has begun, with what was heard: `{stream, heardMs}`,
   * where `stream` may be null, and with `silentInMs`, how long the loudspeaker still sounds.
   */
  async stop() {
    this.#waiting = [];
    this.#resamplers.clear();
    const answer = new Promise((resolve) => {
      this.#flushed = resolve;
      setTimeout(() => resolve(this.#status), ANSWER_WITHIN_MS); // a suspended context may not answer
    });
    this.#post({ op: "flush", fadeMs: FADE_MS });
    const { stream, playedMs } = await answer;
    return { stream, heardMs: this.heardMs(playedMs), silentInMs: FADE_MS + this.latencyMs };
  }

  /** What has left the loudspeaker when `playedMs` have left the buffer. */
  heardMs(playedMs) {
    return Math.max(0, playedMs - this.latencyMs);
  }

  get latencyMs() {
    const { baseLatency = 0, outputLatency = 0 } = this.#context ?? {};
    return 1000 * (baseLatency + outputLatency);
  }

  #create() {
    try {
      this.#context = new AudioContext({ sampleRate: CONTEXT_RATE_HZ, latencyHint: "interactive" });
    } catch {
      this.#context = new AudioContext(); // the device insists on its own rate
    }
    this.#context.onstatechange = () => this.#handlers.silenced(this.isSilenced);
    this.#load();
  }

  async #load() {
    await this.#context.audioWorklet.addModule(new URL("worklet.js", import.meta.url));
    const node = new AudioWorkletNode(this.#context, "moss-player", {
      numberOfInputs: 0,
      outputChannelCount: [1],
    });
    node.port.onmessage = ({ data }) => this.#receive(data);
    node.connect(this.#context.destination);
    this.analyser = new AnalyserNode(this.#context, { fftSize: 2048 });
    node.connect(this.analyser);
    this.#node = node;
    for (const [message, transfer] of this.#waiting) node.port.postMessage(message, transfer);
    this.#waiting = [];
  }

  #post(message, transfer = []) {
    if (this.#node) this.#node.port.postMessage(message, transfer);
    else this.#waiting.push([message, transfer]);
  }

  #receive(message) {
    if (message.type === "flushed") {
      this.#flushed(message);
    } else if (message.type === "status") {
      this.#status = message;
      this.#handlers.status(message);
    } else {
      this.#handlers.event(message);
    }
  }
}
