/** Draws the sound that is playing. */

const REDUCED = matchMedia("(prefers-reduced-motion: reduce)");
const BARS = 48;
const RANGE_DB = 60;

export class Wave {
  #canvas;
  #player;
  #bins = null;
  #running = false;

  /** `player.analyser` is asked for anew each time: it is there from the first sound on. */
  constructor(canvas, player) {
    this.#canvas = canvas;
    this.#player = player;
  }

  start() {
    if (this.#running || REDUCED.matches || !this.#player.analyser) return;
    this.#running = true;
    requestAnimationFrame(() => this.#draw());
  }

  stop() {
    this.#running = false;
  }

  #draw() {
    const { width, height } = this.#canvas;
    const context = this.#canvas.getContext("2d");
    context.clearRect(0, 0, width, height);
    if (!this.#running) return;
    const analyser = this.#player.analyser;
    this.#bins ??= new Float32Array(analyser.frequencyBinCount);
    analyser.getFloatFrequencyData(this.#bins);
    context.fillStyle = getComputedStyle(this.#canvas).color;
    const step = width / BARS;
    for (let bar = 0; bar < BARS; bar++) {
      const level = this.#level(bar);
      const tall = Math.max(2, level * height);
      context.fillRect(bar * step, (height - tall) / 2, step * 0.6, tall);
    }
    requestAnimationFrame(() => this.#draw());
  }

  /** 0 to 1, of bands that widen with frequency up to an eighth of the bins (3 kHz). */
  #level(bar) {
    const bin = 2 + Math.floor((this.#bins.length / 8) * (bar / BARS) ** 1.5);
    return Math.min(1, Math.max(0, (this.#bins[bin] + 25 + RANGE_DB) / RANGE_DB));
  }
}
