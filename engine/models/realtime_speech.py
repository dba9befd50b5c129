"""MOSS-TTS-Realtime on request: one reply, with or without a dialogue before it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.models.capabilities import Capabilities
from engine.models.realtime_prompt import RealtimePrompt, Turn
from engine.models.utterances import PastTurn, SpeechRequest, Utterance, no_codes

CAPABILITIES = Capabilities(
    title="MOSS-TTS-Realtime",
    default_name="moss-tts-realtime",
    takes=frozenset({"ref_audio", "history"}),
    hints={
        "instructions": "it takes its manner from the dialogue in `history`",
        "ref_text": "it learns a voice from the sound alone",
    },
    has_default_voice=True,
    holds_dialogues=True,
)


@dataclass(frozen=True, slots=True)
class RealtimeSpeech:
    """The text is fed to the row, so that it needs no place in the prompt."""

    prompt: RealtimePrompt
    capabilities: Capabilities = CAPABILITIES

    @property
    def n_vq(self) -> int:
        """Codebooks of its frames."""
        return self.prompt.n_vq

    def utterances(self, request: SpeechRequest) -> list[Utterance]:
        """See `SpeechModel`."""
        reference = request.references.get(1)
        ids = tuple(self.prompt.tokenizer.encode(request.text_for("realtime")))
        turns = [self._turn(number, turn) for number, turn in enumerate(request.history)]
        heard = [turn.codes for turn in turns if turn.role == "assistant"]
        return [
            Utterance(
                grid=self.prompt.dialogue(turns, reference.codes if reference else None),
                decoder_codes=np.concatenate([no_codes(self.n_vq), *heard]),
                text_tokens=len(ids) + sum(len(turn.text_ids) for turn in turns),
                fed_ids=ids,
            )
        ]

    def _turn(self, number: int, turn: PastTurn) -> Turn:
        codes = no_codes(self.n_vq) if turn.codes is None else turn.codes
        if codes.size and codes.max() >= self.prompt.audio_pad:
            raise ValueError(
                f"code {codes.max()} of turn {number} is outside 0..{self.prompt.audio_pad - 1}"
            )
        if codes.ndim != 2 or codes.shape[1] != self.n_vq:
            raise ValueError(
                f"codes of turn {number} are {list(codes.shape)}, expected [frames, {self.n_vq}]"
            )
        return Turn(turn.role, tuple(self.prompt.tokenizer.encode(turn.text)), codes)
