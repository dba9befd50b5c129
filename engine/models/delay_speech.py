"""The delay-pattern models on request: MOSS-TTS, TTSD, SoundEffect and VoiceGenerator.

Their checkpoints look alike; `engine.models.variants` says which one it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from engine.models.capabilities import LANGUAGES, Capabilities
from engine.models.delay_prompt import DelayPrompt, Fields, duration_tokens
from engine.models.local_prompt import join_transcript
from engine.models.utterances import Reference, SpeechRequest, Utterance, no_codes, said
from engine.text.dialogue import merge_turns, speakers, with_transcripts
from engine.text.released import RULES

_LANGUAGES = tuple(LANGUAGES.values())

CAPABILITIES: Mapping[str, Capabilities] = MappingProxyType(
    {
        "tts": Capabilities(
            title="MOSS-TTS",
            default_name="moss-tts",
            takes=frozenset(
                {"ref_audio", "ref_text", "language", "instructions", "quality", "duration_seconds"}
            ),
            languages=_LANGUAGES,
        ),
        "ttsd": Capabilities(
            title="MOSS-TTSD",
            default_name="moss-ttsd",
            takes=frozenset({"ref_audio", "ref_text", "speakers", "language", "quality"}),
            hints={"duration_seconds": "a dialogue is as long as its text"},
            max_speakers=5,
            languages=_LANGUAGES,
            max_input_chars=80_000,
            max_audio_s=3_600.0,
            example=MappingProxyType({"input": "[S1]Hello! How are you? [S2]Very well, thanks."}),
        ),
        "sound_effect": Capabilities(
            title="MOSS-SoundEffect",
            default_name="moss-soundeffect",
            takes=frozenset({"ambient_sound", "sound_event", "quality", "duration_seconds"}),
            hints={
                "ref_audio": "it makes sounds, not voices: describe the sound in `input`",
                "ref_text": "it makes sounds, not voices: describe the sound in `input`",
                "speakers": "it makes sounds, not voices: describe the sound in `input`",
                "instructions": "describe the sound in `input`",
            },
            speaks="ambient_sound",
            example=MappingProxyType({"input": "Rain on a tin roof, far thunder."}),
        ),
        "voice_generator": Capabilities(
            title="MOSS-VoiceGenerator",
            default_name="moss-voicegenerator",
            takes=frozenset({"instructions", "language", "quality"}),
            requires=frozenset({"instructions"}),
            hints={
                "instructions": 'describe the voice, as "a calm old man with a low voice"',
                "ref_audio": "it makes a voice from its description in `instructions`",
                "ref_text": "it makes a voice from its description in `instructions`",
            },
            languages=_LANGUAGES,
            example=MappingProxyType(
                {
                    "input": "Hello! How are you today?",
                    "instructions": "A warm, calm woman in her thirties.",
                }
            ),
        ),
    }
)


@dataclass(frozen=True, slots=True)
class DelaySpeech:
    """One prompt a request; frames of the reply that the prompt already holds go to the codec."""

    prompt: DelayPrompt
    variant: str

    @property
    def capabilities(self) -> Capabilities:
        """What it can do with a request."""
        return CAPABILITIES[self.variant]

    @property
    def n_vq(self) -> int:
        """Codebooks of its frames."""
        return self.prompt.form.n_vq

    def utterances(self, request: SpeechRequest) -> list[Utterance]:
        """See `SpeechModel`."""
        prefix = _prefix(request.references, self.n_vq)
        fields = self._fields(request, has_prefix=bool(len(prefix)))
        if len(prefix):
            grid = self.prompt.continuation(fields, prefix)
        else:
            grid = self.prompt.generation(fields)
        text = fields.ambient_sound if fields.text is None else fields.text
        tokens = len(self.prompt.tokenizer.encode(text or ""))
        return [Utterance(grid=grid, decoder_codes=prefix, text_tokens=tokens)]

    def _fields(self, request: SpeechRequest, *, has_prefix: bool) -> Fields:
        is_sound = self.capabilities.speaks == "ambient_sound"
        tokens = None
        if request.duration_s is not None:
            tokens = duration_tokens(request.duration_s, request.frame_ms)
        return Fields(
            text=None if is_sound else self._text(request, has_prefix),
            references=_clips(request.references),
            instruction=self._description(request),
            tokens=tokens,
            quality=request.quality,
            sound_event=request.sound_event,
            ambient_sound=said(request.text) if is_sound else None,
            language=request.language,
        )

    def _text(self, request: SpeechRequest, has_prefix: bool) -> str:
        text = request.text_for(self.variant)
        transcripts = {n: one.transcript for n, one in request.references.items()}
        if self.capabilities.max_speakers == 1:
            return join_transcript(transcripts[1], text) if has_prefix else text
        text = merge_turns(text if speakers(text) else f"[S1]{text}")
        return with_transcripts(text, transcripts) if has_prefix else text

    def _description(self, request: SpeechRequest) -> str | None:
        if request.instructions is None or request.normalizer == "off":
            return request.instructions
        rules = RULES.get(self.variant)
        return rules.description(request.instructions) if rules else request.instructions


def _clips(references: Mapping[int, Reference]) -> list[NDArray[np.uint16] | None] | None:
    """One entry for each speaker up to the last one with a clip."""
    if not references:
        return None
    clips = {number: reference.codes for number, reference in references.items()}
    return [clips.get(number) for number in range(1, max(clips) + 1)]


def _prefix(references: Mapping[int, Reference], n_vq: int) -> NDArray[np.uint16]:
    """The clips in the order of their speakers, as the beginning of the reply: u16 [F, n_vq].

    Empty where no transcript says what is spoken in them. Each is encoded by itself: the codec
    only looks back, so that the joints differ from those of one recording for its window at most.
    """
    ordered = [references[number] for number in sorted(references)]
    if not any(reference.transcript for reference in ordered):
        return no_codes(n_vq)
    return np.concatenate([no_codes(n_vq), *(reference.codes for reference in ordered)])
