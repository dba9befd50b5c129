/** What the page knows of one response. */

/** `state` is waiting, speaking, stalled or stopped; `itemId` and `stream` are the server's. */
export const newResponse = (id) => ({
  id,
  itemId: null,
  stream: null,
  text: "", // sent so far
  isWhole: false, // all of it was sent
  state: "waiting",
  soundSent: false, // all sound is in the player
  soundEnded: false, // and was heard
  serverDone: false,
  startedAt: performance.now(),
  heard: false, // the first sample was
  abort: new AbortController(), // of sending text
});

export const isActive = ({ state }) => state !== "stopped";
