"""Encode sound to codes as it arrives: reference voices and what users say.

Several streams are encoded in one call, in pieces of a few frames. A user's piece is short, so that
little is left to do when the user stops speaking.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Sequence

import numpy as np
import torch

from engine.api import Encode, Encoded, F32Samples, Failed, U16Codes
from engine.codec.stream import EncoderStream
from engine.out_of_memory import is_out_of_memory

log = logging.getLogger(__name__)

USER_PIECE_FRAMES = 6
CLIP_PIECE_FRAMES = 12
RESERVED_SLOTS = 1
"""Only for streams that are complete, which give their slot back soon: a user may never finish."""


@dataclasses.dataclass(slots=True)
class _Stream:
    id: int
    whole: bool  # the loudness rule needs the whole clip first
    piece_frames: int
    slot: int | None = None
    pcm: list[F32Samples] = dataclasses.field(default_factory=list)  # each [samples, channels]
    samples: int = 0  # in `pcm`
    ended: bool = False
    first_frame: int = 0

    def take(self, samples: int) -> F32Samples:
        """Remove and return the first samples."""
        pcm = np.concatenate(self.pcm)
        self.pcm, self.samples = [pcm[samples:]], len(pcm) - samples
        return pcm[:samples]


class EncodeStage:
    """Streams that are being encoded, oldest first; each holds one of `slots` while it is."""

    def __init__(
        self,
        stream: EncoderStream,
        slots: int,
        *,
        samples_per_frame: int,
        n_vq: int,
        deterministic: bool = False,
    ) -> None:
        self.call_ms = 0.0
        self._encoder = stream
        self._n_vq = n_vq
        self._samples_per_frame = samples_per_frame
        self._least_batch = 4 if deterministic else 1  # see `CodecStage`
        self._free = list(range(slots))
        self._streams: dict[int, _Stream] = {}
        self._refused: list[Encoded | Failed] = []

    @property
    def open(self) -> int:
        """Streams that are not finished."""
        return len(self._streams)

    def add(self, command: Encode) -> None:
        """Take more sound of a stream; the first sound opens it.

        Sound of other channels than the codec's fails the stream in the next `run`; mono never
        does, it goes to every channel.
        """
        stream = self._streams.get(command.stream)
        if stream is None:
            whole = command.loudness == "normalise"
            piece = CLIP_PIECE_FRAMES if whole else USER_PIECE_FRAMES
            stream = self._streams[command.stream] = _Stream(command.stream, whole, piece)
        try:
            stream.pcm.append(_of_channels(command.pcm, self._encoder.channels))
        except ValueError as error:
            self._refused.append(self._failed(stream, error))
            return
        stream.samples += len(command.pcm)
        stream.ended = command.end

    def cancel(self, stream_id: int) -> None:
        """Forget a stream."""
        stream = self._streams.pop(stream_id, None)
        if stream is not None and stream.slot is not None:
            self._free.append(stream.slot)

    def clear(self) -> None:
        """Forget all streams."""
        for stream_id in list(self._streams):
            self.cancel(stream_id)

    def run(self) -> list[Encoded | Failed]:
        """Encode the next piece of the stream that came first, and of those that have as much."""
        batch, frames = self._next_batch()
        started = time.monotonic()
        events = self._encode(batch, frames)
        if events:
            self.call_ms = (time.monotonic() - started) * 1e3
        refused, self._refused = self._refused, []
        return refused + events

    def _next_batch(self) -> tuple[list[_Stream], int]:
        batch: list[_Stream] = []
        frames = 0
        for stream in self._streams.values():
            ready = self._ready_frames(stream)
            if ready is None or (batch and ready != frames) or not self._has_slot(stream):
                continue
            batch.append(stream)
            frames = ready
        return batch, frames

    def _ready_frames(self, stream: _Stream) -> int | None:
        """Frames of the stream's next piece; None while too little of it has come."""
        if stream.whole and not stream.ended:
            return None
        frames = min(stream.piece_frames, stream.samples // self._samples_per_frame)
        return frames if stream.ended or frames == stream.piece_frames else None

    def _has_slot(self, stream: _Stream) -> bool:
        if stream.slot is not None:
            return True
        if len(self._free) <= (0 if stream.ended else RESERVED_SLOTS):
            return False
        stream.slot = self._free.pop()
        self._encoder.reset(stream.slot)
        if stream.whole:
            stream.pcm = [normalise_loudness(np.concatenate(stream.pcm))]
            stream.whole = False
        return True

    def _encode(self, batch: Sequence[_Stream], frames: int) -> list[Encoded | Failed]:
        samples = frames * self._samples_per_frame
        return self._encode_pieces(batch, [stream.take(samples) for stream in batch], frames)

    def _encode_pieces(
        self, batch: Sequence[_Stream], pieces: Sequence[F32Samples], frames: int
    ) -> list[Encoded | Failed]:
        """Encode a piece of each stream; if that fails, each by itself, as only one may be bad."""
        try:
            codes = self._codes(batch, pieces, frames)
        except Exception as error:  # what is broken must not stop the engine
            if is_out_of_memory(error):
                raise
            if len(batch) > 1:
                alone = [([s], [piece]) for s, piece in zip(batch, pieces, strict=True)]
                return [event for one in alone for event in self._encode_pieces(*one, frames)]
            log.exception("encode_stream=%d failed", batch[0].id)
            return [self._failed(batch[0], error)]
        return [self._encoded(stream, new) for stream, new in zip(batch, codes, strict=True)]

    def _codes(
        self, batch: Sequence[_Stream], pieces: Sequence[F32Samples], frames: int
    ) -> Sequence[U16Codes]:
        if not frames:
            return [np.zeros((0, self._n_vq), np.uint16) for _ in batch]
        slots = [stream.slot for stream in batch if stream.slot is not None]
        padding = max(0, self._least_batch - len(batch))
        wav = np.stack([*pieces, *[np.zeros_like(pieces[0])] * padding])
        slots += [self._encoder.scratch_slot] * padding
        codes = self._encoder.step(slots, torch.from_numpy(wav).transpose(1, 2))
        return list(codes.cpu().numpy().astype(np.uint16)[: len(batch)])

    def _encoded(self, stream: _Stream, codes: U16Codes) -> Encoded:
        first, stream.first_frame = stream.first_frame, stream.first_frame + len(codes)
        done = stream.ended and stream.samples < self._samples_per_frame
        if done:
            self.cancel(stream.id)
        return Encoded(stream.id, first, codes, done)

    def _failed(self, stream: _Stream, error: Exception) -> Failed:
        self.cancel(stream.id)
        return Failed("encode", str(stream.id), f"{type(error).__name__}: {error}")


def _of_channels(pcm: F32Samples, channels: int) -> F32Samples:
    """`pcm` as [samples, channels]; mono is put on every channel. Raises ValueError."""
    if pcm.ndim == 1:
        return np.repeat(pcm[:, None], channels, axis=1)
    if pcm.ndim != 2 or pcm.shape[1] != channels:
        raise ValueError(
            f"pcm is {list(pcm.shape)}, expected mono [samples] or [samples, {channels}]"
        )
    return pcm


def normalise_loudness(pcm: F32Samples) -> F32Samples:
    """Bring a clip to -20 dB mean power, by 3 dB at most (the rule of the released processors).

    `pcm` is [samples] or [samples, channels]; one gain for all channels keeps their balance.
    """
    if not len(pcm):
        return pcm
    power_db = 10 * np.log10(np.mean(np.square(pcm, dtype=np.float64)) + 1e-9)
    gain_db = np.clip(-20.0 - power_db, -3.0, 3.0)
    return (pcm * 10 ** (gain_db / 20)).astype(np.float32)
