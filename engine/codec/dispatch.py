"""When frames become sound: chunks of each row, decoded together with those of others.

A chunk is 1, then 4, then 15 frames (configurable). It leaves early when the listener would run dry
before the next frame, and at the end. A row's decoder state goes on from the dialogue's earlier
replies: a slot that already holds them is reused or set back, else they are decoded again.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections import defaultdict, deque
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from engine.api import Frames, U16Codes
from engine.codec.stream import DecoderStream

REPLAY_FRAMES = 750
"""Earlier frames (60 s) that are decoded again at most; beyond that the sound may jump."""


@dataclasses.dataclass(slots=True)
class _Voice:
    """One row's place in the codec."""

    slot: int
    replay: deque[U16Codes]  # chunks [n, n_vq] that are still to be decoded, unheard
    discontinuity: bool
    pending: list[NDArray[np.int64]] = dataclasses.field(default_factory=list)  # each [n_vq]
    first_frame: int = 0  # of `pending`
    cuts: list[int] = dataclasses.field(default_factory=list)  # frames that go on from nothing
    chunk: int = 0
    ending: bool = False
    parked: bool = False
    started_ns: int = 0
    samples: int = 0


class CodecStage:
    """Decoder slots, and the frames of each row that wait for sound."""

    def __init__(
        self,
        stream: DecoderStream,
        slots: int,
        *,
        codebook_size: int,
        rate_hz: int,
        ramp_frames: Sequence[int],
        deterministic: bool,
    ) -> None:
        self.slots = slots
        self._stream = stream
        self._codebook_size = codebook_size
        self._rate_hz = rate_hz
        self._ramp_frames = tuple(ramp_frames)
        self._deterministic = deterministic
        self._voices: dict[int, _Voice] = {}
        self._idle = list(range(slots))  # least recently used first
        self._decoded: dict[int, list[U16Codes]] = {slot: [] for slot in range(slots)}
        self.call_ms = 0.0

    @property
    def used(self) -> int:
        """Slots that a row holds."""
        return len(self._voices)

    def open(self, row: int, earlier: U16Codes, made: Sequence[U16Codes] = ()) -> None:
        """Give a row a decoder state that has decoded `earlier` u16 [F, n_vq], or will have.

        `made` are the chunks of the row's response that its listener has already. There must be an
        idle slot: the engine has at least as many slots as rows.
        """
        known = self._audible(np.concatenate([earlier, *made]))
        slot = self._find(known)
        discontinuity = False
        replay: list[U16Codes] = []
        if slot is None:
            slot = self._idle[0]
            self._stream.reset(slot)
            self._decoded[slot] = []
            discontinuity = not self._deterministic and len(known) > REPLAY_FRAMES
            if self._deterministic:
                replay = [*self._chunks(self._audible(earlier)), *map(self._audible, made)]
            else:
                replay = self._chunks(known[-REPLAY_FRAMES:])
        else:
            self._stream.rewind(slot, len(known))
            self._decoded[slot] = [known]
        self._idle.remove(slot)
        voice = self._voices[row] = _Voice(slot, deque(filter(len, replay)), discontinuity)
        voice.first_frame = sum(map(len, made))
        # Whoever lost the engine wants sound soon, so the ramp begins anew.
        voice.chunk = len(made) if self._deterministic else 0

    def _audible(self, codes: U16Codes) -> U16Codes:
        return codes[(codes < self._codebook_size).all(1)]

    def _chunks(self, codes: U16Codes) -> list[U16Codes]:
        most = self._ramp_frames[-1]
        return [codes[start : start + most] for start in range(0, len(codes), most)]

    def close(self, row: int) -> None:
        """The row leaves; its decoder state stays for the dialogue's next reply."""
        self._idle.append(self._voices.pop(row).slot)

    def push(self, row: int, codes: NDArray[np.int64]) -> None:
        """Take the row's next frame, i64 [n_vq]; each has as many codes as the row's first."""
        self._voices[row].pending.append(codes)

    def cut(self, row: int) -> None:
        """The row's next frame does not go on from those before it; what is pending leaves."""
        voice = self._voices[row]
        voice.cuts.append(voice.first_frame + len(voice.pending))

    def finish(self, row: int) -> None:
        """No frame follows: what is pending leaves."""
        self._voices[row].ending = True

    def go_on(self, row: int) -> None:
        """More frames follow after all: another segment."""
        self._voices[row].ending = False

    def park(self, row: int, parked: bool) -> None:
        """The row's next frame is not due: what is pending leaves."""
        self._voices[row].parked = parked

    def warm_up(self, max_rows: int) -> None:
        """Run every chunk size at every batch size, in the scratch slot."""
        for frames in self._ramp_frames:
            rows = 1
            while rows <= max_rows:
                codes = torch.zeros(rows, frames, self._stream.n_codebooks, dtype=torch.int64)
                self._stream.step([self._stream.scratch_slot] * rows, codes)
                rows *= 2

    def left(self, row: int) -> int:
        """Frames of the row that have left as sound."""
        return self._voices[row].first_frame

    def is_drained(self, row: int) -> bool:
        """Nothing of the row is pending."""
        return not self._voices[row].pending

    def run(self, next_frame_ms: float) -> list[Frames]:
        """Decode the chunks that are due, in one call for each size in frames and codebooks.

        `next_frame_ms` is how long the engine takes until a row has its next frame.
        """
        groups: dict[tuple[int, ...], list[_Chunk]] = defaultdict(list)
        events = []
        for row, voice in self._voices.items():
            chunk = self._next_chunk(row, voice, next_frame_ms)
            if chunk is not None and len(chunk.audible):
                groups[chunk.audible.shape].append(chunk)
            elif chunk is not None:
                events.append(chunk.event(np.zeros((0, self._stream.channels), np.float32)))
        started = time.monotonic()
        for chunks in groups.values():
            events += self._decode(chunks)
        if groups:
            self.call_ms = (time.monotonic() - started) * 1e3
        return events

    def _next_chunk(self, row: int, voice: _Voice, next_frame_ms: float) -> _Chunk | None:
        if voice.replay:
            return _Chunk(row, voice, voice.replay.popleft().astype(np.int64), None, 0)
        wanted = self._ramp_frames[min(voice.chunk, len(self._ramp_frames) - 1)]
        ready = self._joined_frames(voice)
        if not ready or (ready < wanted and not self._leaves_early(voice, next_frame_ms)):
            return None
        wanted = min(wanted, ready)
        frames = np.stack(voice.pending[:wanted])
        del voice.pending[:wanted]
        first = voice.first_frame
        voice.first_frame += len(frames)
        voice.chunk += 1
        valid = ((frames >= 0) & (frames < self._codebook_size)).all(1)
        return _Chunk(row, voice, frames[valid], frames, first, valid)

    def _joined_frames(self, voice: _Voice) -> int:
        """Pending frames up to the next cut; at a cut the decoder starts over."""
        if voice.pending and voice.first_frame in voice.cuts:
            voice.cuts.remove(voice.first_frame)
            self._stream.reset(voice.slot)
            self._decoded[voice.slot] = []
        before = [cut - voice.first_frame for cut in voice.cuts]
        return min([len(voice.pending), *before])

    def least_lead_ms(self) -> float:
        """How long the listener who runs dry first still has sound; infinite if none will.

        A parked row's listener is not waited for.
        """
        waiting = [v for v in self._voices.values() if v.samples and not v.parked]
        return min((self._lead_ms(voice) for voice in waiting), default=math.inf)

    def _lead_ms(self, voice: _Voice) -> float:
        played_ms = (time.monotonic_ns() - voice.started_ns) / 1e6
        return 1e3 * voice.samples / self._rate_hz - played_ms

    def _leaves_early(self, voice: _Voice, next_frame_ms: float) -> bool:
        if voice.ending or voice.cuts:
            return True
        if self._deterministic:
            return False
        return voice.parked or self._lead_ms(voice) < 2 * next_frame_ms

    def _decode(self, chunks: list[_Chunk]) -> list[Frames]:
        slots = [chunk.voice.slot for chunk in chunks]
        codes = np.stack([chunk.audible for chunk in chunks])
        if self._deterministic:
            # CPU matrix products give a row the same bits in any batch of at least four rows.
            pad = max(0, 4 - len(chunks))
            slots = slots + [self._stream.scratch_slot] * pad
            codes = np.concatenate([codes, np.zeros((pad, *codes.shape[1:]), np.int64)])
        sound = self._stream.step(slots, torch.from_numpy(codes)).cpu().numpy()
        events = []
        for chunk, pcm in zip(chunks, sound, strict=False):
            self._decoded[chunk.voice.slot].append(chunk.audible.astype(np.uint16))
            if chunk.frames is not None:
                events.append(chunk.event(pcm))
        return events

    def _find(self, earlier: U16Codes) -> int | None:
        """The idle slot that has decoded `earlier` and can be set back to its end.

        Where every bit counts there is none: its chunks may have been others than a replay's.
        """
        if not len(earlier) or self._deterministic:
            return None
        for slot in reversed(self._idle):
            decoded = self._decoded[slot]
            if self._stream.frames(slot) < len(earlier):
                continue
            joined = np.concatenate(decoded)
            if np.array_equal(joined[: len(earlier)], earlier) and self._stream.can_rewind(
                slot, len(earlier)
            ):
                return slot
        return None


@dataclasses.dataclass(slots=True)
class _Chunk:
    row: int
    voice: _Voice
    audible: NDArray[np.int64]  # [n, n_vq] what is decoded
    frames: NDArray[np.int64] | None  # [m, n_vq] with those outside the codebook; None: replay
    first_frame: int
    valid: NDArray[np.bool_] = dataclasses.field(default_factory=lambda: np.zeros(0, np.bool_))

    def event(self, pcm: NDArray[np.float32]) -> Frames:
        assert self.frames is not None
        voice = self.voice
        if not voice.samples:
            voice.started_ns = time.monotonic_ns()
        voice.samples += len(pcm)
        discontinuity, voice.discontinuity = voice.discontinuity, False
        codes = self.frames.astype(np.uint16)
        return Frames(self.row, self.first_frame, codes, self.valid, pcm, discontinuity)
