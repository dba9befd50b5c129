"""`moss-realtime say --server URL`: a server speaks; this process only writes the file."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import BinaryIO

import numpy as np

from realtime.protocol.messages import Generation
from realtime.sdk import Client
from realtime.server.audio import AudioFormat, open_writer
from realtime.server.config import ConfigError
from realtime.server.say import Timing, format_of, pieces


def say_remote(
    url: str, text: str, output: str, *, api_key: str | None, voice: str | None, seed: int
) -> None:
    """Have the server at `url` speak `text` (`-`: standard input, as it arrives) into a file.

    Prints what `say` prints, on the clock of this side. Raises `MossError`, `ConfigError` and
    `OSError`.
    """
    audio_format = format_of(output)
    try:
        client = Client(url, api_key=api_key, voice=voice, generation=Generation(seed=seed))
    except ValueError as error:
        raise ConfigError(f"--server: {error}") from None
    with open(output, "wb", buffering=0) as file:
        timing = asyncio.run(_run(client, text, audio_format, file))
    print(f"{output}: {timing.report()}")


async def _run(client: Client, text: str, audio_format: AudioFormat, file: BinaryIO) -> Timing:
    timing = Timing()

    async def timed() -> AsyncIterator[str]:
        async for piece in pieces(text):
            timing.text_at = timing.text_at or time.monotonic()
            yield piece

    async with client as session:
        channels = session.started.audio.channels
        writer = open_writer(audio_format, session.rate_hz, channels)
        async for sound in session.say(timed()):
            timing.first_audio_at = timing.first_audio_at or time.monotonic()
            samples = np.frombuffer(sound, "<i2").astype(np.float32) / np.float32(32767)
            pcm = samples.reshape(-1, channels)
            timing.audio_s += len(pcm) / session.rate_hz
            file.write(writer.write(pcm))
        timing.ended_at = time.monotonic()
        file.write(writer.finish())
    return timing
