"""The sound formats of a session: what a client may ask for, and what it gets."""

from __future__ import annotations

from typing import Final

from engine.api import ModelInfo
from realtime.protocol.errors import ProtocolError
from realtime.protocol.frames import OPUS_CLOCK_HZ
from realtime.protocol.messages import (
    AudioFormat,
    AudioRequest,
    Codec,
    InputFormat,
    InputRequest,
    InputUpdate,
)

RATES_HZ: Final = (8_000, 16_000, 24_000, 48_000)
OPUS_BITRATE: Final = 32_000
_TELEPHONE_HZ: Final = 8_000


def output_format(
    request: AudioRequest, model: ModelInfo, codecs: tuple[Codec, ...], opus_pre_skip: int
) -> AudioFormat:
    """Settle the sound a client gets; raises `ProtocolError`.

    `opus_pre_skip` is in samples at 48 kHz. Where the client names no rate it is the one that is
    usual for the codec, for PCM the model's own.
    """
    codec = known_codec(request.codec, codecs, "audio.codec")
    asked_hz = request.sample_rate
    rate_hz = _usual_rate_hz(codec, model) if asked_hz is None else asked_hz
    allowed = RATES_HZ if codec == "opus" else sorted({*RATES_HZ, model.rate_hz})
    if rate_hz not in allowed:
        listed = ", ".join(map(str, allowed))
        raise ProtocolError(
            "unsupported",
            f"{codec} is sent at {listed} Hz, not at {rate_hz} Hz",
            param="audio.sample_rate",
        )
    is_opus = codec == "opus"
    return AudioFormat(
        codec=codec,
        sample_rate=rate_hz,
        channels=model.channels,
        frame_ms=request.frame_ms,
        frame_samples=(OPUS_CLOCK_HZ if is_opus else rate_hz) * request.frame_ms // 1000,
        bitrate=(request.bitrate or OPUS_BITRATE) if is_opus else None,
        pre_skip=opus_pre_skip if is_opus else 0,
        transport=request.transport,
    )


def input_format(request: InputRequest, model: ModelInfo, codecs: tuple[Codec, ...]) -> InputFormat:
    """Settle the user's sound; raises `ProtocolError`."""
    codec = known_codec(request.codec, codecs, "input_audio.codec")
    asked_hz = request.sample_rate
    rate_hz = _usual_rate_hz(codec, model) if asked_hz is None else asked_hz
    return InputFormat(codec=codec, sample_rate=rate_hz)


def changed_input(audio: InputFormat, change: InputUpdate) -> InputFormat:
    """Return the user's sound with what the client changes of it; raises `ProtocolError`."""
    if change.codec not in (None, audio.codec):
        raise ProtocolError(
            "unsupported",
            f"the codec of user audio stays {audio.codec} for the whole session; open another "
            f"session for {change.codec[:80]!r}",
            param="input_audio.codec",
        )
    rate_hz = change.sample_rate
    return audio if rate_hz is None else InputFormat(codec=audio.codec, sample_rate=rate_hz)


def known_codec(wanted: str, codecs: tuple[Codec, ...], param: str) -> Codec:
    """Return the codec of that name; raises `ProtocolError` with those there are."""
    for codec in codecs:
        if codec == wanted:
            return codec
    known = ", ".join(codecs)
    raise ProtocolError(
        "unsupported_codec",
        f"codec {wanted[:80]!r} is not supported; there are {known}",
        param=param,
    )


def _usual_rate_hz(codec: Codec, model: ModelInfo) -> int:
    match codec:
        case "opus":
            return OPUS_CLOCK_HZ
        case "mulaw" | "alaw":
            return _TELEPHONE_HZ
        case _:
            return model.rate_hz
