/** Samples in order, in one buffer that doubles when it is full; reading allocates nothing. Pure. */
export class SampleRing {
  #samples;
  #mask;
  #written = 0;
  #read = 0;

  /** `capacity` is a power of two; 2^19 samples are 10.9 s at 48 kHz. */
  constructor(capacity = 1 << 19) {
    this.#samples = new Float32Array(capacity);
    this.#mask = capacity - 1;
  }

  /** Samples that wait to be read. */
  get length() {
    return this.#written - this.#read;
  }

  /** The next sample; only where there is one. */
  peek() {
    return this.#samples[this.#read & this.#mask];
  }

  push(samples) {
    while (this.length + samples.length > this.#samples.length) this.#grow();
    const at = this.#written & this.#mask;
    const room = this.#samples.length - at;
    this.#samples.set(samples.subarray(0, room), at);
    if (samples.length > room) this.#samples.set(samples.subarray(room), 0);
    this.#written += samples.length;
  }

  /** Move the next `count` samples to `out[at...]`. */
  read(out, at, count) {
    for (let i = 0; i < count; i++) out[at + i] = this.#samples[this.#read++ & this.#mask];
  }

  /** Forget everything but the next `count` samples. */
  keep(count) {
    this.#written = this.#read + Math.min(count, this.length);
  }

  #grow() {
    const count = this.length;
    const bigger = new Float32Array(2 * this.#samples.length);
    this.read(bigger, 0, count);
    this.#samples = bigger;
    this.#mask = bigger.length - 1;
    this.#read = 0;
    this.#written = count;
  }
}
