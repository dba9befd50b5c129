/** Change the rate of a stream of sound by a windowed-sinc interpolation. Pure. */

const HALF_TAPS = 16;
const KAISER_BETA = 8;
const tables = new Map();

/**
 * One stream's resampler. All the blocks together give exactly `ceil(n * outRate / inRate)` samples
 * for `n` samples in, without delay; and where an output instant falls on an input sample, going up,
 * it is that sample.
 */
export class Resampler {
  #up;
  #down;
  #table;
  #tail = new Float32Array(HALF_TAPS - 1); // before the next output: what its filter looks back on
  #tailStart = 1 - HALF_TAPS; // index in the stream of #tail[0]
  #made = 0;

  constructor(inRate, outRate) {
    const divisor = greatestCommonDivisor(inRate, outRate);
    this.#up = outRate / divisor;
    this.#down = inRate / divisor;
    this.#table = filterTable(this.#up, this.#down);
  }

  /** Take a block of samples, give those that can be made; `last` also gives the rest. */
  process(block, last) {
    if (this.#up === this.#down) return block;
    const padding = last ? HALF_TAPS : 0;
    const input = new Float32Array(this.#tail.length + block.length + padding);
    input.set(this.#tail);
    input.set(block, this.#tail.length);
    const known = this.#tailStart + input.length; // samples of the stream, padding included
    const end = Math.max(this.#made, Math.ceil(((known - HALF_TAPS) * this.#up) / this.#down));
    const out = new Float32Array(end - this.#made);
    for (let i = 0; i < out.length; i++) out[i] = this.#sample(input, this.#made + i);
    this.#made = end;
    const next = Math.floor((end * this.#down) / this.#up) - HALF_TAPS + 1;
    this.#tail = input.slice(next - this.#tailStart);
    this.#tailStart = next;
    return out;
  }

  #sample(input, index) {
    const position = index * this.#down;
    const first = Math.floor(position / this.#up) - HALF_TAPS + 1 - this.#tailStart;
    const taps = this.#table[position % this.#up];
    let sum = 0;
    for (let k = 0; k < taps.length; k++) sum += taps[k] * input[first + k];
    return sum;
  }
}

/** `up` filters of 2 * HALF_TAPS taps, one for each place between two input samples. */
function filterTable(up, down) {
  const key = `${up}/${down}`;
  if (!tables.has(key)) {
    const cutoff = Math.min(1, up / down);
    tables.set(key, Array.from({ length: up }, (_, phase) => filterTaps(phase / up, cutoff)));
  }
  return tables.get(key);
}

function filterTaps(fraction, cutoff) {
  const taps = Float64Array.from({ length: 2 * HALF_TAPS }, (_, k) => {
    const distance = fraction + HALF_TAPS - 1 - k;
    return sinc(cutoff * distance) * kaiser(distance / HALF_TAPS);
  });
  const sum = taps.reduce((total, tap) => total + tap);
  return taps.map((tap) => tap / sum);
}

function sinc(x) {
  if (Number.isInteger(x)) return x === 0 ? 1 : 0;
  return Math.sin(Math.PI * x) / (Math.PI * x);
}

const kaiser = (x) => besselI0(KAISER_BETA * Math.sqrt(Math.max(0, 1 - x * x)));

function besselI0(x) {
  let sum = 1;
  for (let k = 1, term = 1; term > 1e-12 * sum; k++) {
    term *= (x / (2 * k)) ** 2;
    sum += term;
  }
  return sum;
}

function greatestCommonDivisor(a, b) {
  return b === 0 ? a : greatestCommonDivisor(b, a % b);
}
