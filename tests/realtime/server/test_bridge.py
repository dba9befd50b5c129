"""Commands reach the engine, events their listener, wherever the engine runs and if it dies."""

import asyncio
import dataclasses
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import numpy as np
import pytest

from engine import api
from engine.fake import FAKE_MODEL, FakeEngine, FakeScript
from engine.index_sound import chirp
from realtime.server import engine_process
from realtime.server.bridge import EngineBridge, EngineError
from realtime.server.engine_process import EngineLink, EngineProcess, LocalEngine

pytestmark = pytest.mark.anyio

NO_CODES = np.zeros((0, 8), dtype=np.uint16)


def child(stuck_after_s: float = 60.0, **script: object) -> EngineProcess:
    return EngineProcess({"fake": dataclasses.asdict(FakeScript(**script))}, stuck_after_s)


def local(**script: object) -> LocalEngine:
    return LocalEngine(lambda publish: FakeEngine(publish, FakeScript(**script)))


@asynccontextmanager
async def bridged(link: EngineLink, **settings: float) -> AsyncIterator[EngineBridge]:
    bridge = EngineBridge(link, **settings)
    bridge.start()
    try:
        await bridge.ready()
        yield bridge
    finally:
        await bridge.stop()


def open_row(
    bridge: EngineBridge,
    text_ids: int = 1,
    made: np.ndarray | None = None,
    lane: api.Lane = "live",
) -> "asyncio.Queue[object]":
    """Open a row, or go on with one of which frames were made."""
    events: asyncio.Queue[object] = asyncio.Queue()
    row = bridge.new_id()
    bridge.listen(row, events.put_nowait)
    command = api.Open(
        row,
        FAKE_MODEL.name,
        grid=np.zeros((3, 9), dtype=np.int32),
        decoder_codes=NO_CODES,
        generated=NO_CODES if made is None else made,
        seed=1,
        sampling=api.Sampling(),
        lane=lane,
        prebuffer_ms=0,
        max_ahead_ms=60_000,
        max_frames=99,
    )
    (bridge.send if made is None else bridge.reopen)(command)
    bridge.send(api.Feed(row, tuple(range(text_ids))))
    bridge.send(api.End(row))
    return events


async def until_done(events: "asyncio.Queue[object]") -> list[object]:
    got = [await asyncio.wait_for(events.get(), 20)]
    while not isinstance(got[-1], api.Done | api.Refused):
        got.append(await asyncio.wait_for(events.get(), 20))
    return got


@pytest.mark.parametrize("link", [local, child])
async def test_a_row_is_spoken_and_sound_is_encoded(link: Callable[..., EngineLink]) -> None:
    async with bridged(link(chunk_ramp_frames=(1, 4, 15))) as bridge:
        assert bridge.models == (FAKE_MODEL,)
        *frames, segment, done = await until_done(open_row(bridge))
        np.testing.assert_array_equal(
            np.concatenate([e.pcm[:, 0] for e in frames]), chirp(0, 8 * 1920, 24000)
        )
        assert isinstance(segment, api.Segment)
        assert done.reason == "completed"
        assert not bridge.busy
        codes = await bridge.encode(np.ones(1920 * 50, dtype=np.float32), "normalise")
        assert codes.shape == (50, 8)
        assert (codes == codes[0]).all()
        assert bridge.progress_age_s() < 60


async def test_a_killed_engine_is_restarted_and_its_rows_fail_as_restarted(eventually):
    link = child(block_after_frames=2)
    async with bridged(link) as bridge:
        events = open_row(bridge)
        assert isinstance(await events.get(), api.Frames)
        first_pid = link.pid
        os.kill(first_pid, signal.SIGKILL)
        *_, done = await until_done(events)
        assert done.reason == "failed"
        assert done.error.startswith("engine_restarted: it was ended by SIGKILL, as happens when")
        refused = (await until_done(open_row(bridge, lane="throughput")))[-1]
        assert (refused.code, refused.retry_after_ms) == ("overloaded", 2000)
        with pytest.raises(EngineError, match="starting"):
            await bridge.encode(np.zeros(10, np.float32), "keep")
        await eventually(lambda: bridge.up)
        assert link.pid != first_pid
        assert isinstance(await open_row(bridge).get(), api.Frames)


async def test_a_row_goes_on_in_the_next_engine(eventually):
    link = child()
    async with bridged(link) as bridge:
        *frames, _, _ = await until_done(open_row(bridge))
        whole = np.concatenate([e.codes for e in frames])
        os.kill(link.pid, signal.SIGKILL)
        await eventually(lambda: not bridge.up)
        *frames, segment, done = await until_done(open_row(bridge, made=whole[:3]))
        assert frames[0].first_frame == 3
        np.testing.assert_array_equal(np.concatenate([e.codes for e in frames]), whole[3:])
        assert (segment.end_frame, done.reason) == (len(whole), "completed")


async def test_a_live_row_that_begins_while_no_engine_runs_waits_for_the_next(eventually):
    link = child()
    async with bridged(link) as bridge:
        os.kill(link.pid, signal.SIGKILL)
        await eventually(lambda: not bridge.up)
        assert (await until_done(open_row(bridge)))[-1].reason == "completed"


async def test_a_row_that_no_engine_comes_for_is_refused(eventually):
    async with bridged(local(die_after_frames=0)) as bridge:
        await until_done(open_row(bridge))
        [refused] = await until_done(open_row(bridge, made=NO_CODES))
        assert refused.code == "engine_restarted"
    link = child()
    async with bridged(link, restart_wait_s=0.01) as bridge:
        os.kill(link.pid, signal.SIGKILL)
        await eventually(lambda: not bridge.up)
        [refused] = await until_done(open_row(bridge, made=NO_CODES))
        assert refused.code == "engine_restarted"
        await eventually(lambda: bridge.up)
        assert not bridge.busy


async def test_sound_that_was_being_encoded_is_encoded_by_the_next_engine(eventually):
    link, events = child(), []
    pcm = np.linspace(0, 1, 1920 * 20, dtype=np.float32)
    async with bridged(link) as bridge:
        whole = await bridge.encode(pcm, "keep")
        stream = bridge.new_id()
        bridge.listen_encoding(stream, events.append)
        bridge.send(api.Encode(stream, FAKE_MODEL.name, pcm[:20_000], False, "keep"))
        await eventually(lambda: bool(events))
        os.kill(link.pid, signal.SIGKILL)
        bridge.send(api.Encode(stream, FAKE_MODEL.name, pcm[20_000:30_000], False, "keep"))
        await eventually(lambda: not bridge.up)
        bridge.send(api.Encode(stream, FAKE_MODEL.name, pcm[30_000:], True, "keep"))
        await eventually(lambda: events[-1].end)
        assert not bridge.busy
    starts = np.cumsum([0, *(len(event.codes) for event in events)])
    assert [event.first_frame for event in events] == starts[:-1].tolist()
    np.testing.assert_array_equal(np.concatenate([e.codes for e in events]), whole)


async def test_sound_that_kills_engines_is_given_up(monkeypatch, eventually):
    monkeypatch.setattr(engine_process, "FIRST_RESTART_DELAY_S", 0.01)
    link, events = child(), []
    async with bridged(link) as bridge:
        stream = bridge.new_id()
        bridge.listen_encoding(stream, events.append)
        bridge.send(api.Encode(stream, FAKE_MODEL.name, np.zeros(9, np.float32), False, "keep"))
        for _ in range(4):
            assert not events
            await eventually(lambda: bridge.up)
            os.kill(link.pid, signal.SIGKILL)
            await eventually(lambda: not bridge.up)
        [failed] = events
        assert failed.error.startswith("engine_restarted: ")


async def test_an_engine_that_hangs_in_a_tick_is_replaced(eventually):
    link = child(stuck_after_s=1.0, hang_after_frames=3)
    async with bridged(link) as bridge:
        events, first_pid = open_row(bridge), link.pid
        *frames, done = await until_done(events)
        assert len(frames) == 3
        assert done.error == "engine_restarted: it made no progress for 1 s"
        await eventually(lambda: bridge.up)
        assert link.pid != first_pid


async def test_an_engine_that_is_frozen_while_idle_is_replaced(eventually):
    link = child(stuck_after_s=1.0)
    async with bridged(link) as bridge:
        os.kill(link.pid, signal.SIGSTOP)
        await eventually(lambda: not bridge.up)
        await eventually(lambda: bridge.up)
        assert (await until_done(open_row(bridge)))[-1].reason == "completed"


async def test_stopping_while_the_next_engine_starts(eventually):
    link = child()
    async with bridged(link) as bridge:
        os.kill(link.pid, signal.SIGKILL)
        await eventually(lambda: not bridge.up)
    assert not _alive(link.pid)


async def test_an_engine_that_raises_says_why() -> None:
    async with bridged(child(die_after_frames=1)) as bridge:
        *_, done = await until_done(open_row(bridge))
        assert done.error == "engine_restarted: RuntimeError: scripted death after 1 frames"


async def test_an_engine_that_cannot_start_is_not_tried_again() -> None:
    link = EngineProcess({"engines": [{"colour": "blue"}]})
    bridge = EngineBridge(link)
    bridge.start()
    with pytest.raises(EngineError, match="colour"):
        await bridge.ready()
    assert not bridge.up
    await bridge.stop()


async def test_cancelling_an_encoding_tells_the_engine(eventually):
    engines: list[FakeEngine] = []

    def build(publish: Callable[[api.Event], None]) -> FakeEngine:
        engines.append(FakeEngine(publish, FakeScript(hang_after_frames=0)))
        return engines[0]

    async with bridged(LocalEngine(build)) as bridge:
        open_row(bridge)
        encoding = asyncio.create_task(bridge.encode(np.zeros(9, np.float32), "keep"), name="enc")
        await asyncio.sleep(0)
        encoding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await encoding
        engines[0].release()
        log = engines[0].log
        await eventually(lambda: any(isinstance(c, api.CancelEncode) for _, c in log))


async def test_progress_grows_old_when_the_engine_hangs_with_work_to_do(eventually):
    engines: list[FakeEngine] = []

    def build(publish: Callable[[api.Event], None]) -> FakeEngine:
        engines.append(FakeEngine(publish, FakeScript(hang_after_frames=0)))
        return engines[0]

    async with bridged(LocalEngine(build)) as bridge:
        open_row(bridge)
        await eventually(lambda: bridge.progress_age_s() > 0.5)
        engines[0].release()
        await eventually(lambda: bridge.progress_age_s() < 0.3)


async def test_the_child_ends_when_its_server_is_killed(eventually):
    code = (
        "import dataclasses, time\n"
        "from engine.fake import FakeScript\n"
        "from realtime.server.engine_process import EngineProcess\n"
        "link = EngineProcess({'fake': dataclasses.asdict(FakeScript())})\n"
        "link.start(lambda event: print(link.pid, flush=True))\n"
    )
    server = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=subprocess.PIPE
    )
    pid = int(await server.stdout.readline())
    server.kill()
    await server.wait()
    await eventually(lambda: not _alive(pid))


def _alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
