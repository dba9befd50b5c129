"""MOSS-TTS-Nano on request: a long text is spoken in chunks, each a row of its own."""

from __future__ import annotations

from dataclasses import dataclass

from engine.api import I32Grid, U16Codes
from engine.models.capabilities import Capabilities
from engine.models.nano_prompt import NanoPrompt
from engine.models.utterances import SpeechRequest, Utterance, no_codes

CHUNK_S = 30.0
"""Longest sound of one chunk, as in the model's applications."""

CAPABILITIES = Capabilities(
    title="MOSS-TTS-Nano",
    default_name="moss-tts-nano",
    takes=frozenset({"ref_audio", "ref_text", "n_vq"}),
    hints={
        "language": "it takes the language from the text",
        "duration_seconds": "it takes the length from the text",
    },
    has_default_voice=True,
    normalizers=("released", "wetext", "off"),
    loudness="keep",
)


@dataclass(frozen=True, slots=True)
class NanoSpeech:
    """Only with a reference to share are there chunks: else each would have a voice of its own."""

    prompt: NanoPrompt
    capabilities: Capabilities = CAPABILITIES

    @property
    def n_vq(self) -> int:
        """Codebooks of its frames."""
        return self.prompt.grids.n_vq

    def utterances(self, request: SpeechRequest) -> list[Utterance]:
        """See `SpeechModel`."""
        text, n_vq = request.text_for("nano"), request.n_vq
        nothing = no_codes(n_vq or self.n_vq)
        reference = request.references.get(1)
        if reference is None:
            grid = self.prompt.plain(text)
            return [self._whole(text, grid, nothing, n_vq)]
        codes = reference.codes[:, :n_vq]
        if reference.transcript:
            grid = self.prompt.continuation(reference.transcript, text, codes)
            return [self._whole(reference.transcript + text, grid, codes, n_vq)]
        return [
            Utterance(
                grid=self.prompt.clone(chunk.text, codes),
                decoder_codes=nothing,
                text_tokens=self._tokens(chunk.text),
                pause_s=chunk.pause_s,
                n_vq=n_vq,
                max_frames=int(CHUNK_S * 1000 / request.frame_ms),
            )
            for chunk in self.prompt.chunks(text)
        ]

    def _whole(self, text: str, grid: I32Grid, prior: U16Codes, n_vq: int | None) -> Utterance:
        tokens = self._tokens(text)
        return Utterance(grid=grid, decoder_codes=prior, text_tokens=tokens, n_vq=n_vq)

    def _tokens(self, text: str) -> int:
        return len(self.prompt.tokenizer.encode(text))
