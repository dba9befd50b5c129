"""User audio on its way to the engine: decoded off the event loop, in order, one job at a time."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor

from engine.api import Encode, Encoded, F32Samples, Failed, ModelInfo
from realtime.protocol.messages import Codec
from realtime.server.audio.input import InputDecoder
from realtime.server.bridge import EngineBridge

logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class InputDamaged:
    """Part of an encode stream could not be decoded and was left out."""

    stream: int
    problem: str


@dataclasses.dataclass(slots=True)
class _Job:
    stream: int
    packets: list[bytes]
    rate_hz: int = 0
    end: bool = False


InputEvent = Encoded | Failed | InputDamaged


class InputAudio:
    """One session's user audio. Called on the event loop, where `publish` is called, too."""

    def __init__(
        self,
        codec: Codec,
        model: ModelInfo,
        bridge: EngineBridge,
        pool: Executor,
        publish: Callable[[InputEvent], None],
    ) -> None:
        self._model = model
        self._bridge = bridge
        self._pool = pool
        self._publish = publish
        self._decoder = InputDecoder(codec, model.rate_hz, model.samples_per_frame)
        self._jobs: deque[_Job] = deque()
        self._streams: set[int] = set()  # not dropped, nor through
        self._busy = False

    def decode(self, stream: int, packets: tuple[bytes, ...], rate_hz: int) -> None:
        """Decode more of a stream; the first time opens it in the engine.

        `rate_hz` is that of the samples, the same for the whole stream.
        """
        if stream not in self._streams:
            self._streams.add(stream)
            self._bridge.listen_encoding(stream, self._on_encoding)
        if self._jobs and self._jobs[-1].stream == stream:
            self._jobs[-1].packets += packets
        else:
            self._jobs.append(_Job(stream, list(packets), rate_hz))
        self._advance()

    def end(self, stream: int) -> None:
        """Let the stream end after what it has."""
        self._jobs.append(_Job(stream, [], end=True))
        self._advance()

    def drop(self, stream: int) -> None:
        """Forget a stream, in the engine too."""
        if stream in self._streams:
            self._streams.discard(stream)
            self._bridge.cancel_encoding(stream)
        # The decoder must begin the next utterance afresh, so the end stays.
        self._jobs = deque(job for job in self._jobs if job.stream != stream)
        self._jobs.append(_Job(stream, [], end=True))
        self._advance()

    def close(self) -> None:
        """Forget everything."""
        for stream in list(self._streams):
            self._streams.discard(stream)
            self._bridge.cancel_encoding(stream)
        self._jobs.clear()

    def _advance(self) -> None:
        if self._busy or not self._jobs:
            return
        self._busy = True
        job = self._jobs.popleft()
        future = asyncio.get_running_loop().run_in_executor(self._pool, self._decode, job)
        future.add_done_callback(lambda done: self._decoded(job, done))

    def _decode(self, job: _Job) -> tuple[F32Samples, str]:
        if job.end:
            return self._decoder.finish(), ""
        return self._decoder.push(job.packets, job.rate_hz)

    def _decoded(self, job: _Job, done: asyncio.Future[tuple[F32Samples, str]]) -> None:
        self._busy = False
        if job.stream in self._streams:
            if error := done.exception():
                logger.error("encode_stream=%d status=broken", job.stream, exc_info=error)
                self._publish(Failed("encode", str(job.stream), "the decoder failed"))
                self.drop(job.stream)
            else:
                self._hand_over(job, *done.result())
        self._advance()

    def _hand_over(self, job: _Job, pcm: F32Samples, problem: str) -> None:
        if problem:
            self._publish(InputDamaged(job.stream, problem))
        if len(pcm) or job.end:
            self._bridge.send(Encode(job.stream, self._model.name, pcm, job.end, "keep"))

    def _on_encoding(self, event: Encoded | Failed) -> None:
        stream = event.stream if isinstance(event, Encoded) else int(event.id)
        if isinstance(event, Failed) or event.end:
            self._streams.discard(stream)
        self._publish(event)
