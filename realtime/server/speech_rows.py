"""All that one request says: its utterances one after the other, with the silences between them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from types import TracebackType

import numpy as np

from engine.api import Done, Frames, ModelInfo, Sampling, TextSampling
from engine.models.utterances import Utterance, no_codes
from realtime.server.bridge import EngineBridge
from realtime.server.speech_row import SpeechRow

_SEED_STEP = 0x9E3779B97F4A7C15  # sends neighbours far apart: utterances share no random numbers


class SpeechRows:
    """Opens the first row on entry, and on exit cancels the one that has not ended.

    `text_tokens` and `reference_frames` are what the model was given.
    """

    def __init__(
        self,
        bridge: EngineBridge,
        model: ModelInfo,
        utterances: Sequence[Utterance],
        *,
        reference_frames: int,
        seed: int,
        sampling: Sampling,
        text_sampling: TextSampling | None,
        max_frames: int,
        name: str = "",
    ) -> None:
        self.text_tokens = sum(utterance.text_tokens for utterance in utterances)
        self.reference_frames = reference_frames
        self._channels, self._rate_hz = model.channels, model.rate_hz
        self._pauses_s = [utterance.pause_s for utterance in utterances]
        self._rows = [
            SpeechRow(
                bridge,
                model,
                utterance=utterance,
                seed=(seed + number * _SEED_STEP) % 2**63,
                sampling=sampling,
                text_sampling=text_sampling,
                max_frames=min(utterance.max_frames or max_frames, max_frames),
                name=name,
            )
            for number, utterance in enumerate(utterances)
        ]
        self._nothing = no_codes(model.n_vq)
        self._at = 0  # the row that speaks
        self._samples = 0  # handed out
        self._began_samples = 0  # where the row's own begin
        self._frames = 0  # of the rows that have ended
        self._reason = "completed"

    def __enter__(self) -> SpeechRows:
        self._rows[0].__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._rows[self._at].__exit__(kind, error, traceback)

    async def next_sound(self) -> Frames | Done:
        """Wait for the next sound, or the end of what ended well; it counts the frames of all rows.

        Raises `ApiError` for every other end.
        """
        while True:
            event = await self._rows[self._at].next_sound()
            if isinstance(event, Done):
                self._frames += event.counts.frames
                if event.reason != "completed":
                    self._reason = event.reason
                if self._at == len(self._rows) - 1:
                    counts = dataclasses.replace(event.counts, frames=self._frames)
                    return dataclasses.replace(event, reason=self._reason, counts=counts)
                event = self._silence(event.row)
                self._go_on(len(event.pcm))
            self._samples += len(event.pcm)
            if len(event.pcm):
                return event

    def played(self, samples: int) -> None:
        """Say how many samples the client has taken so far."""
        if samples > self._began_samples:
            self._rows[self._at].played(samples - self._began_samples)

    def _silence(self, row: int) -> Frames:
        samples = round(self._pauses_s[self._at] * self._rate_hz)
        pcm = np.zeros((samples, self._channels), np.float32)
        return Frames(row, 0, self._nothing, np.zeros(0, np.bool_), pcm, discontinuity=False)

    def _go_on(self, pause_samples: int) -> None:
        """The next row begins, after the pause."""
        self._at += 1
        self._began_samples = self._samples + pause_samples
        self._rows[self._at].__enter__()
