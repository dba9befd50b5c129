"""Speak through a running server, as any client would."""

from __future__ import annotations

import io
import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import soundfile

from engine.train.evaluation.speech import Line, Said

_TIMEOUT_S = 300


class ServerVoice:
    """The voices of the server at `url`, one request at a time; `fields` go into each request."""

    def __init__(self, url: str, fields: Mapping[str, Any]) -> None:
        self._url = url.rstrip("/")
        self._fields = fields
        self._work_s = self._sound_s = 0.0
        self.voices = [voice["name"] for voice in json.loads(self._get("/v1/voices"))["data"]]

    def speak(self, lines: Sequence[Line], longest_s: Sequence[float]) -> list[Said]:
        """Speak each line; a server does not tell a cut from an end, only the length does."""
        return [self._speak(line) for line in lines]

    def real_time_factor(self, lines: Sequence[Line], longest_s: Sequence[float]) -> float:
        """Seconds of waiting for a second of sound, over all that has been spoken so far."""
        return self._work_s / self._sound_s if self._sound_s else float("nan")

    def _speak(self, line: Line) -> Said:
        body = {"input": line.text, "voice": line.voice, "response_format": "wav", **self._fields}
        request = urllib.request.Request(
            f"{self._url}/v1/audio/speech",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        started_s = time.perf_counter()
        sound, rate_hz = soundfile.read(
            io.BytesIO(self._answer(request)), dtype="float32", always_2d=True
        )
        self._work_s += time.perf_counter() - started_s
        self._sound_s += len(sound) / rate_hz
        return Said(line, sound.mean(1, dtype=np.float32), rate_hz)

    def _get(self, path: str) -> bytes:
        return self._answer(urllib.request.Request(self._url + path))

    def _answer(self, request: urllib.request.Request) -> bytes:
        """Return the body of the answer. Raises `ValueError` with what the server says."""
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
                body: bytes = answer.read()
                return body
        except urllib.error.HTTPError as error:
            raise ValueError(
                f"{request.full_url} answered {error.code}: {error.read().decode()[:300]}"
            ) from None
        except urllib.error.URLError as error:
            raise ValueError(f"no server answers at {self._url}: {error.reason}") from None
