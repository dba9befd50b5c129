/** Records everything that passes, from the first process() on; `take` answers with all of it. */
class Tap extends AudioWorkletProcessor {
  #blocks = [];

  constructor() {
    super();
    this.port.onmessage = () => this.port.postMessage(this.#blocks);
  }

  process([[input]], [[output]]) {
    const block = input ?? new Float32Array(output.length);
    output.set(block);
    this.#blocks.push(block.slice());
    return true;
  }
}

registerProcessor("tap", Tap);
