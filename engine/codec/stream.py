"""Decode and encode in pieces: many streams, each with its own slot, several in one call.

A slot is exactly as far as the frames it has consumed; going back is lowering that number.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.codec.attention import Attention, Ring, Semantics
from engine.codec.codec import AudioCodec
from engine.codec.transformer import Stack


class SlotPool:
    """The state of one stack of stages for `slots` streams and one scratch slot.

    Each ring holds window + `max_chunk_frames` + `rollback_frames`: after any chunk, the window of
    any of the last `rollback_frames` frames is still there.
    """

    def __init__(
        self,
        codec: AudioCodec,
        stack: Stack,
        slots: int,
        *,
        max_chunk_frames: int,
        rollback_frames: int,
        semantics: Semantics,
    ) -> None:
        self.scratch_slot = slots
        self.rings = [
            Ring(
                config,
                slots + 1,
                max_chunk_frames + rollback_frames,
                semantics=semantics,
                device=codec.device,
                dtype=codec.dtype,
            )
            for config in stack.transformers
        ]
        self._max_chunk_frames = max_chunk_frames
        self._kept_frames = max_chunk_frames + rollback_frames
        self._device = codec.device
        self._consumed = [0] * (slots + 1)
        self._oldest = [0] * (slots + 1)  # first frame boundary whose window no chunk overwrote

    def frames(self, slot: int) -> int:
        """Frames that the slot's stream has consumed."""
        return self._consumed[self._checked(slot)]

    def reset(self, slot: int) -> None:
        """Make the slot as good as new."""
        self._consumed[self._checked(slot)] = self._oldest[slot] = 0
        for ring in self.rings:
            ring.clear_before_start(slot)

    def can_rewind(self, slot: int, frame: int) -> bool:
        """Whether the slot's state after its first `frame` frames is still in the ring."""
        return self._oldest[self._checked(slot)] <= frame <= self._consumed[slot]

    def rewind(self, slot: int, frame: int) -> None:
        """Go back to where `frame` frames were consumed; what follows replaces what followed."""
        if not self.can_rewind(slot, frame):
            raise ValueError(
                f"cannot rewind slot {slot} from frame {self._consumed[slot]} to {frame}: "
                f"what is kept begins at frame {self._oldest[slot]}"
            )
        self._consumed[slot] = frame

    def attentions(self, slots: Sequence[int], new_frames: int) -> list[Attention]:
        """One attention for each stage, for a call that brings `new_frames` frames to `slots`."""
        live = [self._checked(slot) for slot in slots if slot != self.scratch_slot]
        if len(set(live)) < len(live):
            raise ValueError(f"a slot occurs twice in one call: {list(slots)}")
        if not 1 <= new_frames <= self._max_chunk_frames:
            raise ValueError(f"a chunk is 1 to {self._max_chunk_frames} frames, not {new_frames}")
        consumed = [self._consumed[slot] for slot in slots]
        index, frames = torch.tensor([list(slots), consumed], device=self._device)
        return [ring.at(index, frames, new_frames) for ring in self.rings]

    def advance(self, slots: Sequence[int], new_frames: int) -> None:
        """Count frames as consumed. The scratch slot stays at its beginning."""
        for slot in slots:
            if slot != self.scratch_slot:
                self._consumed[slot] += new_frames
                oldest = self._consumed[slot] - self._kept_frames
                self._oldest[slot] = max(self._oldest[slot], oldest)

    def _checked(self, slot: int) -> int:
        if not 0 <= slot < self.scratch_slot:
            raise ValueError(f"slot {slot} is not one of 0..{self.scratch_slot - 1}")
        return slot


class DecoderStream:
    """Decodes chunks of frames of several streams, each continuing in its slot.

    With `exact` semantics the sound equals the whole sequence's for any cutting into chunks.
    `rollback_frames` is how far back a slot can always be set.
    """

    def __init__(
        self,
        codec: AudioCodec,
        slots: int,
        *,
        n_codebooks: int | None = None,
        max_chunk_frames: int = 15,
        rollback_frames: int = 50,
        semantics: Semantics = "exact",
    ) -> None:
        self.n_codebooks = codec.codebooks(n_codebooks)
        self.pool = SlotPool(
            codec,
            codec.decoder,
            slots,
            max_chunk_frames=max_chunk_frames,
            rollback_frames=rollback_frames,
            semantics=semantics,
        )
        self._codec = codec

    @property
    def scratch_slot(self) -> int:
        """A slot for the padding rows of a batch: may repeat in a call, never advances."""
        return self.pool.scratch_slot

    @property
    def channels(self) -> int:
        """Channels of the sound."""
        return self._codec.config.channels

    @torch.inference_mode()
    def step(self, slots: Sequence[int], codes: Tensor) -> Tensor:
        """Decode the next n frames of B streams.

        `slots` are B distinct slots (the scratch slot may repeat); `codes` i64 [B, n, K] of the
        first K <= n_codebooks codebooks, each 0..codebook_size - 1. Returns f32
        [B, n * samples_per_frame, channels]. Raises ValueError for any other codes or slots; on an
        error no slot has advanced.
        """
        held = codes.ndim == 3 and 1 <= codes.shape[2] <= self.n_codebooks
        if not held or len(codes) != len(slots):
            raise ValueError(
                f"codes are {list(codes.shape)}, expected [{len(slots)}, n, 1..{self.n_codebooks}]"
            )
        frames = codes.shape[1]
        attentions = self.pool.attentions(slots, frames)
        stream = self._codec.decoder(self._codec.latents(codes), attentions)
        self.pool.advance(slots, frames)
        return self._codec.split_channels(stream)

    def frames(self, slot: int) -> int:
        """Frames that the slot's stream has decoded."""
        return self.pool.frames(slot)

    def reset(self, slot: int) -> None:
        """Begin a new stream in the slot."""
        self.pool.reset(slot)

    def can_rewind(self, slot: int, frame: int) -> bool:
        """Whether `rewind` to `frame` would work."""
        return self.pool.can_rewind(slot, frame)

    def rewind(self, slot: int, frame: int) -> None:
        """Go back to just after the first `frame` frames, sample-exactly.

        Raises ValueError when that state has left the ring or was never there.
        """
        self.pool.rewind(slot, frame)


class EncoderStream:
    """Encodes pieces of sound of several streams, each continuing in its slot."""

    def __init__(
        self,
        codec: AudioCodec,
        slots: int,
        *,
        n_codebooks: int | None = None,
        max_chunk_frames: int = 15,
        semantics: Semantics = "exact",
    ) -> None:
        self.n_codebooks = codec.codebooks(n_codebooks)
        self.pool = SlotPool(
            codec,
            codec.encoder,
            slots,
            max_chunk_frames=max_chunk_frames,
            rollback_frames=0,
            semantics=semantics,
        )
        self._codec = codec

    @property
    def scratch_slot(self) -> int:
        """A slot for the padding rows of a batch: may repeat in a call, never advances."""
        return self.pool.scratch_slot

    @property
    def channels(self) -> int:
        """Channels of the sound."""
        return self._codec.config.channels

    @torch.inference_mode()
    def step(self, slots: Sequence[int], wav: Tensor) -> Tensor:
        """Encode the next n frames of B streams.

        `slots` are B distinct slots (the scratch slot may repeat); `wav` f32
        [B, channels, n * samples_per_frame]. Returns codes i64 [B, n, n_codebooks].
        """
        config = self._codec.config
        frames, rest = divmod(wav.shape[-1], config.samples_per_frame)
        if wav.ndim != 3 or wav.shape[:2] != (len(slots), config.channels) or rest:
            raise ValueError(
                f"wav is {list(wav.shape)}, expected [{len(slots)}, {config.channels}, "
                f"a multiple of {config.samples_per_frame}]"
            )
        attentions = self.pool.attentions(slots, frames)
        stream = self._codec.interleave(wav.to(self._codec.device))
        latents = self._codec.encoder(stream, attentions).float()
        codes = self._codec.quantizer.encode(latents, self.n_codebooks)
        self.pool.advance(slots, frames)
        return codes

    def frames(self, slot: int) -> int:
        """Frames that the slot's stream has encoded."""
        return self.pool.frames(slot)

    def reset(self, slot: int) -> None:
        """Begin a new stream in the slot."""
        self.pool.reset(slot)
