"""Speak through a moss-realtime server: `Client`, `Session`, `Reply` and their errors."""

from realtime.sdk.client import Client, Session
from realtime.sdk.errors import MossError, ResponseFailed, ServerRefused, StreamInterrupted
from realtime.sdk.reply import Reply

__all__ = [
    "Client",
    "MossError",
    "Reply",
    "ResponseFailed",
    "ServerRefused",
    "Session",
    "StreamInterrupted",
]
