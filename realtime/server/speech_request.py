"""The body of `POST /v1/audio/speech`: what it may say, and what each mistake is told.

What holds for every model is checked here, what a model takes in `speech_check`.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from engine.api import ModelInfo, Sampling, TextSampling
from engine.models.capabilities import Normalizer
from engine.text.normalise.normaliser import normalised
from realtime.server.audio import AudioFormat, available_formats
from realtime.server.errors import ApiError

SAMPLE_RATES_HZ = (8_000, 12_000, 16_000, 24_000, 48_000)
"""What every format can hold, beside the model's own rate."""
VOICE_FIELDS = frozenset(
    ("voice", "speaker", "ref_audio", "ref_text", "ref_audio_2", "references", "speakers")
)
"""All that says who speaks: where one is given anew, none of the others is meant any more."""
MAX_TURNS = 64


def _join_surrogates(value: Any) -> Any:
    """Join surrogate pairs that JSON escapes split; a lone one becomes U+FFFD."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return value


def _voice_name(value: Any) -> Any:
    """Take `{"id": ...}`, as OpenAI's SDK writes a custom voice, for the id alone."""
    name = value["id"] if isinstance(value, dict) and value.keys() == {"id"} else value
    if name is None or isinstance(name, str):
        return name
    raise PydanticCustomError("voice_type", 'must be a name or {"id": "..."}')


VoiceName = Annotated[str | None, BeforeValidator(_voice_name)]
Text = Annotated[str, BeforeValidator(_join_surrogates)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class ReferencePart(_Part):
    """vLLM-Omni's way to write `ref_audio` and `ref_text`."""

    audio_path: str
    text: Text | None = None


class SpeakerPart(_Part):
    """Who says the turns of one tag: `voice` "default" leaves it to the model."""

    id: str
    voice: VoiceName = None
    ref_audio: str | None = None
    ref_text: Text | None = None


class TurnPart(_Part):
    """A turn of the dialogue before this reply, its sound as a URL or as rows of codes."""

    role: Literal["user", "assistant"]
    text: Text = ""
    audio: str | None = None
    audio_codes: list[list[int]] | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Clip:
    """Whose voice a speaker has: that of a recording, or a stored one by its name.

    `field` is where the request says so.
    """

    speaker: int
    field: str
    url: str | None
    voice: str | None
    transcript: str


class SpeechBody(_Part):
    """Fields as OpenAI defines them, then ours. None is the same as absent."""

    input: Text | None = None
    model: str | None = None
    voice: VoiceName = None
    instructions: Text | None = None
    response_format: str | None = None
    speed: float | None = None
    stream_format: Literal["audio", "sse"] | None = None

    speaker: VoiceName = None
    ref_audio: str | None = None
    ref_text: Text | None = None
    ref_audio_2: str | None = None
    references: list[ReferencePart] | None = Field(None, min_length=1, max_length=1)
    speakers: list[SpeakerPart] | None = Field(None, min_length=1)
    language: str | None = None
    ambient_sound: Text | None = None
    sound_event: Text | None = None
    quality: Text | None = None
    duration_seconds: float | None = None
    history: list[TurnPart] | None = Field(None, max_length=MAX_TURNS)
    sample_rate: int | None = None
    n_vq: int | None = Field(None, ge=1)
    """Codebooks to speak with, the first ones."""
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, ge=0, le=1)
    top_k: int | None = Field(None, ge=0, le=4096)
    repetition_penalty: float | None = Field(None, ge=0.5, le=2)
    repetition_window: int | None = Field(None, ge=0, le=10_000)
    text_temperature: float | None = Field(None, ge=0, le=2)
    text_top_p: float | None = Field(None, ge=0, le=1)
    text_top_k: int | None = Field(None, ge=0, le=4096)
    seed: int | None = Field(None, ge=0, le=2**63 - 1)
    normalize: bool = False
    """Speak Markdown, numbers and signs as words."""
    text_normalizer: Normalizer = "released"
    """What the model's own pipeline does to the text after that."""
    max_new_tokens: int | None = Field(None, ge=1, le=2**31 - 1)
    """Frames of sound, as the model makes one a step."""

    @property
    def spoken_text(self) -> str:
        """What the model is given: words to speak, or the description of a sound."""
        text = self.input if self.input is not None and self.input.strip() else self.ambient_sound
        text = text or ""
        return normalised(text) if self.normalize else text

    @property
    def voice_name(self) -> str | None:
        """The name or id of the voice that was asked for; `default` is no choice."""
        return _chosen(self.speaker if self.voice is None else self.voice)

    @property
    def audio_format(self) -> AudioFormat:
        """The container; `parse_speech_body` has checked it."""
        return self.response_format or "mp3"  # type: ignore[return-value]

    @property
    def inline_reference(self) -> tuple[str, str] | None:
        """The URL of a recording to speak like, and the field that has it."""
        if self.references:
            return self.references[0].audio_path, "references"
        return None if self.ref_audio is None else (self.ref_audio, "ref_audio")

    @property
    def transcript(self) -> str:
        """What is said in the recording or voice of the only, or first, speaker."""
        text = self.references[0].text if self.references else self.ref_text
        return (text or "").strip()

    def clips(self) -> list[Clip]:
        """Everyone who has a voice; not those whose voice is left to the model or the server."""
        clips = []
        url, field = self.inline_reference or (None, "voice")
        if url is not None or self.voice_name is not None:
            clips.append(Clip(1, field, url, self.voice_name, self.transcript))
        if self.ref_audio_2 is not None:
            clips.append(Clip(2, "ref_audio_2", self.ref_audio_2, None, ""))
        for place, part in enumerate(self.speakers or ()):
            url, voice, said = part.ref_audio, _chosen(part.voice), (part.ref_text or "").strip()
            if url is not None or voice is not None:
                number = int(part.id.removeprefix("S"))
                clips.append(Clip(number, f"speakers[{place}]", url, voice, said))
        return clips

    def sampling(self, defaults: Sampling) -> Sampling:
        """How to draw codes: what was asked for over the model's own defaults."""
        fields = Sampling.__dataclass_fields__
        given = {name: getattr(self, name) for name in fields}
        kept = {name: getattr(defaults, name) for name in fields}
        return Sampling(**kept | {name: x for name, x in given.items() if x is not None})

    def text_sampling(self, defaults: TextSampling | None) -> TextSampling | None:
        """How to draw text, for models that do; None leaves it to the model."""
        if defaults is None or not self.text_draws:
            return None
        return dataclasses.replace(defaults, **self.text_draws)

    @property
    def text_draws(self) -> dict[str, Any]:
        """What was asked for of the drawing of text, by the fields of `TextSampling`."""
        given = {name: getattr(self, f"text_{name}") for name in TextSampling.__dataclass_fields__}
        return {name: value for name, value in given.items() if value is not None}

    def max_frames(self, model: ModelInfo, max_audio_s: float) -> int:
        """The longest answer: as asked for, at most `max_audio_s`; the engine guards it closer."""
        limit = int(max_audio_s * 1000 / model.frame_ms)
        return min(self.max_new_tokens or limit, limit)


def _chosen(name: str | None) -> str | None:
    return None if name is None or name.strip().lower() == "default" else name


def parse_speech_body(fields: dict[str, Any]) -> SpeechBody:
    """Validate the JSON object. Raises `ApiError` 400 for the first thing that is wrong."""
    try:
        body = SpeechBody.model_validate(fields)
    except ValidationError as error:
        raise _explain(error) from error
    if body.input is None and body.ambient_sound is None:
        raise refuse("input", "missing_field", "`input` is required")
    if not body.spoken_text.strip():
        raise refuse("input", "input_blank", "`input` is blank; there is nothing to say")
    formats = available_formats()
    if body.audio_format not in formats:
        message = f"`response_format` {body.audio_format!r} is not one of {', '.join(formats)}"
        raise refuse("response_format", "unsupported_format", message)
    if body.speed not in (None, 1.0):
        message = f"`speed` {body.speed:g} is not supported; only 1.0 is"
        raise refuse("speed", "unsupported", message)
    _check_one_voice(body)
    return body


def _check_one_voice(body: SpeechBody) -> None:
    """Nobody has two voices."""
    if body.voice is not None and body.speaker is not None:
        raise refuse("speaker", "conflict", "`speaker` is another name for `voice`; send one")
    if body.references and (body.ref_audio is not None or body.ref_text is not None):
        message = "`references` is another way to write `ref_audio` and `ref_text`; send one"
        raise refuse("references", "conflict", message)
    if body.inline_reference and body.voice_name is not None:
        message = '`ref_audio` and `voice` exclude each other; send one, or `voice`: "default"'
        raise refuse("ref_audio", "conflict", message)
    if body.speakers is not None:
        named = (body.voice_name, body.inline_reference, body.ref_audio_2, body.ref_text)
        if any(one is not None for one in named):
            message = "`speakers` says everyone's voice; leave voice, ref_audio and ref_text out"
            raise refuse("speakers", "conflict", message)


def refuse(param: str, code: str, message: str) -> ApiError:
    """The error of a field that cannot be taken."""
    return ApiError(400, code, message, param=param)


def unknown_field(name: str, known: Iterable[str]) -> ApiError:
    """The error of a field that nothing takes."""
    near = difflib.get_close_matches(name, list(known), 1, 0.5)
    hint = f"did you mean `{near[0]}`?" if near else "GET /v1/models says what a model takes"
    message = f"unknown field `{name[:80]}`; {hint}"
    return ApiError(400, "unknown_field", message, param=name.partition(".")[0])


def shown(value: Any) -> str:
    """A value in an error message: as written, cut where it is long."""
    text = repr(value)
    return text if len(text) <= 80 else text[:80] + "..."


def _explain(error: ValidationError) -> ApiError:
    first = error.errors(include_url=False)[0]
    param = str(first["loc"][0]) if first["loc"] else None
    name = ".".join(map(str, first["loc"]))
    if first["type"] == "extra_forbidden":
        return unknown_field(name, SpeechBody.model_fields)
    if first["type"] == "missing":
        return ApiError(400, "missing_field", f"`{name}` is required", param=param)
    message = f"`{name}`: {first['msg'].lower()}, not {shown(first['input'])}"
    return ApiError(400, "invalid_field", message, param=param)
