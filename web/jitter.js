/**
 * Decides when arriving sound is played. Pure: its clock is the samples that were pulled from it.
 *
 * No sample is ever changed or left out. Where sound begins after silence or breaks off, a ramp of
 * 5 ms to or from the neighbouring sample is *inserted*, so that nothing clicks; only `flush` fades
 * real samples. A *turn* is the sound of one response.
 */
import { SampleRing } from "./ring.js";

const RAMP_MS = 5;
const FIRST_TARGET_MS = 80;
const MIN_TARGET_MS = 60;
const MAX_TARGET_MS = 400;
const MARGIN_MS = 20;
const PATIENCE_MS = 250;
const NEEDS_KEPT = 100;

export class JitterBuffer {
  #ring = new SampleRing();
  #turns = [];
  #shape = "silence"; // what is put out: silence, rise, play, fall or fade
  #rampStep = 0;
  #rampFrom = 0;
  #level = 0; // the last sample put out
  #fadeSamples = 0;
  #clock = 0;
  #needs = [];
  #samplesPerMs;
  #rampSamples;
  #target;
  #underruns = 0;
  #onEvent;

  /**
   * `rate` in Hz is that of the samples in and out. `onEvent` gets `{type, stream, playedMs}`:
   * `started` (also after a stall), `stalled` (the turn ran dry) and `ended`.
   */
  constructor(rate, onEvent = () => {}) {
    this.#samplesPerMs = rate / 1000;
    this.#rampSamples = Math.round(RAMP_MS * this.#samplesPerMs);
    this.#target = FIRST_TARGET_MS * this.#samplesPerMs;
    this.#onEvent = onEvent;
  }

  /** Add sound of a stream. Streams follow one another, they do not mix. */
  push(stream, samples) {
    const turn = this.#turnOf(stream);
    if (turn.dry && samples.length) this.#noteGap(turn);
    if (turn.received === turn.anchor) {
      turn.anchorAt = this.#clock;
      turn.anchorBlock = samples.length;
    } else {
      this.#noteNeed(turn);
    }
    turn.excused = false;
    turn.received += samples.length;
    this.#ring.push(samples);
  }

  /** No more sound of this stream will come. */
  end(stream) {
    this.#turnOf(stream).ended = true;
  }

  /** The next gap of this stream is nobody's fault: its text has not come yet. */
  excuse(stream) {
    const turn = this.#turns.find((one) => one.stream === stream);
    if (turn) turn.excused = true;
  }

  /** Fade out now and forget everything that waits. Gives where that was, `{stream, playedMs}`. */
  flush(fadeMs) {
    const { stream, playedMs } = this.status();
    const fade = Math.round(fadeMs * this.#samplesPerMs);
    if (this.#shape === "play" && this.#turns[0].received - this.#turns[0].played >= fade) {
      this.#enter("fade");
      this.#fadeSamples = fade;
    } else if (this.#shape === "rise" || this.#shape === "play") {
      this.#enter("fall");
    }
    this.#ring.keep(this.#shape === "fade" ? this.#fadeSamples - this.#rampStep : 0);
    this.#turns = [];
    return { stream, playedMs };
  }

  /** Fill `out`, a Float32Array, and let its time pass. */
  pull(out) {
    let at = 0;
    while (at < out.length) {
      at += this.#put(out, at);
      if (at > 0) this.#level = out[at - 1];
    }
    this.#clock += out.length;
  }

  /** Where things stand; `stream` is null and `state` idle when there is nothing to play. */
  status() {
    const turn = this.#turns[0];
    return {
      state: this.#stateOf(turn),
      stream: turn ? turn.stream : null,
      playedMs: turn ? turn.played / this.#samplesPerMs : 0,
      bufferedMs: this.#buffered() / this.#samplesPerMs,
      targetMs: this.#target / this.#samplesPerMs,
      underruns: this.#underruns,
    };
  }

  #buffered() {
    return this.#turns.reduce((sum, turn) => sum + turn.received - turn.played, 0);
  }

  #stateOf(turn) {
    if (!turn) return "idle";
    if (turn.dry) return "stalled";
    return this.#shape === "silence" ? "buffering" : "playing";
  }

  #turnOf(stream) {
    const newest = this.#turns.at(-1);
    if (newest?.stream === stream) return newest;
    const turn = {
      stream,
      received: 0,
      played: 0,
      ended: false,
      dry: false,
      excused: false,
      clean: true,
      anchor: 0, // the pace is measured from the block that began with sample `anchor`,
      anchorAt: 0, // when it came
      anchorBlock: 0, // and its length
    };
    this.#turns.push(turn);
    return turn;
  }

  /** Sound follows a gap: an underrun, unless the text was late. */
  #noteGap(turn) {
    turn.dry = false;
    turn.anchor = turn.received;
    if (turn.excused) return;
    turn.clean = false;
    this.#underruns++;
    this.#target = Math.min(1.5 * this.#target, MAX_TARGET_MS * this.#samplesPerMs);
  }

  /** Note the least start buffer that would have lasted until the block that comes now. */
  #noteNeed(turn) {
    const sinceAnchor = turn.received - turn.anchor - turn.anchorBlock;
    this.#needs.push(this.#clock - turn.anchorAt - sinceAnchor);
    if (this.#needs.length > NEEDS_KEPT) this.#needs.shift();
  }

  #put(out, at) {
    switch (this.#shape) {
      case "silence":
        return this.#wait(out, at);
      case "play":
        return this.#play(out, at);
      case "fade":
        return this.#fade(out, at);
      default:
        return this.#ramp(out, at);
    }
  }

  #wait(out, at) {
    const turn = this.#turns[0];
    if (turn?.ended && turn.received === turn.played) {
      this.#finish(turn);
      return 0;
    }
    if (turn && this.#mayStart(turn)) {
      this.#enter("rise");
      this.#emit("started", turn);
      return 0;
    }
    out.fill(0, at);
    return out.length - at;
  }

  #mayStart(turn) {
    const buffered = turn.received - turn.played;
    if (buffered === 0) return false;
    const waited = this.#clock - turn.anchorAt;
    return turn.ended || buffered >= this.#target || waited >= PATIENCE_MS * this.#samplesPerMs;
  }

  #play(out, at) {
    const turn = this.#turns[0];
    const count = Math.min(out.length - at, turn.received - turn.played);
    if (count === 0) {
      this.#enter("fall");
      if (turn.ended) this.#finish(turn);
      else this.#runDry(turn);
      return 0;
    }
    this.#ring.read(out, at, count);
    turn.played += count;
    return count;
  }

  #runDry(turn) {
    turn.dry = true;
    this.#emit("stalled", turn);
  }

  #finish(turn) {
    this.#turns.shift();
    const need = percentile(this.#needs, 0.95) + MARGIN_MS * this.#samplesPerMs;
    const wanted = Math.max(need, turn.clean ? 0.9 * this.#target : this.#target);
    const [least, most] = [MIN_TARGET_MS, MAX_TARGET_MS].map((ms) => ms * this.#samplesPerMs);
    this.#target = Math.min(Math.max(wanted, least), most);
    this.#emit("ended", turn);
  }

  #ramp(out, at) {
    const rising = this.#shape === "rise";
    const peak = rising ? this.#ring.peek() : this.#rampFrom;
    const count = Math.min(out.length - at, this.#rampSamples - this.#rampStep);
    for (let i = 0; i < count; i++) {
      const share = ++this.#rampStep / (this.#rampSamples + 1);
      out[at + i] = peak * (rising ? share : 1 - share);
    }
    if (this.#rampStep === this.#rampSamples) this.#enter(rising ? "play" : "silence");
    return count;
  }

  #fade(out, at) {
    const count = Math.min(out.length - at, this.#fadeSamples - this.#rampStep);
    this.#ring.read(out, at, count);
    for (let i = 0; i < count; i++) out[at + i] *= 1 - ++this.#rampStep / this.#fadeSamples;
    if (this.#rampStep === this.#fadeSamples) this.#enter("silence");
    return count;
  }

  #enter(shape) {
    this.#shape = shape;
    this.#rampStep = 0;
    this.#rampFrom = this.#level;
  }

  #emit(type, turn) {
    this.#onEvent({ type, stream: turn.stream, playedMs: turn.played / this.#samplesPerMs });
  }
}

function percentile(values, share) {
  if (values.length === 0) return 0;
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))];
}
