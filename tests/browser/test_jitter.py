"""The jitter buffer under scripted arrivals: what comes out is what went in, whenever it came.

Sample i of a run has the value i + 1, so the ramps that are inserted (which stay below the
neighbouring sample) and the silence can be told from it.
"""

from __future__ import annotations

import base64
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

RATE_HZ = 48000
BLOCK = 128
FRAME = 3840  # 80 ms
RAMP = 240  # 5 ms
DRIVER = (Path(__file__).parent / "jitter_driver.js").read_text().replace("export ", "")
Step = dict[str, Any]


@pytest.fixture(scope="module")
def drive(module_page: Page, static_url: str) -> Any:
    def drive(*steps: Step) -> Any:
        script = {"rate": RATE_HZ, "steps": steps}
        result = module_page.evaluate(
            f"([url, script]) => {{ {DRIVER} return drive(url, script); }}",
            [f"{static_url}jitter.js", script],
        )
        result["out"] = np.frombuffer(base64.b64decode(result["out"]), "<f4").astype(np.float64)
        return result

    return drive


def push(first: int, count: int = FRAME, stream: int = 1) -> Step:
    return {"op": "push", "stream": stream, "first": first, "count": count}


def end(stream: int = 1) -> Step:
    return {"op": "end", "stream": stream}


def excuse(stream: int = 1) -> Step:
    return {"op": "excuse", "stream": stream}


def flush(fade_ms: float = 8) -> Step:
    return {"op": "flush", "fadeMs": fade_ms}


def pull(ms: float) -> Step:
    return {"op": "pull", "blocks": round(ms * RATE_HZ / 1000 / BLOCK)}


def real_samples(out: NDArray[np.float64]) -> NDArray[np.int64]:
    """Indices where the next expected sample stands; everything else was inserted."""
    places, expected = [], 1.0
    for index, value in enumerate(out):
        if value == expected:
            places.append(index)
            expected += 1
        else:
            assert value < expected, f"sample {index} is {value}, ahead of {expected}"
    return np.array(places)


def gaps(places: NDArray[np.int64]) -> NDArray[np.int64]:
    """Lengths of the stretches inserted between two samples."""
    steps = np.diff(places) - 1
    return steps[steps > 0]


def assert_smooth(out: NDArray[np.float64]) -> None:
    """No step is larger than the ramp's: nothing clicks."""
    steepest = np.max(np.abs(np.diff(out, prepend=0.0)))
    assert steepest <= max(1.0, np.max(out) / RAMP) + 1e-3


def test_plays_when_the_target_is_reached(drive: Any) -> None:
    result = drive(
        push(0, FRAME - 1), pull(50), push(FRAME - 1, 1), pull(10), push(FRAME), end(), pull(200)
    )
    places = real_samples(result["out"])
    assert len(places) == 2 * FRAME
    start = round(50 * RATE_HZ / 1000 / BLOCK) * BLOCK
    assert places[0] == start + RAMP
    assert len(gaps(places)) == 0
    assert result["statuses"][-1] == result["statuses"][-1] | {"state": "idle", "underruns": 0}
    assert [event["type"] for event in result["events"]] == ["started", "ended"]
    assert_smooth(result["out"])


def test_short_sound_plays_when_its_end_is_known(drive: Any) -> None:
    result = drive(push(0, 100), pull(30), end(), pull(30))
    assert len(real_samples(result["out"])) == 100
    assert result["events"][-1] == result["events"][-1] | {"type": "ended", "stream": 1}


def test_short_sound_plays_after_a_quarter_second(drive: Any) -> None:
    result = drive(push(0, 100), pull(400))
    places = real_samples(result["out"])
    assert len(places) == 100
    assert 0 <= places[0] - RAMP - 0.25 * RATE_HZ < BLOCK


def test_an_underrun_is_counted_when_sound_follows_and_raises_the_target(drive: Any) -> None:
    result = drive(
        push(0), pull(200), push(FRAME), pull(100), push(2 * FRAME), pull(50), end(), pull(200)
    )
    dry, waiting, filled = (result["statuses"][i] for i in (1, 3, 4))
    assert (dry["state"], dry["underruns"]) == ("stalled", 0)
    assert (waiting["state"], waiting["underruns"]) == ("buffering", 1)
    assert filled["targetMs"] == pytest.approx(120)
    places = real_samples(result["out"])
    assert len(places) == 3 * FRAME
    assert len(gaps(places)) == 1
    assert_smooth(result["out"])


def test_running_dry_at_the_end_is_no_underrun(drive: Any) -> None:
    result = drive(push(0), pull(200), end(), pull(10))
    assert result["statuses"][-1] == result["statuses"][-1] | {"state": "idle", "underruns": 0}


def test_a_gap_of_the_text_is_no_underrun(drive: Any) -> None:
    result = drive(push(0), excuse(), pull(200), push(FRAME), pull(50), end(), pull(100))
    assert result["statuses"][-1]["underruns"] == 0
    assert len(gaps(real_samples(result["out"]))) == 1


def test_an_excuse_ends_when_sound_comes_in_time(drive: Any) -> None:
    result = drive(push(0), excuse(), push(FRAME), pull(300), push(2 * FRAME), end(), pull(200))
    assert result["statuses"][-1]["underruns"] == 1


def test_clean_turns_lower_the_target_to_its_floor(drive: Any) -> None:
    steps = [step for n in range(5) for step in (push(n * FRAME, stream=n), end(n), pull(150))]
    targets = [status["targetMs"] for status in drive(*steps)["statuses"][2::3]]
    assert targets == pytest.approx([72, 64.8, 60, 60, 60])


def test_a_pace_that_nearly_ran_dry_raises_the_target(drive: Any) -> None:
    every_80_ms = [step for n in range(3, 9) for step in (pull(80), push(n * FRAME))]
    at_first = (push(0, 2 * FRAME), pull(150), push(2 * FRAME))
    result = drive(*at_first, *every_80_ms, end(), pull(1000))
    assert result["statuses"][-1]["underruns"] == 0
    assert result["statuses"][-1]["targetMs"] == pytest.approx(150 + 20, abs=3)


def test_flush_fades_and_forgets(drive: Any) -> None:
    result = drive(push(0, 10 * FRAME), pull(300), flush(8), push(0, 10, stream=2), pull(50))
    asked, after = result["statuses"][2], result["statuses"][-1]
    heard = round(asked["answer"]["playedMs"] * RATE_HZ / 1000)
    assert asked["answer"]["stream"] == 1
    out, at = result["out"], asked["at"]
    assert out[at - 1] == heard
    fade = np.arange(1, 385)
    np.testing.assert_allclose(out[at : at + 384], (heard + fade) * (1 - fade / 384), rtol=1e-6)
    assert not out[at + 384 :].any()
    assert (after["stream"], after["bufferedMs"]) == (2, pytest.approx(10 / 48))


def test_a_second_flush_lets_the_first_one_fade(drive: Any) -> None:
    result = drive(push(0, FRAME), pull(60), flush(8), pull(3), flush(8), pull(50))
    at = result["statuses"][1]["at"]
    assert result["out"][at : at + 383].all()
    assert not result["out"][at + 384 :].any()


@pytest.mark.parametrize("played_ms", [2.7, 82, 85], ids=["rising", "near the end", "falling"])
def test_flush_near_silence_only_ramps(drive: Any, played_ms: float) -> None:
    result = drive(push(0), pull(played_ms), flush(8), pull(50))
    at = result["statuses"][1]["at"]
    assert not result["out"][at + RAMP :].any()
    assert_smooth(result["out"])


def test_flush_of_nothing(drive: Any) -> None:
    result = drive(flush(8), pull(10))
    assert result["statuses"][0]["answer"] == {"stream": None, "playedMs": 0}
    assert not result["out"].any()


def test_ten_minutes_at_once_are_kept(module_page: Page, static_url: str) -> None:
    count = module_page.evaluate(
        """async (url) => {
          const { SampleRing } = await import(url);
          const ring = new SampleRing(1 << 10), block = new Float32Array(1 << 20), back = [0];
          for (let n = 0; n < 28; n++) ring.push(block.fill(n));
          for (let n = 0; n < 28; n++) {
            const out = new Float32Array(1 << 20);
            ring.read(out, 0, out.length);
            if (out.every((value) => value === n)) back[0]++;
          }
          return back[0];
        }""",
        f"{static_url}ring.js",
    )
    assert count == 28


def arrivals(random_: random.Random) -> tuple[list[Step], dict[int, int]]:
    """A script of some turns with bursts, stalls and odd sizes; and each stream's length."""
    steps: list[Step] = []
    lengths: dict[int, int] = {}
    first = 0
    for stream in range(random_.randint(1, 4)):
        start = first
        for _ in range(random_.randint(1, 12)):
            count = random_.choice([1, 127, 960, FRAME, FRAME, 2 * FRAME, 15 * FRAME])
            steps.append(push(first, count, stream))
            first += count
            if random_.random() < 0.2:
                steps.append(excuse(stream))
            steps.append(pull(random_.choice([0, 3, 20, 80, 80, 120, 500])))
        steps.append(end(stream))
        lengths[stream] = first - start
    return [*steps, pull(first * 1000 / RATE_HZ + 2000)], lengths


@pytest.mark.parametrize("seed", range(40))
def test_any_arrivals_come_out_whole(drive: Any, seed: int) -> None:
    steps, lengths = arrivals(random.Random(seed))
    result = drive(*steps)
    out, places = result["out"], real_samples(result["out"])
    assert len(places) == sum(lengths.values())
    assert_smooth(out)

    heard = np.zeros(len(out) + 1, dtype=np.int64)
    heard[1:] = np.cumsum(np.isin(np.arange(len(out)), places))
    starts = dict(zip(lengths, np.cumsum([0, *lengths.values()]), strict=False))
    for status in result["statuses"]:
        if status["stream"] is not None:
            played = heard[status["at"]] - starts[status["stream"]]
            assert played == round(status["playedMs"] * RATE_HZ / 1000)

    stalls = [event for event in result["events"] if event["type"] == "stalled"]
    ends = [event for event in result["events"] if event["type"] == "ended"]
    assert [event["stream"] for event in ends] == list(lengths)
    assert result["statuses"][-1]["underruns"] <= len(stalls)
    turn_ends = np.cumsum(list(lengths.values()))[:-1]
    inside = [n for n in np.flatnonzero(np.diff(places) > 1) + 1 if n not in turn_ends]
    excused = any(step["op"] == "excuse" for step in steps)
    assert excused or result["statuses"][-1]["underruns"] == len(inside)
