"""MOSS-TTS-Local-Transformer on request."""

from __future__ import annotations

from dataclasses import dataclass

from engine.models.capabilities import LANGUAGES, Capabilities
from engine.models.local_prompt import Fields, LocalPrompt, frames_of, join_transcript
from engine.models.utterances import SpeechRequest, Utterance, no_codes

CAPABILITIES = Capabilities(
    title="MOSS-TTS-Local-Transformer",
    default_name="moss-tts-local",
    takes=frozenset(
        {"ref_audio", "ref_text", "language", "instructions", "quality", "duration_seconds"}
    ),
    languages=tuple(LANGUAGES.values()),
)


@dataclass(frozen=True, slots=True)
class LocalSpeech:
    """A reference whose transcript is known is gone on from, any other one is imitated."""

    prompt: LocalPrompt
    capabilities: Capabilities = CAPABILITIES

    @property
    def n_vq(self) -> int:
        """Codebooks of its frames."""
        return self.prompt.grids.n_vq

    def utterances(self, request: SpeechRequest) -> list[Utterance]:
        """See `SpeechModel`."""
        text, fields = request.text_for("local"), self._fields(request)
        reference, prior = request.references.get(1), no_codes(self.n_vq)
        if reference is None:
            grid = self.prompt.plain(text, fields)
        elif reference.transcript:
            text, prior = join_transcript(reference.transcript, text), reference.codes
            grid = self.prompt.continuation(text, prior, fields)
        else:
            grid = self.prompt.clone(text, [reference.codes], fields)
        tokens = len(self.prompt.tokenizer.encode(text))
        return [Utterance(grid=grid, decoder_codes=prior, text_tokens=tokens)]

    def _fields(self, request: SpeechRequest) -> Fields:
        duration_s = request.duration_s
        return Fields(
            instruction=request.instructions,
            tokens=None if duration_s is None else frames_of(duration_s, request.frame_ms),
            quality=request.quality,
            language=request.language,
        )
