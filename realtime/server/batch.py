"""`moss-realtime batch`: speak the lines of a file, each into a file of its own."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import random
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
from tqdm import tqdm

from realtime.server.batch_input import BadLine, Line, read_lines
from realtime.server.batch_output import BatchOutput
from realtime.server.bridge import EngineError
from realtime.server.config import ConfigError, ServerConfig
from realtime.server.services import build_local_services
from realtime.server.speech import SpeechEndpoint
from realtime.server.speech_batch import Room, speak_item

Speak = Callable[[Line], Awaitable[dict[str, Any]]]
"""Speaks a line; returns its result as the batch endpoint tells it, with the file in bytes."""

FACTS = ("sample_rate", "channels", "audio_duration_ms", "finish_reason", "voice")
TRIES = 6
FIRST_WAIT_S = 1.0
BUSY = frozenset({429, 503})
_NO_LIMIT_BYTES = 1 << 40
_ANSWER_TIMEOUT_S = 3600.0  # of one line: its place in the queue, and sound that may be long


class Unreachable(EngineError):
    """There is no server, now at least; none of the lines can be spoken."""


@dataclasses.dataclass(frozen=True, slots=True)
class Task:
    """What to speak, and where to."""

    source: Path
    directory: Path
    defaults: dict[str, Any]
    parallel: int


def run_batch(config: ServerConfig, task: Task, server: str | None, api_key: str | None) -> int:
    """Speak all lines that are not done yet, with the server at `server` or an engine in here.

    Returns 0 when all are done, else 1; what went wrong is told by line number. Raises
    `ConfigError`, `EngineError`, `CheckpointError` and `OSError`.
    """
    with task.source.open("rb") as file:
        lines = read_lines(file, task.defaults)
    with BatchOutput(task.directory) as output:
        speaker = _remote(server, api_key, task.parallel) if server else _local(config)
        return asyncio.run(_Run(task, lines, output).run(speaker))


class _Run:
    def __init__(self, task: Task, lines: list[Line | BadLine], output: BatchOutput) -> None:
        self._parallel = task.parallel
        self._bad = [line for line in lines if isinstance(line, BadLine)]
        self._good = [line for line in lines if isinstance(line, Line)]
        self._todo = [line for line in self._good if not output.has(line)]
        self._output = output
        self._audio_ms = 0

    async def run(self, speaker: contextlib.AbstractAsyncContextManager[Speak]) -> int:
        for bad in self._bad:
            _complain(bad.number, bad.problem)
        total = len(self._good) + len(self._bad)
        there = len(self._good) - len(self._todo)
        failed = len(self._bad)
        with tqdm(total=total, initial=there + failed, unit="line", disable=None) as bar:
            if self._todo:
                async with speaker as speak:
                    failed += await self._speak_all(speak, bar)
        spoken = total - there - failed
        print(f"{spoken} spoken, {there} done before, {failed} failed", end="")
        print(f"; {self._audio_ms / 1000:.2f} s of sound" if spoken else "")
        return 1 if failed else 0

    async def _speak_all(self, speak: Speak, bar: tqdm) -> int:
        lines = iter(self._todo)
        failures = 0

        async def work() -> None:
            nonlocal failures
            for line in lines:
                is_spoken = await self._speak(speak, line)  # others may count meanwhile
                failures += not is_spoken
                bar.update()

        try:
            async with asyncio.TaskGroup() as group:
                for number in range(min(self._parallel, len(self._todo))):
                    group.create_task(work(), name=f"batch-{number}")
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return failures

    async def _speak(self, speak: Speak, line: Line) -> bool:
        result = await patiently(speak, line)
        if result["status"] == "error":
            _complain(line.number, result["error"]["message"])
            return False
        facts = {name: result[name] for name in FACTS if name in result}
        sound = result["audio_data"]
        await asyncio.to_thread(self._output.add, line, sound, facts)
        self._audio_ms += result["audio_duration_ms"]
        if result["finish_reason"] != "stop":
            _complain(line.number, "stopped early: the sound is as long as it may be")
        return True


async def patiently(
    speak: Speak, line: Line, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
) -> dict[str, Any]:
    """Ask again while the server is busy or away, each time later. Raises `Unreachable`."""
    for attempt in range(1, TRIES + 1):
        wait_s = FIRST_WAIT_S * 2 ** (attempt - 1)
        try:
            result = await speak(line)
        except Unreachable:
            if attempt == TRIES:
                raise
        else:
            if result["status_code"] not in BUSY or attempt == TRIES:
                return result
            wait_s = max(wait_s, result.get("retry_after_s", 0))
        await sleep(wait_s * (1 + random.random()))
    raise AssertionError("the last try returns or raises")


def _complain(number: int, problem: str) -> None:
    tqdm.write(f"line {number}: {problem}", file=sys.stderr)


@contextlib.asynccontextmanager
async def _local(config: ServerConfig) -> AsyncIterator[Speak]:
    """An engine on a thread of this process, asked as the endpoint asks."""
    services = build_local_services(config)
    endpoint = SpeechEndpoint(services)
    services.bridge.start()
    try:
        await services.start()
        if services.startup_error:
            raise EngineError(services.startup_error)

        async def speak(line: Line) -> dict[str, Any]:
            item_id, room = f"line-{line.number}", Room(_NO_LIMIT_BYTES)
            result = await speak_item(endpoint.answer, line.fields, item_id, room)
            if result["status"] == "error" and not services.bridge.up:
                raise EngineError(f"line {line.number}: {result['error']['message']}")
            return result

        yield speak
    finally:
        await services.bridge.stop()
        services.audio_pool.shutdown()


@contextlib.asynccontextmanager
async def _remote(url: str, api_key: str | None, parallel: int) -> AsyncIterator[Speak]:
    """A server, asked line by line: what is done is kept, and its busy places are waited for."""
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    limits = httpx.Limits(max_connections=parallel)
    try:
        client = httpx.AsyncClient(
            base_url=url, headers=headers, limits=limits, timeout=_ANSWER_TIMEOUT_S
        )
    except (httpx.InvalidURL, ValueError) as error:
        raise ConfigError(f"--server {url!r}: {error}") from None

    async def speak(line: Line) -> dict[str, Any]:
        body = {"items": [line.fields]}
        try:
            answer = await client.post("/v1/audio/speech/batch", json=body)
        except httpx.UnsupportedProtocol:
            message = f"--server: not the address of a server: {url!r} (try http://127.0.0.1:8000)"
            raise ConfigError(message) from None
        except httpx.TransportError as error:
            reason = str(error) or type(error).__name__
            raise Unreachable(f"{url} does not answer ({reason}); run it again to go on") from None
        return _result(answer)

    async with client:
        yield speak


def _result(answer: httpx.Response) -> dict[str, Any]:
    if answer.status_code == 200:
        result: dict[str, Any] = answer.json()["results"][0]
        if "audio_data" in result:
            result["audio_data"] = base64.b64decode(result["audio_data"])
        return result
    try:
        message = answer.json()["error"]["message"]
    except (ValueError, TypeError, KeyError):
        message = answer.text[:200]
    message = f"HTTP {answer.status_code}: {message}"
    if answer.status_code in (401, 403, 404, 405):
        raise EngineError(message)  # the same for every line
    wait = answer.headers.get("retry-after", "")
    return {
        "status": "error",
        "status_code": answer.status_code,
        "error": {"message": message},
        "retry_after_s": int(wait) if wait.isdigit() else 0,
    }
