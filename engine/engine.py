"""The engine: commands in, batched ticks, events out."""

from __future__ import annotations

import contextlib
import logging
import math
import queue
import time
from collections.abc import Callable, Iterator, Sequence

from engine import api
from engine.cache.kv import join
from engine.cache.working_set import BLOCK
from engine.config import EngineConfig
from engine.out_of_memory import is_out_of_memory
from engine.parts import Codecs, load_parts
from engine.refusal import unfit
from engine.replies import Drawn
from engine.row import PARK_REASONS, Row, State

log = logging.getLogger(__name__)

HEARTBEAT_S = 0.2
RETRY_AFTER_MS = 1000
MOST_ENCODE_WAITS = 4
"""Ticks: fewer than the frames of a user's piece, as a tick takes no longer than a frame."""


class Engine:
    """Owns the model, its caches and the codec's state; `engine.loop` ticks it.

    `submit` may be called from any thread and never blocks. `publish` is called from the thread
    that ticks and must not block either: the engine waits for no one. `codecs` are loaded already.
    """

    def __init__(
        self,
        config: EngineConfig,
        publish: Callable[[api.Event], None],
        codecs: Codecs | None = None,
    ) -> None:
        self.parts = load_parts(config, Codecs() if codecs is None else codecs)
        self._config = config
        self._publish = publish
        self._inbox: queue.SimpleQueue[api.Command] = queue.SimpleQueue()
        self._stop_at: float | None = None
        self._progress = 0
        self._frames_total = 0
        self._tick_ms = 0.0
        self._heartbeat_at = 0.0
        self._encode_waits = 0  # ticks since the last chance to encode

    def submit(self, command: api.Command) -> None:
        """Queue a command; commands are applied in order, between ticks."""
        self._inbox.put(command)

    def warm_up(self) -> None:
        """Run every shape once, unless the settings say not to."""
        if self._config.warm_up:
            self.parts.runner.warm_up(self._config.max_rows)
            self.parts.codec.warm_up(self._config.max_rows)

    @property
    def is_stopped(self) -> bool:
        """`Stop` came, and what ran has ended or had its time."""
        if self._stop_at is None:
            return False
        return not self.parts.scheduler.rows or time.monotonic() >= self._stop_at

    def tick(self) -> bool:
        """One round; False when there was nothing to do.

        Commands, then at most one prefill budget, one frame of every row that can speak, and the
        sound that is due.
        """
        started = time.monotonic()
        self._apply_commands()
        for row in self.parts.scheduler.admit():
            self._place(row)
        self._advance_texts()
        prefilled = self._prefill()
        spoken = self._speak()
        sounded = self._sound()
        busy = prefilled or spoken or sounded
        encoded = self._encode(busy)
        self._progress += 1
        self._heartbeat()
        busy = busy or encoded
        if busy:
            self._tick_ms = (time.monotonic() - started) * 1e3
        return busy

    def release(self) -> None:
        """Cut what still runs and give everything back."""
        for row in list(self.parts.scheduler.rows.values()):
            self._done(row, "cancelled")
        self.parts.warm.clear()
        self.parts.cache.unpin_all()
        self.parts.encoder.clear()

    # commands

    def _apply_commands(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                self._apply(self._inbox.get_nowait())

    def _apply(self, command: api.Command) -> None:
        match command:
            case api.Open():
                self._open(command)
            case api.Warm():
                self._add_warm(command)
            case api.Encode():
                self.parts.encoder.add(command)
            case api.CancelEncode():
                self.parts.encoder.cancel(command.stream)
            case api.Stop():
                self._stop_at = time.monotonic() + command.drain_s
            case _:
                row = self.parts.scheduler.rows.get(command.row)
                if row is not None:
                    self._apply_to_row(row, command)

    def _apply_to_row(self, row: Row, command: api.Command) -> None:
        match command:
            case api.Feed():
                self._feed(row, command.ids)
            case api.Flush():
                row.text.flush(command.next_prefix)
            case api.End():
                row.text.end()
            case api.Played():
                row.heard_samples = max(row.heard_samples, command.samples)
            case api.Cancel():
                self._done(row, "cancelled")

    def _open(self, command: api.Open) -> None:
        parts = self.parts
        refusal = unfit(command, parts.info, parts.layout)
        if self._stop_at is not None:
            refusal = api.Refused(command.row, "draining", "the engine is stopping", 0)
        elif command.row in parts.scheduler.rows:
            refusal = api.Refused(command.row, "duplicate_row", f"row {command.row} is open", 0)
        if refusal is None and not parts.scheduler.enqueue(Row(command, parts.layout)):
            refusal = api.Refused(command.row, "overloaded", "all rows are taken", RETRY_AFTER_MS)
        if refusal is not None:
            self._publish(refusal)

    def _feed(self, row: Row, ids: tuple[int, ...]) -> None:
        size = self.parts.layout.text_vocabulary
        if all(0 <= text_id < size for text_id in ids):
            row.text.feed(ids)
        else:
            self._done(row, "failed", f"text ids are 0..{size - 1}; fed {min(ids)}..{max(ids)}")

    def _add_warm(self, command: api.Warm) -> None:
        problem = self.parts.layout.problem_with(command.grid)
        if len(command.grid) > self.parts.info.max_grid_rows:
            problem = f"the context has {len(command.grid)} grid rows"
        if problem is None:
            self.parts.warm.add(command)
        else:
            self._publish(api.Failed("warm", command.key, problem))

    # a row's life

    def _place(self, row: Row) -> None:
        opened, parts = row.opened, self.parts
        # The last grid row of a prompt that is spoken at once gives the hidden state to draw from.
        known = opened.grid[:-1] if row.text.is_speaking else opened.grid
        row.block_keys = parts.cache.restore(row.slot, known)
        row.reused_rows = len(row.block_keys) * BLOCK
        row.advance(opened.grid[: row.reused_rows])
        row.pending = opened.grid[row.reused_rows :]
        row.prefilled_to = row.position
        parts.runner.open_row(row.slot, opened)
        made = opened.generated[opened.segment_frame :]
        if len(made) and not self._config.deterministic:
            row.text.go_on_after(made)
            row.replay(len(made))
            parts.runner.recall(row.slot, made)
        parts.codec.open(row.id, opened.decoder_codes, row.made_chunks())

    def _advance_texts(self) -> None:
        """Let rows enter their next segment, and queue the text that may enter the grid."""
        for row in self.parts.scheduler.placed:
            if row.state is State.FINISHING or row.text.is_speaking:
                continue
            if row.text.is_finished:
                self._done(row, row.stop_reason or "completed")
                continue
            if row.text.is_empty:
                self._end_segment(row, row.text.close())
                continue
            if row.text.advance():
                row.begin_segment()
                self.parts.runner.begin_segment(row.slot)
                if self._config.deterministic:
                    # So a row that goes on after a restart, with these segments in its context,
                    # has the same bits.
                    row.pending = join([row.take_back_steps(), row.pending])
            opening = row.text.opening_rows()
            if opening is not None:
                self._resume(row, State.PREFILLING)
                row.pending = join([row.pending, opening])

    def _prefill(self) -> bool:
        budget, parts = self._config.prefill_budget_grid_rows, self.parts
        row = parts.scheduler.next_prefill()
        if row is None:
            return parts.warm.run(budget)
        while row is not None and budget > 0:
            piece, row.pending = row.pending[:budget], row.pending[budget:]
            with self._failing([row]):
                parts.runner.prefill(row.slot, row.position, piece)
                self._prefilled(row, piece)
            budget -= len(piece)
            row = parts.scheduler.next_prefill()
        return True

    def _prefilled(self, row: Row, piece: api.I32Grid) -> None:
        row.advance(piece)
        row.prefilled_rows += len(piece)
        if len(row.pending):
            return
        row.prefilled_to = row.position
        row.block_keys = self.parts.cache.keep(row.slot, join(row.grid), row.block_keys)
        if row.text.is_speaking and row.segment_frames:
            row.enter(State.SPEAKING)  # the last frame that was made before is fed next
        else:
            row.wants_draw = row.text.is_speaking

    def _speak(self) -> bool:
        scheduler, runner = self.parts.scheduler, self.parts.runner
        stepping = scheduler.choose(self._room_frames, self._park)
        drawing = stepping + [row for row in scheduler.placed if row.wants_draw]
        with self._failing(drawing):
            for row in stepping:
                self._resume(row, State.SPEAKING)
            if stepping:
                runner.step(stepping)
            if drawing:
                for row, value in zip(drawing, runner.draw(drawing), strict=True):
                    self._take(row, self.parts.layout.drawn(value))
        return bool(drawing)

    def _take(self, row: Row, drawn: Drawn) -> None:
        info = self.parts.info
        row.wants_draw = False
        row.enter(State.SPEAKING)
        if row.is_replaying:
            row.replay(1)
            return
        if drawn.ends:
            self._end_segment(row, row.text.close())
            return
        if drawn.frame is not None:
            row.codes = drawn.frame
            row.frames += 1
            self._frames_total += 1
            self.parts.codec.push(row.id, drawn.frame[: row.n_vq])
        if drawn.cuts:
            self.parts.codec.cut(row.id)
        if row.frames >= row.opened.max_frames or row.text.over_budget(
            row.new_frames, info.frame_ms
        ):
            row.stop_reason = "max_audio"
        elif row.position >= info.max_grid_rows:
            row.stop_reason = "context"
        if row.stop_reason:
            row.text.stop()
            self._end_segment(row, "budget")

    def _end_segment(self, row: Row, reason: api.SegmentReason) -> None:
        row.segment_reason = reason
        row.enter(State.FINISHING)
        self.parts.codec.finish(row.id)

    def _sound(self) -> bool:
        placed = self.parts.scheduler.placed
        with self._failing(placed):
            sounds = self.parts.codec.run(self._tick_ms)
            for frames in sounds:
                self._publish(frames)
            finished = [row for row in placed if row.state is State.FINISHING]
            for row in finished:
                if self.parts.codec.is_drained(row.id):
                    self._settle(row)
            return bool(sounds or finished)
        return True

    def _settle(self, row: Row) -> None:
        """All sound of the segment has left."""
        text = row.text
        self._publish(
            api.Segment(row.id, text.index, row.frames, text.consumed, row.segment_reason)
        )
        self.parts.codec.go_on(row.id)
        row.enter(State.SPEAKING)

    def _park(self, row: Row, state: State) -> None:
        if row.state is not state:
            self._resume(row, state)
            self.parts.codec.park(row.id, True)
            self._publish(api.Parked(row.id, PARK_REASONS[state]))

    def _resume(self, row: Row, state: State) -> None:
        """Enter a state, leaving the pause that the row may be in."""
        if row.state in PARK_REASONS:
            self.parts.codec.park(row.id, False)
            self._publish(api.Resumed(row.id, PARK_REASONS[row.state]))
        row.enter(state)

    def _room_frames(self, row: Row) -> float:
        """Frames that may be made before the listener is `max_ahead_ms` behind."""
        if row.is_replaying:
            return math.inf
        info = self.parts.info
        # With a fixed chunk schedule a paused row's pending frames stay, so only those that have
        # left count: otherwise row and listener could wait for each other.
        made = self.parts.codec.left(row.id) if self._config.deterministic else row.frames
        ahead = made - row.heard_samples / info.samples_per_frame
        return row.opened.max_ahead_ms / info.frame_ms - ahead

    def _done(self, row: Row, reason: str, error: str = "") -> None:
        parts = self.parts
        parts.scheduler.remove(row)
        if row.slot:
            if not self._config.deterministic and reason != "failed":
                # Kept for the next turn. Decode and prefill may round differently, so where every
                # bit counts only prefilled blocks are shared.
                row.block_keys = parts.cache.keep(row.slot, join(row.grid), row.block_keys)
            parts.cache.release(row.block_keys)
            parts.runner.close(row.slot)
            parts.codec.close(row.id)
        row.enter(State.DONE)
        self._publish(api.Done(row.id, reason, error, row.counts()))

    @contextlib.contextmanager
    def _failing(self, rows: Sequence[Row]) -> Iterator[None]:
        """An error in here ends these rows, and no others, unless memory has run out.

        Then the process must end: what is left of it cannot be trusted, and the next one goes on.
        """
        try:
            yield
        except Exception as error:
            if is_out_of_memory(error):
                raise
            log.exception("rows=%s failed", [row.id for row in rows])
            for row in rows:
                if row.id in self.parts.scheduler.rows:
                    self._done(row, "failed", f"{type(error).__name__}: {error}")

    # the rest

    def _encode(self, busy: bool) -> bool:
        """Encode a piece, unless sound is due before it would be through.

        An engine that never has time for it does it all the same now and then: often enough to
        keep up with people who speak.
        """
        encoder, codec = self.parts.encoder, self.parts.codec
        self._encode_waits += 1
        is_due = codec.least_lead_ms() < self._tick_ms + encoder.call_ms
        if busy and is_due and self._encode_waits < MOST_ENCODE_WAITS:
            return False
        self._encode_waits = 0
        events = encoder.run()
        for event in events:
            self._publish(event)
        return bool(events)

    def _heartbeat(self) -> None:
        now = time.monotonic()
        if now < self._heartbeat_at + HEARTBEAT_S:
            return
        self._heartbeat_at = now
        parts = self.parts
        parts.cache.expire_pins()
        states = [row.state for row in parts.scheduler.placed]
        parked = sum(state in PARK_REASONS for state in states)
        self._publish(
            api.Stats(
                progress=self._progress,
                rows_open=len(parts.scheduler.rows),
                rows_running=len(states) - parked,
                rows_queued=parts.scheduler.queued,
                rows_parked=parked,
                blocks_used=parts.cache.pool.used,
                blocks_total=parts.cache.pool.total,
                codec_slots_used=parts.codec.used,
                codec_slots_total=parts.codec.slots,
                frames_total=self._frames_total,
                step_ms=self._tick_ms,
                chunk_ms=parts.codec.call_ms,
            )
        )
