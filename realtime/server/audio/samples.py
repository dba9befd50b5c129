"""Uncompressed and G.711 sound: f32 with full scale 1.0 to bytes and back, sample by sample."""

from __future__ import annotations

from typing import Literal

import numpy as np

from realtime.server.audio.g711 import decode_alaw, decode_mulaw, encode_alaw, encode_mulaw
from realtime.server.audio.level import F32, to_pcm16

SampleCodec = Literal["pcm_s16le", "pcm_f32le", "mulaw", "alaw"]


def encode_samples(codec: SampleCodec, pcm: F32) -> bytes:
    """Encode f32 `[samples, channels]`, interleaved.

    All but `pcm_f32le` follow the level rule of `to_pcm16`; floats are not clipped, but what is not
    a finite number is sent as `to_pcm16` sends it.
    """
    match codec:
        case "pcm_s16le":
            return to_pcm16(pcm)
        case "pcm_f32le":
            return np.nan_to_num(pcm, posinf=1.0, neginf=-1.0).astype("<f4").tobytes()
        case "mulaw":
            return encode_mulaw(np.frombuffer(to_pcm16(pcm), "<i2"))
        case "alaw":
            return encode_alaw(np.frombuffer(to_pcm16(pcm), "<i2"))


def decode_samples(codec: SampleCodec, data: bytes) -> F32:
    """Decode whole samples of one channel to f32 `[samples]` within [-1, 1].

    What is not a number becomes silence.
    """
    match codec:
        case "pcm_s16le":
            return _from_16_bit(np.frombuffer(data, "<i2"))
        case "pcm_f32le":
            finite: F32 = np.nan_to_num(np.frombuffer(data, "<f4"))
            return finite.clip(-1.0, 1.0)
        case "mulaw":
            return _from_16_bit(decode_mulaw(data))
        case "alaw":
            return _from_16_bit(decode_alaw(data))


def _from_16_bit(pcm: np.ndarray) -> F32:
    return pcm.astype(np.float32) / np.float32(32768.0)
