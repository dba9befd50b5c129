"""Speak through a moss-realtime server: `Client`, `Session`, `Reply` and their errors.

`AudioRequest` and `InputRequest` choose the formats of the sound.
"""

from realtime.protocol.messages import AudioRequest, InputRequest
from realtime.sdk.client import Client, Session
from realtime.sdk.errors import MossError, ResponseFailed, ServerRefused, StreamInterrupted
from realtime.sdk.reply import Reply

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
