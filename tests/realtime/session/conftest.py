"""A session whose clock and fake engine are moved by hand, and whose wire is a list."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from engine.api import (
    CancelEncode,
    Command,
    Counts,
    Done,
    Encode,
    Event,
    Feed,
    ModelInfo,
    Open,
    Refused,
    Sampling,
    U16Codes,
)
from engine.fake import FakeEngine, FakeScript
from engine.models.realtime_prompt import RealtimePrompt
from realtime.protocol.codec import decode_client
from realtime.protocol.errors import ProtocolError
from realtime.protocol.frames import Flags
from realtime.protocol.messages import InputFormat, ServerMessage
from realtime.server.audio.input import InputDecoder
from realtime.session.effects import (
    Close,
    DecodeInput,
    DropAudio,
    DropInput,
    Effect,
    EndInput,
    Listen,
    Reopen,
    Send,
    SendAudio,
    ToEngine,
)
from realtime.session.session import Session
from realtime.session.settings import SessionConfig

TINY = Path(__file__).parents[2] / "vectors" / "realtime" / "tiny"
PROMPT = RealtimePrompt.from_checkpoint(TINY)
MODEL = ModelInfo(
    name="tiny",
    rate_hz=24000,
    channels=1,
    samples_per_frame=1920,
    n_vq=16,
    codebook_size=1024,
    max_grid_rows=4096,
    capacity_rows=16,
    sampling_defaults=Sampling(),
)
FRAME_SAMPLES, FRAME_MS = 1920, 80


@dataclasses.dataclass(frozen=True)
class OneVoice:
    name: str
    codes: U16Codes

    @property
    def id(self) -> str:
        return f"v-{self.name}"


class VoiceTable:
    def __init__(self, *voices: OneVoice) -> None:
        self._voices = voices

    def get(self, name_or_id: str) -> OneVoice | None:
        return next((v for v in self._voices if name_or_id in (v.name, v.id)), None)

    def default(self) -> OneVoice | None:
        return self._voices[0] if self._voices else None

    def names(self) -> list[str]:
        return [voice.name for voice in self._voices]


def codes(frames: int, first: int = 0) -> U16Codes:
    return ((np.arange(frames * 16).reshape(frames, 16) + first) % 1024).astype(np.uint16)


VOICES = VoiceTable(OneVoice("alto", codes(7)), OneVoice("male", codes(5, 300)))


@dataclasses.dataclass(frozen=True)
class Sound:
    """A piece of sound on the wire."""

    response_id: str
    stream: int
    epoch: int
    samples: int
    flags: Flags


class Talk:
    """Both ends of a session. `wire` is what the client got; `commands` what the engine got.

    With `instant` true the socket takes sound at once; else `drain` moves it.
    """

    def __init__(
        self, config: SessionConfig, script: FakeScript, voices: VoiceTable, **terms: Any
    ) -> None:
        self.now_ms = 1000
        self.instant = True
        self.wire: list[ServerMessage | Sound] = []
        self.commands: list[Command] = []
        self.listened: list[int] = []
        self.over: set[int] = set()
        self.closed: Close | None = None
        self.events: list[Event] = []
        self.engine = FakeEngine(self.events.append, script)
        rows = itertools.count(100)
        self._tokens = itertools.count(1)
        self.session = Session(
            session_id="sess_1",
            model=script.model,
            prompt=PROMPT,
            voices=voices,
            new_id=lambda: next(rows),
            new_token=lambda: f"token_{next(self._tokens)}",
            seed=4,
            now_ms=self.now_ms,
            config=config,
            **terms,
        )
        self._m = itertools.count(1)
        self._queued: deque[SendAudio | ServerMessage] = deque()
        self._sent: dict[int, int] = {}
        self._input: InputDecoder | None = None

    def say(self, kind: str, **fields: Any) -> list[ServerMessage]:
        """Send a client message; returns the control messages that came of it."""
        numbered = {"type": kind, "m": fields.pop("m", None) or next(self._m)}
        return self.say_raw(json.dumps(numbered | fields))

    def say_raw(self, data: str) -> list[ServerMessage]:
        before = len(self.wire)
        try:
            message = decode_client(data, "json")
        except ProtocolError as error:
            self.carry_out(self.session.reject(error, self.now_ms))
        else:
            self.carry_out(self.session.receive(message, self.now_ms))
        return self.messages(before)

    def start(self, response_id: str = "r1", **fields: Any) -> list[Any]:
        return self.say("response.start", response_id=response_id, **fields)

    def fed(self, row: int = 100) -> list[int]:
        """All ids the engine was given for a row; 100 is the first."""
        feeds = [c for c in self.commands if isinstance(c, Feed) and c.row == row]
        return [i for feed in feeds for i in feed.ids]

    def tokens(self, text: str) -> list[int]:
        return PROMPT.tokenizer.encode(text)

    def text_of(self, ids: list[int]) -> str:
        return PROMPT.tokenizer.decode(ids)

    def messages(self, start: int = 0) -> list[ServerMessage]:
        return [entry for entry in self.wire[start:] if not isinstance(entry, Sound)]

    def of(self, *kinds: str) -> list[Any]:
        """All messages of these types so far."""
        return [message for message in self.messages() if message.type in kinds]

    def sound(self, response_id: str) -> list[Sound]:
        return [s for s in self.wire if isinstance(s, Sound) and s.response_id == response_id]

    def event(self, event: Event) -> None:
        """Have the session take one engine event."""
        if isinstance(event, Done | Refused):
            self.over.add(event.row)
        self.carry_out(self.session.engine_event(event, self.now_ms))

    def step(self, ticks: int = 1) -> None:
        """Step the engine and deliver what it says."""
        for _ in range(ticks):
            self.engine.step()
            self.deliver()

    def deliver(self) -> None:
        while self.events:
            self.event(self.events.pop(0))

    def kill_engine(self) -> None:
        """Another engine takes the place of this one, and all rows are told."""
        live = [row for row in self.listened if row not in self.over]
        self.engine = FakeEngine(self.events.append, self.engine.script)
        for row in live:
            self.event(Done(row, "failed", "engine_restarted: killed", Counts()))

    def run(self) -> None:
        """Step the engine until nothing moves."""
        idle = 0
        while idle < 3:
            busy = self.engine.step()
            idle = 0 if busy or self.events else idle + 1
            self.deliver()

    def wait(self, ms: int) -> None:
        """Let time pass; deadlines are kept to the millisecond."""
        end_ms = self.now_ms + ms
        while (due_ms := self.session.next_deadline_ms()) is not None and due_ms <= end_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self.carry_out(self.session.tick(self.now_ms))
            assert self.session.next_deadline_ms() != due_ms, "a deadline must not come back"
        self.now_ms = end_ms

    def carry_out(self, effects: list[Effect]) -> None:
        assert not (effects and self.closed), "a closed session stays silent"
        for effect in effects:
            match effect:
                case Send(message):
                    self._queued.append(message)
                case SendAudio():
                    self._queued.append(effect)
                case DropAudio(stream):
                    kept = [e for e in self._queued if not _is_of(e, stream)]
                    self._queued = deque(kept)
                case ToEngine(command) | Reopen(command):
                    self._command(command)
                case Listen(row):
                    self.listened.append(row)
                case DecodeInput(stream, packets, audio):
                    self._encode(stream, self._decoder(audio).push(packets, audio.sample_rate)[0])
                case EndInput(stream):
                    self._encode(stream, self._input.finish(), end=True)
                case DropInput(stream):
                    self._input.finish()
                    self._command(CancelEncode(stream))
                case Close():
                    self.closed = effect
        if self.instant:
            self.drain()

    def _command(self, command: Command) -> None:
        self.commands.append(command)
        self.engine.submit(command)

    def _decoder(self, audio: InputFormat) -> InputDecoder:
        if self._input is None:
            model = self.engine.script.model
            self._input = InputDecoder(audio.codec, model.rate_hz, model.samples_per_frame)
        return self._input

    def _encode(self, stream: int, pcm: np.ndarray, end: bool = False) -> None:
        if len(pcm) or end:
            self._command(Encode(stream, self.engine.script.model.name, pcm, end, "keep"))

    def drain(self, entries: int | None = None) -> None:
        """Let the socket take what is queued, or so many entries of it."""
        taken = 0
        while self._queued and (entries is None or taken < entries):
            entry = self._queued.popleft()
            taken += 1
            if not isinstance(entry, SendAudio):
                self.wire.append(entry)
                continue
            size = len(entry.pcm)
            sound = Sound(entry.response_id, entry.stream, entry.epoch, size, entry.flags)
            self.wire.append(sound)
            total = self._sent[entry.stream] = self._sent.get(entry.stream, 0) + size
            last = Flags.LAST_OF_RESPONSE in entry.flags
            effects = self.session.transport_sent(entry.stream, total, last, self.now_ms)
            self.carry_out(effects)

    def opens(self) -> list[Open]:
        return [command for command in self.commands if isinstance(command, Open)]


def _is_of(entry: SendAudio | ServerMessage, stream: int) -> bool:
    return isinstance(entry, SendAudio) and entry.stream == stream


def make_talk(
    config: SessionConfig | None = None,
    script: FakeScript | None = None,
    voices: VoiceTable = VOICES,
    **terms: Any,
) -> Talk:
    return Talk(config or SessionConfig(), script or FakeScript(model=MODEL), voices, **terms)


@pytest.fixture(scope="session")
def new_talk() -> Callable[..., Talk]:
    """Make a `Talk`: `new_talk(config=, script=, voices=, pins=, expiry=)`, not started yet."""
    return make_talk


@pytest.fixture
def talk(new_talk: Callable[..., Talk]) -> Talk:
    """A session that has started."""
    talk = new_talk()
    talk.say("session.start")
    return talk


@pytest.fixture
def clone_voices() -> VoiceTable:
    """The voice of the golden conversation."""
    vectors = load_file(TINY.parent / "multiturn.safetensors")
    return VoiceTable(OneVoice("clone", vectors["clone_codes"].astype(np.uint16)))


@pytest.fixture
def no_voices() -> VoiceTable:
    return VoiceTable()
