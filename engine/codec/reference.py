"""Encode sound to codes as it arrives: reference voices and what the user said."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch

from engine.api import Encode, Encoded, F32Samples, Failed, U16Codes
from engine.codec.stream import EncoderStream

PIECE_FRAMES = 12
"""Frames of one encode call: below a tick's worth of work."""


@dataclasses.dataclass(slots=True)
class _Stream:
    slot: int | None = None
    pcm: list[F32Samples] = dataclasses.field(default_factory=list)
    ended: bool = False
    whole: bool = False  # the loudness rule needs the whole clip first
    first_frame: int = 0


class EncodeStage:
    """Streams that are being encoded, one piece of one stream at a time, oldest first."""

    def __init__(
        self, stream: EncoderStream, slots: int, *, samples_per_frame: int, n_vq: int
    ) -> None:
        self._stream = stream
        self._n_vq = n_vq
        self._samples_per_frame = samples_per_frame
        self._free = list(range(slots))
        self._streams: dict[int, _Stream] = {}

    @property
    def open(self) -> int:
        """Streams that are not finished."""
        return len(self._streams)

    def add(self, command: Encode) -> None:
        """Take more sound of a stream; the first sound opens it."""
        stream = self._streams.setdefault(command.stream, _Stream())
        stream.pcm.append(command.pcm)
        stream.ended = command.end
        stream.whole = command.loudness == "normalise"

    def cancel(self, stream_id: int) -> None:
        """Forget a stream."""
        stream = self._streams.pop(stream_id, None)
        if stream is not None and stream.slot is not None:
            self._free.append(stream.slot)

    def clear(self) -> None:
        """Forget all streams."""
        for stream_id in list(self._streams):
            self.cancel(stream_id)

    def run(self) -> Encoded | Failed | None:
        """Encode one piece."""
        for stream_id, stream in self._streams.items():
            if stream.whole and not stream.ended:
                continue
            if stream.slot is None and not self._take_slot(stream):
                continue
            pcm = np.concatenate(stream.pcm)
            frames = min(PIECE_FRAMES, len(pcm) // self._samples_per_frame)
            if frames == PIECE_FRAMES or stream.ended:
                return self._encode(stream_id, stream, pcm, frames)
        return None

    def _take_slot(self, stream: _Stream) -> bool:
        if not self._free:
            return False
        stream.slot = self._free.pop()
        self._stream.reset(stream.slot)
        if stream.whole:
            stream.pcm = [normalise_loudness(np.concatenate(stream.pcm))]
            stream.whole = False
        return True

    def _encode(
        self, stream_id: int, stream: _Stream, pcm: F32Samples, frames: int
    ) -> Encoded | Failed:
        samples = frames * self._samples_per_frame
        stream.pcm = [pcm[samples:]]
        done = stream.ended and len(pcm) - samples < self._samples_per_frame
        first, stream.first_frame = stream.first_frame, stream.first_frame + frames
        try:
            codes = self._codes(stream, pcm[:samples])
        except Exception as error:  # a broken clip must not stop the engine
            self.cancel(stream_id)
            return Failed("encode", str(stream_id), f"{type(error).__name__}: {error}")
        if done:
            self.cancel(stream_id)
        return Encoded(stream_id, first, codes, done)

    def _codes(self, stream: _Stream, pcm: F32Samples) -> U16Codes:
        if not len(pcm):
            return np.zeros((0, self._n_vq), np.uint16)
        assert stream.slot is not None
        codes = self._stream.step([stream.slot], torch.tensor(pcm)[None, None])
        return codes[0].cpu().numpy().astype(np.uint16)


def normalise_loudness(pcm: F32Samples) -> F32Samples:
    """Bring a clip to -20 dB mean power, by 3 dB at most (the rule of the released processor)."""
    power_db = 10 * np.log10(np.mean(np.square(pcm, dtype=np.float64)) + 1e-9)
    gain_db = np.clip(-20.0 - power_db, -3.0, 3.0)
    return (pcm * 10 ** (gain_db / 20)).astype(np.float32)
