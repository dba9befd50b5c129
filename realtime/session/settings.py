"""What a session speaks with: voice, sampling, sound format, flow; negotiated at its start."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Final, Protocol, get_args

import numpy as np

from engine.api import ModelInfo, U16Codes
from realtime.protocol.errors import ProtocolError
from realtime.protocol.limits import DEFAULT_LIMITS, Limits
from realtime.protocol.messages import (
    AudioFormat,
    AudioRequest,
    Codec,
    Flow,
    Generation,
    InputFormat,
    InputRequest,
    Layout,
    SessionStart,
    SessionUpdate,
    TextOnlyUser,
    Timestamps,
    VoiceRef,
)
from realtime.session.formats import changed_input, input_format, output_format
from realtime.session.sampling import layered


class Voice(Protocol):
    """An encoded reference: `codes` are u16 `[F, n_vq]`."""

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def codes(self) -> U16Codes: ...


class Voices(Protocol):
    """Where a session looks voices up (the server's `VoiceStore` is one)."""

    def get(self, name_or_id: str, /) -> Voice | None: ...
    def default(self) -> Voice | None: ...
    def names(self) -> Sequence[str]: ...


@dataclasses.dataclass(frozen=True, slots=True)
class SessionConfig:
    """What the server decides for all sessions.

    `opus_pre_skip` is in samples at 48 kHz. `prebuffer_ms` is how much a listener gathers before
    it plays. `queued_sound_bytes` of sound, as f32, may wait for one client. `resume_ttl_s` is how
    long a session waits without a socket; 0: not at all.
    """

    server: str = "moss-realtime"
    limits: Limits = DEFAULT_LIMITS
    codecs: tuple[Codec, ...] = get_args(Codec)
    stall_flush_ms: int = 800
    ack_max_ahead_ms: int = 4000
    prebuffer_ms: int = 0
    queued_sound_bytes: int = 6 << 20
    warm_pin_s: float = 600.0
    opus_pre_skip: int = 312
    start_timeout_ms: int = 10_000
    resume_ttl_s: int = 120
    max_bad_messages: int = 10


DEFAULT_CONFIG: Final = SessionConfig()


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """A session's settings in effect. `generation` holds only what the client set."""

    voice: Voice | None
    audio: AudioFormat
    input_audio: InputFormat
    generation: Generation
    timestamps: Timestamps
    flow: Flow
    stall_flush_ms: int
    normalize: bool
    layout: Layout
    text_only_user: TextOnlyUser
    metadata: dict[str, Any] | None

    @property
    def max_ahead_ms(self) -> int:
        """How far ahead of the listener the engine may run."""
        assert self.flow.max_ahead_ms is not None
        return self.flow.max_ahead_ms


def negotiate(
    message: SessionStart, model: ModelInfo, voices: Voices, config: SessionConfig
) -> Settings:
    """Settle a session's settings; raises `ProtocolError`."""
    if message.model is not None and message.model != model.name:
        raise ProtocolError(
            "invalid_field",
            f"there is no model {message.model!r}; this server speaks with {model.name!r}",
            param="model",
        )
    stall_flush_ms = message.stall_flush_ms
    return Settings(
        voice=find_voice(voices, message.voice),
        audio=output_format(
            message.audio or AudioRequest(), model, config.codecs, config.opus_pre_skip
        ),
        input_audio=input_format(message.input_audio or InputRequest(), model, config.codecs),
        generation=message.generation or Generation(),
        timestamps=message.timestamps,
        flow=_flow(message.flow or Flow(), model, config),
        stall_flush_ms=config.stall_flush_ms if stall_flush_ms is None else stall_flush_ms,
        normalize=message.normalize,
        layout=message.layout,
        text_only_user=message.text_only_user,
        metadata=message.metadata,
    )


def update(
    settings: Settings,
    message: SessionUpdate,
    model: ModelInfo,
    voices: Voices,
    config: SessionConfig,
) -> Settings:
    """Return the settings with the fields that the message gives; raises `ProtocolError`."""
    changes: dict[str, Any] = {"generation": layered(message.generation, settings.generation)}
    if message.voice is not None:
        changes["voice"] = find_voice(voices, message.voice)
    if message.input_audio is not None:
        changes["input_audio"] = changed_input(settings.input_audio, message.input_audio)
    if message.flow is not None:
        changes["flow"] = _flow(message.flow, model, config)
    if message.stall_flush_ms is not None:
        changes["stall_flush_ms"] = message.stall_flush_ms
    if message.timestamps is not None:
        changes["timestamps"] = message.timestamps
    if message.normalize is not None:
        changes["normalize"] = message.normalize
    if message.metadata is not None:
        changes["metadata"] = message.metadata
    return dataclasses.replace(settings, **changes)


def find_voice(voices: Voices, wanted: str | VoiceRef | None) -> Voice | None:
    """Look a voice up by name or id, None being the default; raises `ProtocolError`."""
    if wanted is None:
        return voices.default()
    name = wanted.id if isinstance(wanted, VoiceRef) else wanted
    voice = voices.get(name)
    if voice is None:
        known = ", ".join(voices.names()) or "none"
        raise ProtocolError(
            "voice_not_found", f"there is no voice {name[:80]!r}; there are: {known}", param="voice"
        )
    return voice


def _flow(flow: Flow, model: ModelInfo, config: SessionConfig) -> Flow:
    """Settle how far a response may run ahead; all of a session's together fit its queue."""
    responses = 1 + config.limits.parallel_responses
    bytes_per_s = model.rate_hz * model.channels * np.dtype(np.float32).itemsize
    room_ms = 1000 * config.queued_sound_bytes // (responses * bytes_per_s)
    default_ms = config.ack_max_ahead_ms if flow.mode == "ack" else config.limits.max_ahead_ms
    wanted_ms = default_ms if flow.max_ahead_ms is None else flow.max_ahead_ms
    return Flow(mode=flow.mode, max_ahead_ms=min(wanted_ms, room_ms))
