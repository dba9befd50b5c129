/** Text as a language model would send it. */

const DELTA_CHARS = 2048;

/**
 * Yield the text in pieces: word by word with the space after it at `wordsPerSecond`, or all at
 * once where that is 0. Ends early when `signal` is aborted.
 */
export async function* pieces(text, wordsPerSecond, signal) {
  const started = performance.now();
  let count = 0;
  for (const piece of wordsPerSecond ? words(text) : slices(text)) {
    const due = wordsPerSecond ? started + (1000 * count++) / wordsPerSecond : started;
    const wait = due - performance.now();
    if (wait > 0) await new Promise((resolve) => setTimeout(resolve, wait));
    if (signal.aborted) return;
    yield piece;
  }
}

/** Words with the white space that follows; a script without spaces goes character by character. */
function words(text) {
  const unspaced = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}]/u;
  return text
    .match(/\s*\S+\s*|\s+/gu)
    .flatMap((word) => (unspaced.test(word) ? Array.from(word) : slices(word)));
}

function slices(text) {
  const parts = [];
  for (let at = 0; at < text.length; at += DELTA_CHARS) parts.push(text.slice(at, at + DELTA_CHARS));
  return parts;
}
