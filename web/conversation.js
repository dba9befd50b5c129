/** One dialogue with the server: what is said, what is heard of it, and the items it leaves. */
import { Connection } from "./net.js";
import { pieces } from "./pacing.js";
import { isActive, newResponse } from "./response.js";
import { LAST_OF_RESPONSE, epochIsBefore, nextEpoch, parseFrame, pcm16ToMono } from "./frames.js";

const REPORT_EVERY_MS = 250;
const MAX_AHEAD_MS = 4000;

export class Conversation {
  #connection;
  #player;
  #handlers;
  #voice = null;
  #audio = null; // the sound format in effect; null while there is no session
  #epoch = 0;
  #items = [];
  #responses = new Map(); // by id, those not finished here
  #count = 0;
  #stopping = null;
  #reported = { state: "idle", at: 0 };

  /**
   * `handlers`: `changed()` when items or responses did, `connection({state, reason, retryInMs})`,
   * `notice(text, isError)`, `firstAudio(ms)`, `silence(ms)`, `done(message)`, `roundTrip(ms)`.
   */
  constructor(base, access, player, handlers) {
    this.#player = player;
    this.#handlers = handlers;
    this.#connection = new Connection(base, access, {
      open: () => this.#greet(),
      message: (message) => this.#receive(message),
      audio: (buffer) => this.#receiveAudio(buffer),
      roundTrip: handlers.roundTrip,
      lost: (loss) => this.#lost(loss),
    });
  }

  /** The server's items, oldest first. */
  get items() {
    return this.#items;
  }

  /** Responses that are being made, played or stopped: `{id, itemId, text, isWhole, state}`. */
  get responses() {
    return [...this.#responses.values()];
  }

  get isSpeaking() {
    return this.responses.some(isActive);
  }

  get isOpen() {
    return this.#audio !== null;
  }

  connect() {
    this.#handlers.connection({ state: "connecting" });
    this.#connection.open();
  }

  /** Speak `text`, sent word by word at `wordsPerSecond`, or at once where that is 0. */
  async say(text, wordsPerSecond) {
    await this.#stopping; // or the interrupt on its way would take this response too
    const response = newResponse(`r${++this.#count}`);
    this.#responses.set(response.id, response);
    this.#send("response.start", { response_id: response.id });
    for await (const delta of pieces(text, wordsPerSecond, response.abort.signal)) {
      response.text += delta;
      this.#send("response.text", { response_id: response.id, delta });
      this.#handlers.changed();
    }
    if (response.abort.signal.aborted) return;
    response.isWhole = true;
    this.#send("response.end", { response_id: response.id });
    this.#handlers.changed();
  }

  /** Silence now, then tell the server how far the listener got. */
  stop() {
    if (!this.isSpeaking) return;
    this.#stopping = this.#interrupt(performance.now());
  }

  /** Add what the user said; replies are spoken in its light. */
  addUser(text) {
    this.#send("item.create", { item: { role: "user", text } });
  }

  /** Choose the voice, from the next response on. */
  setVoice(name) {
    this.#voice = name;
    if (this.isOpen) this.#send("session.update", { voice: name });
  }

  /** What the jitter buffer says, many times a second. */
  playerStatus(status) {
    const response = this.#byStream(status.stream);
    if (!response) return;
    const now = performance.now();
    const playing = status.state === "playing" ? "playing" : "stalled";
    if (playing === this.#reported.state && now - this.#reported.at < REPORT_EVERY_MS) return;
    this.#report(response, playing, this.#player.heardMs(status.playedMs), status);
  }

  /** An event of the jitter buffer. */
  playerEvent({ type, stream, playedMs }) {
    const response = this.#byStream(stream);
    if (!response) return;
    if (type === "ended") {
      setTimeout(() => this.#heardToTheEnd(response, playedMs), this.#player.latencyMs);
      return;
    }
    if (type === "started" && !response.heard) {
      response.heard = true;
      const since = performance.now() - response.startedAt;
      this.#handlers.firstAudio(since + this.#player.latencyMs);
    }
    response.state = type === "started" ? "speaking" : "stalled";
    this.#handlers.changed();
  }

  #send(type, fields) {
    return this.#connection.send(type, fields);
  }

  #report(response, state, playedMs, { bufferedMs = 0, underruns } = {}) {
    this.#reported = { state, at: performance.now() };
    this.#send("playback", {
      response_id: response.id,
      played_ms: playedMs,
      buffered_ms: bufferedMs,
      underruns,
      state,
    });
  }

  #heardToTheEnd(response, playedMs) {
    if (!isActive(response)) return;
    this.#report(response, "done", playedMs);
    response.soundEnded = true;
    for (const next of this.responses) next.startedAt = performance.now(); // its turn comes now
    this.#forgetFinished(response);
  }

  async #interrupt(pressedAt) {
    const responses = this.responses.filter(isActive);
    this.#epoch = nextEpoch(this.#epoch);
    for (const response of responses) {
      response.abort.abort();
      response.state = "stopped";
    }
    this.#handlers.changed();
    const { stream, heardMs, silentInMs } = await this.#player.stop();
    this.#handlers.silence(performance.now() - pressedAt + silentInMs);
    const heard = responses.find((one) => one.stream !== null && one.stream === stream);
    const played = { response_id: (heard ?? responses[0]).id, ms: heard ? heardMs : 0 };
    this.#send("interrupt", { played, reason: "user" });
    for (const response of responses) this.#forgetFinished(response);
    this.#stopping = null;
  }

  #greet() {
    this.#send("session.start", {
      ...(this.#voice && { voice: this.#voice }),
      audio: { codec: "pcm_s16le" },
      flow: { mode: "ack", max_ahead_ms: MAX_AHEAD_MS },
      // A lost socket ends its session: the next one goes on from the text we still have.
      history: this.#items.map(({ role, text }) => ({ role, text })).filter(({ text }) => text.trim()),
    });
  }

  #receive(message) {
    switch (message.type) {
      case "session.started":
        this.#started(message);
        break;
      case "session.updated":
        this.#send("history.get");
        break;
      case "history":
        this.#items = message.items;
        break;
      case "item.created":
        this.#put(message.item);
        this.#send("history.get"); // an item may join before the end
        break;
      case "item.truncated":
        this.#truncate(message);
        break;
      case "item.deleted":
        this.#items = this.#items.filter(({ id }) => id !== message.item_id);
        break;
      case "warning":
        this.#handlers.notice(message.message, false);
        break;
      case "session.going_away":
        this.#handlers.notice("The server is about to stop.", false);
        break;
      case "error":
        this.#refused(message);
        break;
      default:
        if (message.response_id) this.#receiveAbout(this.#responses.get(message.response_id), message);
    }
    this.#handlers.changed();
  }

  #receiveAbout(response, message) {
    if (message.type === "response.done") this.#handlers.done(message);
    if (!response) return; // a queued one the server had refused
    if (message.type === "response.started") {
      response.stream = message.stream;
      response.itemId = message.item_id;
    } else if (message.type === "response.stalled" && message.why === "text") {
      this.#player.excuse(response.stream);
    } else if (message.type === "response.done") {
      this.#done(response, message);
    }
  }

  #started(message) {
    this.#audio = message.audio;
    this.#epoch = message.epoch;
    this.#connection.settled();
    this.#handlers.connection({ state: "open", model: message.model, voice: message.voice });
    this.#send("history.get");
  }

  #done(response, message) {
    response.serverDone = true;
    response.abort.abort();
    if (message.status === "failed" || message.status === "incomplete") {
      const why = message.error?.message ?? message.reason ?? "no reason given";
      this.#handlers.notice(`The reply ended early: ${why}`, true);
    }
    if (isActive(response) && !response.soundSent) this.#endSound(response);
    this.#forgetFinished(response);
  }

  #refused({ message, response_id: id }) {
    this.#handlers.notice(message, true);
    const response = this.#responses.get(id);
    if (response && response.itemId === null) {
      response.abort.abort();
      this.#responses.delete(id);
    }
  }

  /** All sound of a response is in the player; without any, there is nothing to wait for. */
  #endSound(response) {
    response.soundSent = true;
    if (response.stream === null) response.soundEnded = true;
    else this.#player.end(response.stream);
  }

  #forgetFinished(response) {
    if (response.serverDone && (response.soundEnded || !isActive(response))) {
      this.#responses.delete(response.id);
    }
    this.#handlers.changed();
  }

  #receiveAudio(buffer) {
    const frame = parseFrame(buffer);
    if (epochIsBefore(frame.epoch, this.#epoch)) return; // of a response that was stopped
    const response = this.#byStream(frame.stream);
    if (!response) return;
    const samples = pcm16ToMono(frame.payload, this.#audio.channels);
    const last = (frame.flags & LAST_OF_RESPONSE) !== 0;
    this.#player.push(response.stream, this.#audio.sample_rate, samples, last);
    if (last) this.#endSound(response);
  }

  #byStream(stream) {
    if (stream === null) return undefined;
    return this.responses.find((one) => one.stream === stream && isActive(one));
  }

  #put(item) {
    const at = this.#items.findIndex(({ id }) => id === item.id);
    if (at >= 0) this.#items[at] = item;
    else this.#items.push(item);
  }

  #truncate({ item_id: id, audio_end_ms, text, exact }) {
    const item = this.#items.find((one) => one.id === id);
    if (!item) return;
    const whole = item.generated_text ?? item.text;
    Object.assign(item, { text, exact, audio_ms: audio_end_ms, generated_text: whole });
  }

  #lost({ reason, retryInMs, needsAccess }) {
    this.#audio = null;
    if (this.isSpeaking) this.#player.stop();
    for (const response of this.responses) response.abort.abort();
    this.#responses.clear();
    const state = needsAccess ? "locked" : retryInMs === null ? "closed" : "lost";
    this.#handlers.connection({ state, reason, retryInMs });
    this.#handlers.changed();
  }
}
