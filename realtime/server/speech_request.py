"""The body of `POST /v1/audio/speech`: what it may say, and what each mistake is told."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from engine.api import ModelInfo, Sampling
from engine.text.normalise.normaliser import normalised
from realtime.server.audio import AudioFormat, available_formats
from realtime.server.errors import ApiError

MAX_INPUT_CHARS = 8_000
MAX_AUDIO_S = 600.0


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


class SpeechBody(BaseModel):
    """Fields as OpenAI defines them, then ours. None is the same as absent."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    input: Annotated[str, BeforeValidator(_join_surrogates)]
    model: str | None = None
    voice: VoiceName = None
    instructions: str | None = None
    response_format: str | None = None
    speed: float | None = None
    stream_format: Literal["audio", "sse"] | None = None

    speaker: VoiceName = None
    ref_audio: str | None = None
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, ge=0, le=1)
    top_k: int | None = Field(None, ge=0, le=4096)
    repetition_penalty: float | None = Field(None, ge=0.5, le=2)
    repetition_window: int | None = Field(None, ge=0, le=10_000)
    seed: int | None = Field(None, ge=0, le=2**63 - 1)
    normalize: bool = False
    """Speak Markdown, numbers and signs as words."""
    max_new_tokens: int | None = Field(None, ge=1, le=2**31 - 1)
    """Frames of sound, as the model makes one a step."""

    @property
    def spoken_text(self) -> str:
        """What the model is given."""
        return normalised(self.input) if self.normalize else self.input

    @property
    def voice_name(self) -> str | None:
        """The name or id of the voice that was asked for; `default` is no choice."""
        name = self.speaker if self.voice is None else self.voice
        return None if name is None or name.strip().lower() == "default" else name

    @property
    def audio_format(self) -> AudioFormat:
        """The container; `parse_speech_body` has checked it."""
        return self.response_format or "mp3"  # type: ignore[return-value]

    def sampling(self, defaults: Sampling) -> Sampling:
        """How to draw codes: what was asked for over the model's own defaults."""
        fields = Sampling.__dataclass_fields__
        given = {name: getattr(self, name) for name in fields}
        kept = {name: getattr(defaults, name) for name in fields}
        return Sampling(**kept | {name: x for name, x in given.items() if x is not None})

    def max_frames(self, model: ModelInfo) -> int:
        """The longest answer: as asked for, at most 600 s; the engine has tighter guards."""
        limit = int(MAX_AUDIO_S * 1000 / model.frame_ms)
        return min(self.max_new_tokens or limit, limit)


def parse_speech_body(fields: dict[str, Any]) -> SpeechBody:
    """Validate the JSON object. Raises `ApiError` 400 for the first thing that is wrong."""
    try:
        body = SpeechBody.model_validate(fields)
    except ValidationError as error:
        raise _explain(error) from error
    if not body.spoken_text.strip():
        raise _refuse("input", "input_blank", "`input` is blank; there is nothing to say")
    if len(body.input) > MAX_INPUT_CHARS:
        message = f"`input` has {len(body.input)} characters; at most {MAX_INPUT_CHARS} are spoken"
        raise _refuse("input", "string_above_max_length", message)
    formats = available_formats()
    if body.audio_format not in formats:
        message = f"`response_format` {body.audio_format!r} is not one of {', '.join(formats)}"
        raise _refuse("response_format", "unsupported_format", message)
    if body.speed not in (None, 1.0):
        message = f"`speed` {body.speed:g} is not supported; only 1.0 is"
        raise _refuse("speed", "unsupported", message)
    if body.instructions and body.instructions.strip():
        message = "`instructions` cannot be followed by this model; leave the field out"
        raise _refuse("instructions", "unsupported", message)
    if body.voice is not None and body.speaker is not None:
        raise _refuse("speaker", "conflict", "`speaker` is another name for `voice`; send one")
    if body.ref_audio is not None and body.voice_name is not None:
        message = '`ref_audio` and `voice` exclude each other; send one, or `voice`: "default"'
        raise _refuse("ref_audio", "conflict", message)
    return body


def _refuse(param: str, code: str, message: str) -> ApiError:
    return ApiError(400, code, message, param=param)


def _explain(error: ValidationError) -> ApiError:
    first = error.errors(include_url=False)[0]
    param = str(first["loc"][0]) if first["loc"] else None
    if first["type"] == "extra_forbidden":
        name = ".".join(map(str, first["loc"]))
        known = ", ".join(SpeechBody.model_fields)
        return ApiError(
            400, "unknown_field", f"unknown field `{name}`; known are {known}", param=param
        )
    if first["type"] == "missing":
        return ApiError(400, "missing_field", f"`{param}` is required", param=param)
    given = repr(first["input"])
    given = given if len(given) <= 80 else given[:80] + "..."
    message = f"`{param}`: {first['msg'].lower()}, not {given}"
    return ApiError(400, "invalid_field", message, param=param)
