"""Sound in and out of the server: the level rule, Opus, Ogg, resampling, files, references.

Everything here blocks (codecs, resampling): call it from a worker thread, one ordered task per
stream. *Samples* are per channel; sound is f32 `[samples, channels]` with full scale 1.0.
"""

from realtime.server.audio.level import clipped_samples, to_pcm16
from realtime.server.audio.opus import OpusEncoder, OpusUnavailable
from realtime.server.audio.reference import ReferenceError, decode_reference
from realtime.server.audio.resample import StreamResampler
from realtime.server.audio.writers import (
    FORMATS,
    AudioFormat,
    Writer,
    available_formats,
    open_writer,
)

__all__ = [
    "FORMATS",
    "AudioFormat",
    "OpusEncoder",
    "OpusUnavailable",
    "ReferenceError",
    "StreamResampler",
    "Writer",
    "available_formats",
    "clipped_samples",
    "decode_reference",
    "open_writer",
    "to_pcm16",
]
