"""The whole bench on a real server with a fake engine: what it counts, and what it writes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pytest

from engine.fake import FakeScript
from realtime.bench.__main__ import main
from realtime.bench.chart import Series, line_chart, nice_range
from realtime.bench.loads import Clock
from realtime.bench.summary import Round, summarise
from realtime.bench.trip import Trip
from realtime.bench.voice_agent import Dialling, run_agents
from realtime.bench.workload import Agent, Delta, Turn
from realtime.sdk.link import Address

if TYPE_CHECKING:
    from tests.running_server import RunningServer

RunServer = Callable[..., "RunningServer"]
TEXT = (Delta(0.1, "One two three "), Delta(0.3, "four five six seven."))


class HurriedClock(Clock):
    """Whoever waits goes on at once, and finds that the time has passed."""

    def __init__(self) -> None:
        super().__init__()
        self._skipped_s = 0.0

    def __call__(self) -> float:
        return super().__call__() + self._skipped_s

    async def sleep(self, seconds: float) -> None:
        self._skipped_s += max(0.0, seconds)
        await asyncio.sleep(0.001)


def turn(**fields: Any) -> Turn:
    return Turn(**{"think_s": 3.0, "deltas": TEXT} | fields)


def bench(server: RunningServer, out: Path, *words: str) -> dict[str, Any]:
    load, *flags = words
    assert main([load, "--server", server.base_url, "--out", str(out), *flags]) == 0
    report: dict[str, Any] = json.loads((out / "report.json").read_text())
    return report


@pytest.mark.slow
@pytest.mark.parametrize("way", ["ws", "speech", "speech --sse", "speech --format wav"])
def test_a_closed_loop_is_counted_and_reported(
    running_server: RunningServer, tmp_path: Path, way: str
) -> None:
    flags = ("--requests", "6", "--concurrency", "2", "--rounds", "2", "--endpoint", *way.split())
    report = bench(
        running_server,
        tmp_path,
        "closed-loop",
        *flags,
        "--trips",
        "--warm-up",
        "3",
        "--slo",
        "rtf=-1",
    )
    assert report["summary"]["throughput"]["goodput_per_s"] == 0.0
    summary = report["summary"]
    counts = {
        "asked": 12,
        "ok": 12,
        "empty": 0,
        "sound_lost": 0,
        "slow_readers": 0,
        "completed": 12,
    }
    assert summary["responses"] == counts
    assert summary["rounds"] == 2
    rows = {command.row for _, command in running_server.engine.log if hasattr(command, "row")}
    assert len(rows) == 12 + 3
    durations = [sum(piece["duration_s"] for piece in trip["pieces"]) for trip in report["trips"]]
    assert summary["throughput"]["audio_s"] == pytest.approx(sum(durations), abs=0.001)
    # Each is a whole number of frames, so not a sample was lost.
    assert all(abs(seconds / 0.08 - round(seconds / 0.08)) < 1e-6 for seconds in durations)
    assert summary["client_clock_ms"]["ttfa"]["n"] == 12
    assert summary["server_clock_ms"]["ttfa"]["n"] == (12 if way in ("ws", "speech --sse") else 0)
    assert report["load"]["kind"] == "closed-loop"
    assert report["server"]["models"] == ["moss-tts-realtime"]
    assert "--requests 6" in report["command"]


@pytest.mark.slow
def test_the_page_needs_nothing_else_and_has_its_plots(
    running_server: RunningServer, tmp_path: Path
) -> None:
    flags = ("--size", "4", "--bursts", "2", "--every-s", "0.01", "--note", "gpu=<none>")
    report = bench(running_server, tmp_path, "burst", *flags)
    assert report["summary"]["responses"]["ok"] == 8
    page = (tmp_path / "report.html").read_text()
    assert page.count("<polyline") >= 3 + 8
    assert "&lt;none&gt;" in page
    assert "<script" not in page
    assert "http://" not in page.replace(running_server.base_url, "")
    assert "trips" not in report


@pytest.mark.slow
def test_strangers_that_find_no_place_are_refused_and_no_success(
    run_server: RunServer, tmp_path: Path
) -> None:
    server = run_server(FakeScript(refuse="overloaded"))
    flags = ("--requests", "3", "--per-s", "1000", "--warm-up", "0")
    for endpoint in ("ws", "speech"):
        report = bench(server, tmp_path, "poisson", *flags, "--endpoint", endpoint)
        counts = report["summary"]["responses"]
        assert (counts["asked"], counts["ok"], counts["refused"]) == (3, 0, 3)


@pytest.mark.slow
def test_empty_answers_and_broken_ones_are_failures(run_server: RunServer, tmp_path: Path) -> None:
    flags = ("--requests", "2", "--warm-up", "0", "--endpoint")
    for script in (FakeScript(frames_per_id=0, tail_frames=0), FakeScript(fail_after_frames=2)):
        server = run_server(script)
        for way in ("ws", "speech", "speech --sse"):
            report = bench(server, tmp_path, "closed-loop", *flags, *way.split())
            counts = report["summary"]["responses"]
            assert (counts["ok"], counts["failed"]) == (0, 2)
            assert sum(report["summary"]["errors"].values()) == 2


def talk(server: RunningServer, *agents: Agent, max_ahead_ms: int | None = None) -> list[Trip]:
    dialling = Dialling(Address(server.ws_url, {}), "heart", max_ahead_ms)
    return asyncio.run(run_agents(dialling, agents, HurriedClock()))


@pytest.mark.slow
def test_agents_talk_turn_by_turn(running_server: RunningServer) -> None:
    trips = talk(running_server, Agent((turn(), turn())), Agent((turn(),)))
    assert [trip.ending for trip in trips] == ["completed"] * 3
    for trip in trips:
        assert trip.first_text_s is not None
        assert trip.speakable_s is not None
        assert trip.sent_s < trip.first_text_s < trip.speakable_s
        assert trip.server is not None
        # Each of the agents waited for the end of its playback before it went on.
    summary = summarise([Round(tuple(trips), wall_s=1.0)])
    assert summary["client_clock_ms"]["ttfa_from_speakable_text"]["n"] == 3


@pytest.mark.slow
def test_a_user_barges_in_while_it_is_spoken(run_server: RunServer) -> None:
    server = run_server(FakeScript(never_end=True))
    trips = talk(server, Agent((turn(cut_at=0.5), turn(cut_at=0.1))), max_ahead_ms=2000)
    assert [trip.ending for trip in trips] == ["cancelled", "cancelled"]
    cancels = summarise([Round(tuple(trips), wall_s=1.0)])["cancels"]
    assert cancels["n"] == cancels["to_done_ms"]["n"] == cancels["wasted_ms"]["n"] == 2


@pytest.mark.slow
def test_a_user_barges_in_when_all_has_come(running_server: RunningServer) -> None:
    [trip] = talk(running_server, Agent((turn(cut_at=0.0),)))
    assert (trip.ending, trip.cancel_s is not None) in (("completed", True), ("cancelled", True))
    assert trip.made_ms is not None
    assert trip.heard_ms is not None
    assert trip.heard_ms < trip.made_ms


@pytest.mark.slow
def test_a_client_dies_and_another_takes_its_place(run_server: RunServer) -> None:
    server = run_server(FakeScript(never_end=True))
    dying = turn(cut_at=0.5, vanishes=True)
    trips = talk(server, Agent((dying, turn(cut_at=0.5))), max_ahead_ms=2000)
    assert [trip.ending for trip in trips] == ["lost", "cancelled"]
    counts = summarise([Round(tuple(trips), wall_s=1.0)])["responses"]
    assert (counts["asked"], counts["ok"], counts["lost"]) == (2, 1, 1)


@pytest.mark.slow
def test_a_slow_reader_is_told_apart(running_server: RunningServer) -> None:
    trips = talk(running_server, Agent((turn(),), reads_at=0.9), Agent((turn(),)))
    assert sorted(trip.slow_reader for trip in trips) == [False, True]
    summary = summarise([Round(tuple(trips), wall_s=1.0)])
    assert summary["responses"]["slow_readers"] == 1
    assert summary["continuity"]["n"] == 1


def test_without_a_server_there_is_one_line(tmp_path: Path, capsys: Any) -> None:
    flags = ["--server", "http://127.0.0.1:1", "--out", str(tmp_path)]
    assert main(["burst", *flags]) == 1
    assert capsys.readouterr().err.startswith("bench: ")
    assert main(["burst", "--server", "elsewhere", "--out", str(tmp_path)]) == 1


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [([0.0, 9.5], 0.0, 10.0), ([3.0], 0.0, 3.0), ([], 0.0, 1.0), ([-0.3, 2.0], -0.5, 2.0)],
)
def test_axes_begin_and_end_at_round_values(values: list[float], low: float, high: float) -> None:
    found = nice_range(values)
    assert (found.low, found.high) == (low, high)
    assert found.marks[0] == low
    assert found.marks[-1] == high


def test_a_chart_is_well_formed_and_says_when_it_is_empty() -> None:
    drawn = line_chart([Series([(0, 1), (2, 3)], "a <b>"), Series([(0, 0), (1, 1)])], "x", "y & z")
    root = ElementTree.fromstring(f"<div>{drawn}</div>")
    assert len(root.findall(".//polyline")) == 2
    assert root.find(".//li").text is None
    assert "a <b>" in "".join(root.itertext())
    assert "No data" in line_chart([Series([], "a")], "x", "y")
