"""Speak through a moss-realtime server: `Client`, `Session`, `Reply` and their errors.

`AudioRequest` and `InputRequest` choose the formats of the sound. A `Speaker` plays replies.
"""

from realtime.protocol.messages import AudioRequest, InputRequest
from realtime.sdk.client import Client
from realtime.sdk.errors import (
    MossError,
    PlaybackUnavailable,
    ResponseFailed,
    ServerRefused,
    StreamInterrupted,
)
from realtime.sdk.playback import Sink, Speaker
from realtime.sdk.reply import Reply
from realtime.sdk.session import Session
from realtime.sdk.sound_card import SoundCard

__all__ = [
    "AudioRequest",
    "Client",
    "InputRequest",
    "MossError",
    "PlaybackUnavailable",
    "Reply",
    "ResponseFailed",
    "ServerRefused",
    "Session",
    "Sink",
    "SoundCard",
    "Speaker",
    "StreamInterrupted",
]
