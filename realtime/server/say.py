"""`moss-realtime say`: speak into a file, with the engine on a thread and no server."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import dataclasses
import os
import sys
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from engine.api import Done, End, Feed, Frames, ModelInfo, Open, Refused
from engine.text.incremental import IncrementalTokenizer
from realtime.server.audio import FORMATS, AudioFormat, Writer, open_writer
from realtime.server.bridge import EngineError, RowEvent
from realtime.server.config import ConfigError, ServerConfig
from realtime.server.services import Services, build_local_services

MAX_AUDIO_S = 600.0
_SUFFIX_FORMATS: dict[str, AudioFormat] = {"ogg": "opus"}


@dataclasses.dataclass(slots=True)
class Timing:
    """When the text came and the sound, and how long it is."""

    text_at: float | None = None  # monotonic, as are the others
    first_audio_at: float | None = None
    ended_at: float = 0.0
    audio_s: float = 0.0

    def report(self) -> str:
        """Say how long the sound is and how fast it was made."""
        if self.text_at is None or self.first_audio_at is None:
            return "nothing to say"
        ttfa_ms = 1000 * (self.first_audio_at - self.text_at)
        factor = (self.ended_at - self.text_at) / self.audio_s
        sound = f"{self.audio_s:.2f} s of sound"
        return f"{sound}, first after {ttfa_ms:.0f} ms, real-time factor {factor:.2f}"


def say(config: ServerConfig, text: str, output: str, *, voice: str | None, seed: int) -> None:
    """Speak `text` (`-`: standard input, as it arrives) into the file `output`.

    Prints the time from the first text to the first sound and the real-time factor. Raises
    `EngineError`, `ConfigError`, `CheckpointError` and `OSError`.
    """
    audio_format = format_of(output)
    services = build_local_services(config)
    with open(output, "wb", buffering=0) as file:
        timing = asyncio.run(_run(services, text, audio_format, file, voice, seed))
    print(f"{output}: {timing.report()}")


async def _run(
    services: Services,
    text: str,
    audio_format: AudioFormat,
    file: BinaryIO,
    voice: str | None,
    seed: int,
) -> Timing:
    services.bridge.start()
    try:
        await services.start()
        if services.startup_error:
            raise EngineError(services.startup_error)
        model = services.talker.ready_info
        writer = open_writer(audio_format, model.rate_hz, model.channels)
        timing = Timing()
        row, events = services.bridge.new_id(), asyncio.Queue[RowEvent]()
        services.bridge.listen(row, events.put_nowait)
        services.bridge.send(_open(services, row, voice, seed))
        feeding = asyncio.create_task(_feed(services, row, text, timing), name="feed")
        try:
            await _write(events, writer, file, model, timing)
        finally:
            feeding.cancel()
        return timing
    finally:
        await services.bridge.stop()
        services.audio_pool.shutdown()


async def _write(
    events: asyncio.Queue[RowEvent],
    writer: Writer,
    file: BinaryIO,
    model: ModelInfo,
    timing: Timing,
) -> None:
    while not isinstance(event := await events.get(), Done | Refused):
        if isinstance(event, Frames):
            timing.first_audio_at = timing.first_audio_at or time.monotonic()
            timing.audio_s += len(event.pcm) / model.rate_hz
            file.write(writer.write(event.pcm))
    timing.ended_at = time.monotonic()
    file.write(writer.finish())
    if isinstance(event, Refused) or event.reason == "failed":
        raise EngineError(event.message if isinstance(event, Refused) else event.error)
    if event.reason != "completed":
        print(f"moss-realtime: stopped early ({event.reason})", file=sys.stderr)


def _open(services: Services, row: int, voice: str | None, seed: int) -> Open:
    prompt, model = services.prompt, services.talker.ready_info
    found = services.voices.get(voice) if voice else services.voices.default()
    if voice and not found:
        known = ", ".join(services.voices.names())
        raise ConfigError(f"there is no voice {voice!r}; there are {known}")
    nothing = np.zeros((0, prompt.n_vq), dtype=np.uint16)
    return Open(
        row=row,
        model=model.name,
        grid=prompt.dialogue([], found.codes if found else None, "training"),
        decoder_codes=nothing,
        generated=nothing,
        seed=seed,
        sampling=model.sampling_defaults,
        lane="throughput",
        prebuffer_ms=0,
        max_ahead_ms=int(MAX_AUDIO_S * 1000),
        max_frames=int(MAX_AUDIO_S * 1000 / model.frame_ms),
    )


async def _feed(services: Services, row: int, text: str, timing: Timing) -> None:
    bridge, tokenizer = services.bridge, IncrementalTokenizer(services.prompt.tokenizer)
    ids: list[int] = []
    blank = True  # nothing is spoken of a blank text
    async for piece in pieces(text):
        timing.text_at = timing.text_at or time.monotonic()
        blank = blank and not piece.strip()
        ids += tokenizer.feed(piece)
        if ids and not blank:
            bridge.send(Feed(row, tuple(ids)))
            ids = []
    ids += tokenizer.finish()
    if ids and not blank:
        bridge.send(Feed(row, tuple(ids)))
    bridge.send(End(row))


async def pieces(text: str) -> AsyncIterator[str]:
    """Yield the text; of `-` what standard input brings, as it comes."""
    if text != "-":
        yield text
        return
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    arrived = _standard_input()
    while data := await arrived.get():
        yield decoder.decode(data)
    yield decoder.decode(b"", final=True)


def _standard_input() -> asyncio.Queue[bytes]:
    """Bytes as they arrive, then an empty piece."""
    loop, arrived = asyncio.get_running_loop(), asyncio.Queue[bytes]()

    def read() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens any more
            data = b"more"
            while data:
                data = os.read(sys.stdin.fileno(), 4096)
                loop.call_soon_threadsafe(arrived.put_nowait, data)

    # A daemon: nothing wakes a thread that waits for a terminal, and Ctrl-C must not wait for it.
    threading.Thread(target=read, name="standard-input", daemon=True).start()
    return arrived


def format_of(output: str) -> AudioFormat:
    """Return the format that a file's name asks for. Raises `ConfigError`."""
    suffix = Path(output).suffix.lstrip(".").lower()
    for audio_format in FORMATS:
        if audio_format == _SUFFIX_FORMATS.get(suffix, suffix):
            return audio_format
    raise ConfigError(f"--output {output!r} must end in one of .{', .'.join(FORMATS)}")
