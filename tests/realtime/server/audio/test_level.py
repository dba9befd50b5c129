"""The level rule and the resampler."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from realtime.server.audio import OpusUnavailable, StreamResampler, clipped_samples, to_pcm16
from realtime.server.audio import opus as opus_module


def test_level_rule_clips_scales_and_rounds_half_to_even() -> None:
    pcm = np.array([0, 1, -1, 1.5, -7, 0.5 / 32767, 1.5 / 32767, -0.5 / 32767], np.float32)
    assert np.frombuffer(to_pcm16(pcm), "<i2").tolist() == [
        *(0, 32767, -32767, 32767, -32767),
        *(0, 2, 0),
    ]
    assert clipped_samples(pcm) == 2


def test_stereo_is_interleaved() -> None:
    pcm = np.array([[1, 0], [0, -1]], np.float32)
    assert np.frombuffer(to_pcm16(pcm), "<i2").tolist() == [32767, 0, 0, -32767]


def test_what_is_not_a_number_is_silent():
    broken = np.array([np.nan, np.inf, -np.inf, 0.5], np.float32)
    assert np.frombuffer(to_pcm16(broken), "<i2").tolist() == [0, 32767, -32767, 16384]


@pytest.mark.parametrize("to_hz", [8_000, 16_000, 44_100, 48_000])
def test_resampled_stream_is_the_same_for_any_cutting(
    to_hz: int, steps: Callable[[int], NDArray[np.float32]]
) -> None:
    pcm = steps(7)[:-100]

    def resampled(piece_samples: int) -> NDArray[np.float32]:
        stream = StreamResampler(24_000, to_hz, 1)
        parts = [stream.push(pcm[i : i + piece_samples]) for i in range(0, len(pcm), piece_samples)]
        return np.concatenate([*parts, stream.finish()])

    whole = resampled(len(pcm))
    assert whole.shape == (round(len(pcm) * to_hz / 24_000), 1)
    np.testing.assert_array_equal(resampled(1920), whole)
    np.testing.assert_array_equal(resampled(333), whole)


def test_without_libopus_the_error_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "opuslib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr("ctypes.util.find_library", lambda name: None)
    opus_module.load_opuslib.cache_clear()
    with pytest.raises(OpusUnavailable, match="apt install libopus0"):
        opus_module.load_opuslib()


def test_compiling_opuslib_does_not_warn(tmp_path: Path) -> None:
    subprocess.run(
        [
            *(sys.executable, "-W", "error", "-c"),
            "from realtime.server.audio.opus import load_opuslib; load_opuslib()",
        ],
        check=True,
        env=os.environ | {"PYTHONPYCACHEPREFIX": str(tmp_path)},
    )
