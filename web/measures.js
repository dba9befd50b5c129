/** The strip of measurements. */

const BAR_MS = 4000; // what a full bar stands for

export class Measures {
  #root;

  /** `root` holds elements with `data-measure` names. */
  constructor(root) {
    this.#root = root;
  }

  /** A new reply: what the strip says of the last one no longer holds. */
  begin() {
    this.firstAudio(null);
    this.server({ metrics: {} });
    this.#set("silence", "");
  }

  firstAudio(ms) {
    this.#set("first-audio", milliseconds(ms));
  }

  silence(ms) {
    this.#set("silence", `Silent ${milliseconds(ms)} after Stop`);
  }

  roundTrip(ms) {
    this.#set("round-trip", `Network ${milliseconds(ms)}`);
  }

  buffer({ bufferedMs, targetMs, underruns }) {
    this.#set("buffered", milliseconds(bufferedMs));
    this.#set("target", `Target ${milliseconds(targetMs)}`);
    this.#set("underruns", String(underruns));
    const fill = this.#find("fill");
    fill.style.transform = `scaleX(${Math.min(1, bufferedMs / BAR_MS)})`;
  }

  /** The server's own figures, from `response.done`. */
  server({ metrics }) {
    const { ttfa_ms: first, rtf, starved_ms: starved } = metrics;
    this.#set("server-first", `Server ${milliseconds(first)}`);
    this.#set("speed", rtf ? `${(1 / rtf).toFixed(1)}×` : "–");
    this.#set("speed-note", rtf > 1 ? "of real time: too slow to play without gaps" : "of real time");
    this.#set("starved", `Text wait ${milliseconds(starved)}`);
  }

  #find(name) {
    return this.#root.querySelector(`[data-measure="${name}"]`);
  }

  #set(name, text) {
    const node = this.#find(name);
    if (node.textContent !== text) node.textContent = text;
  }
}

const milliseconds = (ms) => (ms == null ? "–" : `${Math.round(ms)} ms`);
