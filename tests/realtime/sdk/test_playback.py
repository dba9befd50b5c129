"""Replies played through a sink with a clock of its own, against a real server."""

from __future__ import annotations

import asyncio
import itertools
import threading
from dataclasses import replace

import pytest

from engine import api
from engine.fake import FakeScript
from realtime.protocol.messages import Playback, ResponseSegment
from realtime.sdk import AudioRequest, Client, ResponseFailed, Speaker, playback, sync
from realtime.sdk.reply import Reply
from tests.realtime.sdk.sinks import ClockSink, OwnClockSink

pytestmark = pytest.mark.anyio

RAMP = FakeScript(sound="ramp")
SHORT = "Good evening, and welcome to the show."
LONG = "Tonight we have a guest, and she has a story to tell that takes its time. " * 3


@pytest.fixture(autouse=True)
def quick_polls(monkeypatch):
    monkeypatch.setattr(playback, "POLL_S", 0.001)


def reports_of(session) -> list[Playback]:
    """The reports that the session sends from now on."""
    reports, send = [], session.send

    async def noting(message):
        if isinstance(message, Playback):
            reports.append(message)
        await send(message)

    session.send = noting
    return reports


async def passes(sink: ClockSink, playing: asyncio.Task, step_ms: float = 40.0):
    """Let time pass until a reply was heard to its end; returns how it ended."""
    async with asyncio.timeout(60):
        while not playing.done():
            sink.advance(step_ms)
            await asyncio.sleep(0.001)
    return await playing


async def test_a_reply_is_heard_whole_and_the_server_follows_it(run_server):
    server, sink = run_server(RAMP), ClockSink()
    async with Client(server.base_url) as session, Speaker(session, sink) as speaker:
        reports = reports_of(session)
        done = await passes(sink, asyncio.create_task(speaker.play(session.say(LONG))))
        assert done.status == "completed"
        assert sink.opened == (24000, 1)
        assert sink.indices == [n % 65535 for n in range(round(done.audio_ms * 24))]
    assert sink.is_closed
    assert [report.state for report in reports].count("done") == 1
    assert (reports[-1].state, reports[-1].played_ms) == ("done", done.audio_ms)
    assert reports[-1].buffered_ms == 0
    positions = [report.played_ms for report in reports]
    assert positions == sorted(positions)
    assert all(
        after.played_ms - before.played_ms >= playback.REPORT_EVERY_MS
        for before, after in itertools.pairwise(reports)
        if before.state == after.state
    )
    # The reports are the server's credit: it is never further ahead than it may be.
    played = [c.samples for _, c in server.engine.log if isinstance(c, api.Played)]
    assert played == sorted(played)
    assert done.metrics.flow_paused_ms is not None
    opened = next(c for _, c in server.engine.log if isinstance(c, api.Open))
    assert opened.max_ahead_ms == 4000
    assert done.audio_ms > 2 * opened.max_ahead_ms


async def test_the_server_waits_for_the_listener_only_while_a_speaker_is_open(
    run_server, eventually
):
    server, sink = run_server(RAMP), ClockSink()
    async with Client(server.base_url) as session:
        async with Speaker(session, sink) as speaker:
            playing = asyncio.create_task(speaker.play(session.say(LONG)))
            await eventually(lambda: sink.written_ms == 4000)
            await asyncio.sleep(0.01)
            assert sink.written_ms == 4000
            await speaker.interrupt()
            await playing
        done = await session.say(LONG).wait()
        assert done.audio_ms > 4000


async def test_a_stall_is_told_and_so_is_its_end(run_server, eventually):
    server, sink = run_server(RAMP), ClockSink()
    is_sent, goes_on = asyncio.Event(), asyncio.Event()

    async def halting():
        yield SHORT + " "
        is_sent.set()
        await goes_on.wait()
        yield SHORT

    async def first_segment(session):
        async for message in session.events():
            if isinstance(message, ResponseSegment):
                return message

    async with Client(server.base_url) as session, Speaker(session, sink) as speaker:
        reports = reports_of(session)
        segment = asyncio.create_task(first_segment(session))
        reply = session.say(halting())
        playing = asyncio.create_task(speaker.play(reply))
        await is_sent.wait()
        await reply.flush()
        spoken_ms = (await segment).audio_end_ms
        await eventually(lambda: sink.written_ms == spoken_ms)
        while not any(report.state == "stalled" for report in reports):
            sink.advance(20)
            await asyncio.sleep(0.001)
        stalled = reports[-1]
        assert (stalled.buffered_ms, stalled.underruns) == (0, 1)
        assert stalled.played_ms == spoken_ms > 0
        count = len(reports)
        await asyncio.sleep(0.01)
        assert len(reports) == count  # said once
        goes_on.set()
        done = await passes(sink, playing)
    states = [state for state, _ in itertools.groupby(report.state for report in reports)]
    assert states[:3] == ["playing", "stalled", "playing"]
    assert states[-1] == "done"
    assert reports[-1].played_ms == done.audio_ms


async def test_an_interrupt_is_silent_at_once_and_history_keeps_what_was_heard(
    run_server, eventually
):
    server, sink = run_server(RAMP), ClockSink()
    async with Client(server.base_url) as session, Speaker(session, sink) as speaker:
        playing = asyncio.create_task(speaker.play(session.say(LONG)))
        await eventually(lambda: sink.written_ms >= 2000)
        sink.advance(1000)
        interrupting = asyncio.create_task(speaker.interrupt())
        await asyncio.sleep(0)
        assert len(sink.stopped) == 1  # before the server has heard of it
        assert sink.stopped[0] >= 24000
        done = await interrupting
        assert (done.status, done.heard_ms) == ("cancelled", 1000)
        assert (done.heard_source, done.clamped) == ("client", False)
        assert await playing == done
        assert not sink.written
        assert await speaker.interrupt() is None
        (item,) = await session.history()
        assert item.audio_ms == 960
        assert item.text == LONG[: len(item.text)] != item.generated_text == LONG
        assert item.text
        # The next reply begins at its first sample, and its position at 0.
        after = await passes(sink, asyncio.create_task(speaker.play(session.say(SHORT))))
        assert sink.indices == list(range(round(after.audio_ms * 24)))


async def test_sound_of_a_queued_reply_that_was_interrupted_never_reaches_the_sink(
    run_server, eventually
):
    server, sink = run_server(RAMP), ClockSink()
    async with Client(server.base_url) as session, Speaker(session, sink) as speaker:
        first, second = session.say(SHORT), session.say(LONG)
        playing = [asyncio.create_task(speaker.play(reply)) for reply in (first, second)]
        await first.wait()
        await eventually(lambda: second._sound.qsize())
        sink.advance(400)
        late = await speaker.interrupt()  # the first is made, but still playing
        assert late.status == "completed"
        async with asyncio.timeout(20):
            ended = await asyncio.gather(*playing)
        assert [done.status for done in ended] == ["completed", "cancelled"]
        assert not sink.written
        assert [item.audio_ms for item in await session.history()] == [400]
        done = await passes(sink, asyncio.create_task(speaker.play(session.say(SHORT))))
        assert sink.indices == list(range(round(done.audio_ms * 24)))


async def test_an_interrupt_before_any_sound(run_server):
    server, sink = run_server(replace(RAMP, block_after_frames=0)), ClockSink()
    async with Client(server.base_url) as session, Speaker(session, sink) as speaker:
        playing = asyncio.create_task(speaker.play(session.say(SHORT)))
        await asyncio.sleep(0)
        done = await speaker.interrupt()
        assert (done.status, done.heard_ms) == ("cancelled", 0)
        assert await playing == done
        assert await session.history() == ()


async def test_what_came_of_a_reply_that_fails_is_heard_first(run_server):
    server, sink = run_server(replace(RAMP, fail_after_frames=5)), ClockSink()
    async with Client(server.base_url) as session, Speaker(session, sink) as speaker:
        playing = asyncio.create_task(speaker.play(session.say(LONG)))
        with pytest.raises(ResponseFailed, match="internal"):
            await passes(sink, playing)
        assert sink.heard_samples() == 5 * 1920
        assert sink.stopped == []


async def test_cancelling_a_play_or_leaving_the_block_makes_silence(run_server, eventually):
    server, sink = run_server(RAMP), ClockSink()
    async with Client(server.base_url) as session:
        async with Speaker(session, sink) as speaker:
            reply = session.say(LONG)
            playing = asyncio.create_task(speaker.play(reply))
            await eventually(lambda: sink.written)
            playing.cancel()
            await asyncio.wait([playing])
            assert len(sink.stopped) == 1
            await reply.cancel()
            playing = [asyncio.create_task(speaker.play(session.say(LONG))) for _ in range(2)]
            await eventually(lambda: sink.written)
        assert len(sink.stopped) == 2
        assert sink.is_closed
        assert await asyncio.gather(*playing) == [None, None]
        with pytest.raises(RuntimeError, match="open the speaker"):
            await speaker.play(session.say(SHORT))


async def test_sound_that_a_speaker_does_not_play_is_refused(run_server):
    server = run_server(RAMP)
    async with Client(server.base_url, audio=AudioRequest(codec="opus")) as session:
        with pytest.raises(ValueError, match=r"plays pcm_s16le.* is opus"):
            await Speaker(session, ClockSink()).__aenter__()


def test_lost_sound_counts_where_a_position_is_told():
    reply = Reply(None, "r")
    reply.take([b"ab"], 80, lost_ms=0, epoch=0)
    reply.take([b"cd"], 80, lost_ms=400, epoch=0)
    assert [reply.position_ms(ms) for ms in (0, 80, 81, 160)] == [0, 80, 481, 560]


def test_the_facade_without_asyncio_plays_and_interrupts(run_server):
    server, reached = run_server(RAMP), threading.Event()
    mark_ms = [1e9]
    sink = OwnClockSink(20, lambda ms: reached.set() if ms >= mark_ms[0] else None)
    with sync.Client(server.base_url) as session, sync.Speaker(session, sink) as speaker:
        reply = session.say(SHORT)
        done = speaker.play(reply)
        assert done == reply.done
        assert sink.indices == list(range(round(done.audio_ms * 24)))
        mark_ms[0] = done.audio_ms + 500
        barging_in = threading.Thread(target=lambda: reached.wait(20) and speaker.interrupt())
        barging_in.start()
        cut = speaker.play(session.say(LONG))
        barging_in.join()
        assert (cut.status, cut.heard_source) == ("cancelled", "client")
        assert 500 <= cut.heard_ms < cut.sent_ms
        assert session.history()[-1].audio_ms == cut.heard_ms // 80 * 80
    assert sink.is_closed
