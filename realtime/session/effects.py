"""What a session asks its shell to do.

Effects are carried out in the order given, and what they put on the wire keeps that order, with one
exception: `DropAudio` removes sound that is still queued.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from engine.api import Command, Open
from realtime.protocol.frames import Flags
from realtime.protocol.messages import InputFormat, ServerMessage


@dataclasses.dataclass(frozen=True, slots=True)
class Send:
    """Send a control message; its number `n` is set."""

    message: ServerMessage


@dataclasses.dataclass(frozen=True, slots=True)
class SendAudio:
    """Send sound of one response, in pieces of `frame_ms`, with headers or inline.

    `pcm` is f32 `[samples, channels]` at the model's rate and may be empty. `FIRST` and
    `DISCONTINUITY` of `flags` belong to the first piece, `LAST_OF_*` to the last. A stream begins
    with `FIRST` (make its encoder) and ends with `LAST_OF_RESPONSE` (flush it) or `DropAudio`.
    After each piece the shell calls `Session.transport_sent`.
    """

    response_id: str
    stream: int
    epoch: int
    pcm: NDArray[np.float32]
    flags: Flags


@dataclasses.dataclass(frozen=True, slots=True)
class DropAudio:
    """Drop the stream's sound that is not on the wire yet, and its encoder."""

    stream: int


@dataclasses.dataclass(frozen=True, slots=True)
class ToEngine:
    """Pass a command to the engine."""

    command: Command


@dataclasses.dataclass(frozen=True, slots=True)
class Reopen:
    """Pass on an `Open` that goes on with a row whose engine died; it waits for the next engine."""

    command: Open


@dataclasses.dataclass(frozen=True, slots=True)
class Listen:
    """Deliver the row's events to `Session.engine_event`, up to its `Done` or `Refused`.

    Comes before the row's `Open` or `Reopen`; the row speaks `response_id`.
    """

    row: int
    response_id: str


@dataclasses.dataclass(frozen=True, slots=True)
class DecodeInput:
    """Decode user audio and have the engine encode it, as the next part of encode stream `stream`.

    `packets` are Opus packets or runs of samples, of format `audio`: its codec is the same for the
    whole session, its rate for the whole stream. The shell gives the stream's events to
    `Session.engine_event`, and what cannot be decoded to `Session.input_damaged`. A stream ends
    with `EndInput` or `DropInput`.
    """

    stream: int
    packets: tuple[bytes, ...]
    audio: InputFormat


@dataclasses.dataclass(frozen=True, slots=True)
class EndInput:
    """The stream's sound is complete: fill its last frame up with silence and end it."""

    stream: int


@dataclasses.dataclass(frozen=True, slots=True)
class DropInput:
    """Forget the stream, here and in the engine; no event of it is awaited any more."""

    stream: int


@dataclasses.dataclass(frozen=True, slots=True)
class Close:
    """Close the socket once everything before is sent."""

    code: int
    reason: str


Effect = (
    Send
    | SendAudio
    | DropAudio
    | ToEngine
    | Reopen
    | Listen
    | DecodeInput
    | EndInput
    | DropInput
    | Close
)
