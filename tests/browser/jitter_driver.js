/** Drives a JitterBuffer with scripted arrivals; runs inside the page. */

/**
 * `script`: `{rate, steps: [{op, ...}]}`. Ops: `push {stream, first, count}` (samples of value
 * first + 1, first + 2...), `end {stream}`, `excuse {stream}`, `flush {fadeMs}` and `pull {blocks}`
 * of 128 samples. Gives everything put out as base64, the events and a status after each step.
 */
export async function drive(moduleUrl, { rate, steps }) {
  const { JitterBuffer } = await import(moduleUrl);
  const events = [];
  const out = [];
  const buffer = new JitterBuffer(rate, (event) => events.push({ ...event, at: out.length }));
  const statuses = [];
  for (const step of steps) {
    const answer = apply(buffer, step, out);
    statuses.push({ ...buffer.status(), at: out.length, answer });
  }
  return { out: base64(new Float32Array(out)), events, statuses };
}

function base64(samples) {
  let text = "";
  for (const byte of new Uint8Array(samples.buffer)) text += String.fromCharCode(byte);
  return btoa(text);
}

function apply(buffer, step, out) {
  switch (step.op) {
    case "push":
      buffer.push(step.stream, Float32Array.from({ length: step.count }, (_, i) => step.first + i + 1));
      return null;
    case "end":
      buffer.end(step.stream);
      return null;
    case "excuse":
      buffer.excuse(step.stream);
      return null;
    case "flush":
      return buffer.flush(step.fadeMs);
    default: {
      const block = new Float32Array(128);
      for (let i = 0; i < step.blocks; i++) {
        buffer.pull(block);
        out.push(...block);
      }
      return null;
    }
  }
}
