"""Speak through a moss-realtime server: `Client`, `Session`, `Reply` and their errors.

`AudioRequest` and `InputRequest` choose the formats of the sound.
"""

from realtime.protocol.messages import AudioRequest, InputRequest
from realtime.sdk.client import Client
from realtime.sdk.errors import MossError, ResponseFailed, ServerRefused, StreamInterrupted
from realtime.sdk.reply import Reply
from realtime.sdk.session import Session

__all__ = [
    "AudioRequest",
    "Client",
    "InputRequest",
    "MossError",
    "Reply",
    "ResponseFailed",
    "ServerRefused",
    "Session",
    "StreamInterrupted",
]
