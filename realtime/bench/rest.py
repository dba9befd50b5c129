"""Any server that speaks `POST /v1/audio/speech` and streams PCM or WAV."""

from __future__ import annotations

import base64
import dataclasses
import re
import struct
from collections.abc import Callable
from typing import Any, Literal

import httpx

from realtime.bench.events import EventStream, ending_of
from realtime.bench.recorder import BUSY, Recorder
from realtime.bench.references import References
from realtime.bench.trip import Ending, Trip
from realtime.bench.workload import Line

TIMEOUT_S = 300.0
_WAV_HEADER_BYTES = 44


@dataclasses.dataclass(frozen=True, slots=True)
class RestOptions:
    """How to ask. `rate_hz` and `channels` are those of PCM where the server does not say.

    Only events (`sse`) tell how an answer ended, and what it took on the server's clock.
    """

    response_format: Literal["pcm", "wav"] = "pcm"
    stream_format: Literal["audio", "sse"] = "audio"
    rate_hz: int = 24_000
    channels: int = 1
    voice: str | None = None
    extra: dict[str, Any] = dataclasses.field(default_factory=dict)


def client_of(url: str, api_key: str | None) -> httpx.AsyncClient:
    """A client with as many connections as a load wants."""
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    return httpx.AsyncClient(base_url=url, headers=headers, timeout=TIMEOUT_S, limits=limits)


class RestTarget:
    """`speak` may run many times at once."""

    def __init__(
        self,
        client: httpx.AsyncClient,
        options: RestOptions,
        now_s: Callable[[], float],
        references: References,
    ) -> None:
        self._client = client
        self._options = options
        self._now_s = now_s
        self._references = references

    async def speak(self, line: Line) -> Trip:
        """Have one line spoken; every way to fail is a `Trip` too."""
        options = self._options
        body: dict[str, Any] = {"input": line.text, "response_format": options.response_format}
        body |= {"stream_format": options.stream_format}
        body |= {"voice": options.voice} if options.voice else {}
        body |= {"max_new_tokens": line.frames} if line.frames else {}
        body |= self._references.fields(line)
        recorder = Recorder(self._now_s)
        try:
            request = self._client.stream("POST", "/v1/audio/speech", json=body | options.extra)
            async with request as answer:
                if answer.status_code != 200:
                    message = (await answer.aread()).decode(errors="replace")[:200]
                    ending: Ending = "refused" if answer.status_code in BUSY else "failed"
                    return recorder.end(ending, f"HTTP {answer.status_code}: {message}")
                sound = PcmStream(*stated_format(answer.headers, options))
                if options.stream_format == "sse":
                    return await _record_events(answer, sound, recorder)
                async for data in answer.aiter_raw():
                    sound.record(data, recorder)
        except (httpx.HTTPError, ValueError) as error:
            return recorder.end("failed", f"{type(error).__name__}: {error}")
        return recorder.end("completed")


async def _record_events(answer: httpx.Response, sound: PcmStream, recorder: Recorder) -> Trip:
    events = EventStream()
    async for data in answer.aiter_raw():
        for event in events.feed(data):
            match event.get("type"):
                case "speech.audio.delta":
                    sound.record(base64.b64decode(event["audio"]), recorder)
                case "speech.audio.error":
                    return recorder.end("failed", str(event.get("error"))[:200])
                case "speech.audio.done":
                    ending, made_ms, server = ending_of(event)
                    return recorder.end(ending, made_ms=made_ms, server=server)
    return recorder.end("failed", "the events ended without speech.audio.done")


def stated_format(headers: httpx.Headers, options: RestOptions) -> tuple[int, int]:
    """Rate and channels of PCM: by our headers, else the content type, else the options."""
    content_type = headers.get("content-type", "")
    found = dict(re.findall(r"(rate|channels)=(\d+)", content_type))
    rate = headers.get("x-audio-sample-rate") or found.get("rate") or options.rate_hz
    channels = headers.get("x-audio-channels") or found.get("channels") or options.channels
    return int(rate), int(channels)


class PcmStream:
    """Takes the header off a WAV, and cuts what comes into whole 16-bit samples."""

    def __init__(self, rate_hz: int, channels: int) -> None:
        self.rate_hz = rate_hz
        self.channels = channels
        self._held = b""
        self._begun = False

    def feed(self, data: bytes) -> bytes:
        """The whole samples that are complete with this data."""
        self._held += data
        if not self._begun:
            if b"RIFF".startswith(self._held[:4]) and len(self._held) < _WAV_HEADER_BYTES:
                return b""
            if self._held.startswith(b"RIFF"):
                self.channels, self.rate_hz = struct.unpack_from("<HI", self._held, 22)
                self._held = self._held[_WAV_HEADER_BYTES:]
            self._begun = True
        whole = len(self._held) - len(self._held) % (2 * self.channels)
        samples, self._held = self._held[:whole], self._held[whole:]
        return samples

    def record(self, data: bytes, recorder: Recorder) -> None:
        """Note the sound of a piece of the body."""
        if samples := self.feed(data):
            recorder.sound(samples, self.duration_s(len(samples)))

    def duration_s(self, count: int) -> float:
        """Length of so many bytes."""
        return count / (2 * self.channels * self.rate_hz)
