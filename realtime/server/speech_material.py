"""What a request for speech brings along: voices to speak with, and the dialogue so far."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from engine.api import U16Codes
from engine.models.utterances import PastTurn, Reference
from realtime.server.aliases import Aliases
from realtime.server.errors import ApiError
from realtime.server.ref_audio import References
from realtime.server.served_models import ServedModel
from realtime.server.speech_request import Clip, SpeechBody, TurnPart, refuse
from realtime.server.voice import Voice

INLINE_VOICE = "ref_audio"


@dataclasses.dataclass(frozen=True, slots=True)
class Speaker:
    """A speaker whose voice was found: it is stored, or comes with the request."""

    clip: Clip
    voice: Voice | None
    transcript: str

    @property
    def name(self) -> str:
        """What the answer calls the voice."""
        return self.voice.name if self.voice else INLINE_VOICE


async def find_speakers(body: SpeechBody, model: ServedModel, aliases: Aliases) -> list[Speaker]:
    """Everyone who speaks with a voice of the server or of the request. Raises `ApiError` 400."""
    clips, capabilities = body.clips(), model.speech.capabilities
    if not clips and capabilities.has_default_voice:
        clips = [Clip(1, "voice", None, None, "")]
    if clips:
        await model.complete_voices()
    found = []
    for clip in clips:
        voice = None if clip.url is not None else aliases.voice(clip.voice, model.voices)
        if clip.url is not None or voice is not None:
            # One voice is gone on from only if the request says so; a dialogue needs everyone's.
            stored = voice.ref_text if voice and capabilities.max_speakers > 1 else ""
            found.append(Speaker(clip, voice, clip.transcript or stored))
    return _with_all_transcripts_or_none(found)


def _with_all_transcripts_or_none(speakers: list[Speaker]) -> list[Speaker]:
    silent = [speaker for speaker in speakers if not speaker.transcript]
    if silent and any(speaker.clip.transcript for speaker in speakers):
        clip = silent[0].clip
        message = f"`{clip.field}` has no `ref_text`; give it for all speakers, or for none"
        raise refuse(clip.field.partition("[")[0], "missing_field", message)
    if silent:
        return [dataclasses.replace(speaker, transcript="") for speaker in speakers]
    return speakers


async def encode_speakers(
    speakers: Sequence[Speaker], model: ServedModel, references: References
) -> dict[int, Reference]:
    """The references by the number of their speaker. Raises `ApiError`."""
    encoded = {}
    for speaker in speakers:
        clip = speaker.clip
        if speaker.voice is not None:
            codes = speaker.voice.codes
        else:
            assert clip.url is not None
            codes = await references.codes(clip.url, model, clip.field)
        encoded[clip.speaker] = Reference(codes, speaker.transcript)
    return encoded


async def encode_history(
    body: SpeechBody, model: ServedModel, references: References
) -> tuple[PastTurn, ...]:
    """The turns before the reply. Raises `ApiError`."""
    turns = []
    for place, part in enumerate(body.history or ()):
        field, codes = f"history[{place}]", None
        if part.audio is not None:
            codes = await references.codes(part.audio, model, field, "turn")
        elif part.audio_codes is not None:
            codes = _codes(part.audio_codes, field, model.speech.n_vq)
        turns.append(PastTurn(part.role, part.text, codes))
    return tuple(turns)


def check_history(history: Sequence[TurnPart]) -> None:
    """Raises `ApiError` 400 for a turn that says nothing or has its sound twice."""
    for place, part in enumerate(history):
        if part.audio is not None and part.audio_codes is not None:
            message = f"`history[{place}]` has `audio` and `audio_codes`; send one"
            raise refuse("history", "conflict", message)
        if not part.text.strip() and part.audio is None and part.audio_codes is None:
            message = f"`history[{place}]` has neither `text` nor `audio`"
            raise refuse("history", "invalid_field", message)


def _codes(rows: list[list[int]], field: str, n_vq: int) -> U16Codes:
    for frame, row in enumerate(rows):
        if len(row) != n_vq:
            raise _bad_codes(f"`{field}`: frame {frame} has {len(row)} codes, not {n_vq}")
        if not all(0 <= code <= 0xFFFF for code in row):
            raise _bad_codes(f"`{field}`: frame {frame} has a code outside the codebook: {row}")
    return np.array(rows, np.uint16).reshape(len(rows), n_vq)


def _bad_codes(message: str) -> ApiError:
    return refuse("history", "invalid_field", message)
