/** Binary audio frames: a 16-byte little-endian header, then 16-bit samples. Pure. */

export const HEADER_BYTES = 16;
export const LAST_OF_RESPONSE = 4;

const EPOCHS = 1 << 16;
const FULL_SCALE = 32767;

/**
 * Read a frame from an ArrayBuffer. `pts` is the first sample's index in the response and `samples`
 * the length of the payload, both per channel. Throws a RangeError on anything shorter than a header.
 */
export function parseFrame(buffer) {
  if (buffer.byteLength < HEADER_BYTES) {
    throw new RangeError(`an audio frame has at least ${HEADER_BYTES} bytes, not ${buffer.byteLength}`);
  }
  const view = new DataView(buffer);
  return {
    type: view.getUint8(0),
    flags: view.getUint8(1),
    stream: view.getUint16(2, true),
    seq: view.getUint32(4, true),
    pts: view.getUint32(8, true),
    samples: view.getUint16(12, true),
    epoch: view.getUint16(14, true),
    payload: new Uint8Array(buffer, HEADER_BYTES),
  };
}

/** Turn interleaved 16-bit samples into mono Float32, the mean of the channels. */
export function pcm16ToMono(payload, channels) {
  const view = new DataView(payload.buffer, payload.byteOffset, payload.byteLength);
  const mono = new Float32Array(payload.byteLength / (2 * channels));
  for (let i = 0, byte = 0; i < mono.length; i++) {
    let sum = 0;
    for (let c = 0; c < channels; c++, byte += 2) sum += view.getInt16(byte, true);
    mono[i] = sum / (channels * FULL_SCALE);
  }
  return mono;
}

/** The epoch after `epoch`; it has 16 bits and wraps. */
export const nextEpoch = (epoch) => (epoch + 1) % EPOCHS;

/** Whether `epoch` is older than `other`, by serial-number comparison. */
export function epochIsBefore(epoch, other) {
  const distance = (other - epoch + EPOCHS) % EPOCHS;
  return 0 < distance && distance < EPOCHS / 2;
}
