"""REST with the real engine and the shipped voice, in its own process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray

from engine.hub import DEFAULT_VOICES_DIR

if TYPE_CHECKING:
    from tests.running_server import RunningServer


@pytest.mark.slow
def test_upload_a_voice_and_speak_with_it(
    run_server: Callable[..., RunningServer],
    decode: Callable[[str, bytes], tuple[NDArray[np.float32], int]],
) -> None:
    server = run_server(script=None)
    recording = (Path(DEFAULT_VOICES_DIR) / "heart.wav").read_bytes()
    with httpx.Client(base_url=server.base_url, timeout=120) as client:
        made = client.post(
            "/v1/voices", data={"name": "Mia"}, files={"audio": ("a.wav", recording)}
        )
        assert made.status_code == 200, made.text
        uploaded, shipped = (server.services.voices.get(name) for name in ("Mia", "heart"))
        assert uploaded is not None
        assert shipped is not None
        assert uploaded.codes.shape == shipped.codes.shape
        # An upload is 3 dB louder here (its loudness is normalised), so finer codes differ.
        assert (uploaded.codes == shipped.codes)[:, 0].mean() > 0.6
        body = {"input": "Good morning.", "voice": "Mia", "seed": 3}
        for audio_format in ("wav", "opus"):
            answer = client.post("/v1/audio/speech", json=body | {"response_format": audio_format})
            assert answer.status_code == 200, answer.text
            heard, rate_hz = decode(audio_format, answer.content)
            assert rate_hz == 24_000
            assert len(heard) % 1920 == 0
            assert len(heard) >= 4 * 1920
            assert np.abs(heard).max() > 0.02
