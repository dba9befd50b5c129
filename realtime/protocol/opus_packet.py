"""How long an Opus packet sounds, which its first bytes say (RFC 6716, section 3)."""

from __future__ import annotations

from typing import Final

from realtime.protocol.errors import ProtocolError
from realtime.protocol.frames import OPUS_CLOCK_HZ

_MS: Final = OPUS_CLOCK_HZ // 1000
_SILK_SAMPLES: Final = (10 * _MS, 20 * _MS, 40 * _MS, 60 * _MS)
_HYBRID_SAMPLES: Final = (10 * _MS, 20 * _MS)
_CELT_SAMPLES: Final = (5 * _MS // 2, 5 * _MS, 10 * _MS, 20 * _MS)
_LONGEST_SAMPLES: Final = 120 * _MS


def packet_samples(packet: bytes) -> int:
    """Return the packet's length in samples at 48 kHz.

    Raises `ProtocolError` with code `bad_audio` for what cannot be a packet.
    """
    if not packet:
        raise ProtocolError("bad_audio", "an Opus packet has at least one byte; this one has none")
    samples = _frame_samples(packet[0] >> 3) * _frame_count(packet)
    if not 0 < samples <= _LONGEST_SAMPLES:
        raise ProtocolError(
            "bad_audio",
            f"an Opus packet lasts 2.5 to 120 ms; one that starts with {packet[:2].hex()} would "
            f"last {samples / _MS:g} ms",
        )
    return samples


def _frame_samples(config: int) -> int:
    if config < 12:
        return _SILK_SAMPLES[config & 3]
    return _HYBRID_SAMPLES[config & 1] if config < 16 else _CELT_SAMPLES[config & 3]


def _frame_count(packet: bytes) -> int:
    match packet[0] & 3:
        case 0:
            return 1
        case 1 | 2:
            return 2
        case _:
            return packet[1] & 63 if len(packet) > 1 else 0
