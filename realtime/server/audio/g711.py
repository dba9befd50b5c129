"""G.711 (ITU-T, 1988): 8 bits a sample, nearly logarithmic. Telephones speak it at 8 kHz.

A byte is a sign, one of 8 segments and one of 16 equal intervals in it. The decision values below
are those of the standard's tables, scaled to 16 bits; an interval decodes to its middle.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

I16 = NDArray[np.int16]
U8 = NDArray[np.uint8]

_SEGMENT, _INTERVAL = np.divmod(np.arange(128), 16)
_MULAW_LOWEST: Final = ((16 + _INTERVAL) << (_SEGMENT + 3)) - 132
_MULAW_MIDDLE: Final = _MULAW_LOWEST + (4 << _SEGMENT)
_ALAW_SHIFT = np.maximum(_SEGMENT, 1) + 3
_ALAW_LOWEST: Final = (_INTERVAL + np.where(_SEGMENT, 16, 0)) << _ALAW_SHIFT
_ALAW_MIDDLE: Final = _ALAW_LOWEST + (1 << (_ALAW_SHIFT - 1))
_ALAW_TOGGLE: Final = 0x55  # every other bit is sent inverted


def encode_mulaw(pcm: I16) -> bytes:
    """Encode 16-bit samples to one byte each."""
    return _TO_MULAW[pcm.view(np.uint16)].tobytes()


def encode_alaw(pcm: I16) -> bytes:
    """Encode 16-bit samples to one byte each."""
    return _TO_ALAW[pcm.view(np.uint16)].tobytes()


def decode_mulaw(data: bytes) -> I16:
    """Decode to 16-bit samples; any byte is valid."""
    return _FROM_MULAW[np.frombuffer(data, np.uint8)]


def decode_alaw(data: bytes) -> I16:
    """Decode to 16-bit samples; any byte is valid."""
    return _FROM_ALAW[np.frombuffer(data, np.uint8)]


def _interval_of_every_sample(
    lowest: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Interval 0..127 and sign of each 16-bit sample, in the order of its unsigned view.

    As in the standard's reference software a negative value counts in one's complement.
    """
    pcm = np.arange(1 << 16, dtype=np.uint16).view(np.int16)
    magnitude = np.where(pcm < 0, ~pcm, pcm)
    return np.searchsorted(lowest, magnitude, side="right") - 1, pcm < 0


def _mulaw_tables() -> tuple[U8, I16]:
    interval, negative = _interval_of_every_sample(_MULAW_LOWEST)
    code = ~(interval + np.where(negative, 128, 0))
    positive = _MULAW_MIDDLE[::-1]
    return code.astype(np.uint8), np.concatenate([-positive, positive]).astype(np.int16)


def _alaw_tables() -> tuple[U8, I16]:
    interval, negative = _interval_of_every_sample(_ALAW_LOWEST)
    code = (interval + np.where(negative, 0, 128)) ^ _ALAW_TOGGLE
    byte = np.arange(256) ^ _ALAW_TOGGLE
    value = _ALAW_MIDDLE[byte & 127]
    return code.astype(np.uint8), np.where(byte & 128, value, -value).astype(np.int16)


_TO_MULAW, _FROM_MULAW = _mulaw_tables()
_TO_ALAW, _FROM_ALAW = _alaw_tables()
