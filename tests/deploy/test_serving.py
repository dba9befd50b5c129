"""deploy/README.md is run as it stands: each command serves its model, each curl line speaks."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
import pytest
import soundfile

from realtime.server.profiles import profile_names
from tests.deploy.checkpoints import MODEL_DIRS, STEREO_CODECS, write_codecs

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
README = (ROOT / "deploy" / "README.md").read_text(encoding="utf-8")
README_URL = "http://127.0.0.1:8000"
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
TIMEOUT_S = 300


def block(start: str, part: str) -> str:
    """The block that begins so, with `part` in it."""
    [found] = [text for text in BLOCKS if text.startswith(start) and part in text]
    return found


def serve_line(name: str) -> list[str]:
    return shlex.split(block(".venv/bin/moss-realtime", f"--profile {name} "))[1:]


def curl_lines(name: str) -> str:
    return block("curl", f'"model": "{name}"')


@pytest.fixture(scope="module")
def codecs(tmp_path_factory) -> dict[str, str]:
    return write_codecs(tmp_path_factory.mktemp("codecs"))


@contextmanager
def serving(arguments: list[str], data_dir: Path) -> Iterator[str]:
    """Run `moss-realtime ARGUMENTS` as a person does, on a free port; gives its address."""
    settings = {
        **{"MOSS_PORT": "0", "MOSS_WARM_UP": "0", "MOSS_THREADS": "1", "MOSS_LOG_LEVEL": "warning"},
        **{"MOSS_DATA_DIR": str(data_dir), "MOSS_VOICES": "", "MOSS_DEVICE": "cpu"},
    }
    command = [sys.executable, "-m", "realtime.server.cli", *arguments]
    with subprocess.Popen(
        command, cwd=ROOT, env=os.environ | settings, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout
        try:
            urls = (re.search(r"http://[\d.:]+", line) for line in server.stdout)
            yield next(url.group().rstrip("/") for url in urls if url)
        finally:
            server.terminate()


def run_lines(lines: str, url: str, directory: Path) -> None:
    """Run lines of a shell as a person would have pasted them."""
    time_s = np.arange(16_000 * 3 // 2) / 16_000
    soundfile.write(directory / "reference.wav", 0.3 * np.sin(900 * time_s), 16_000)
    done = subprocess.run(
        ["sh", "-e"],
        input=lines.replace(README_URL, url),
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def assert_all_spoke(lines: str, directory: Path, name: str) -> None:
    files = re.findall(r"-o (\S+)", lines)
    assert files
    for file in files:
        data = (directory / file).read_bytes()
        assert data.startswith(b"RIFF"), (file, data[:500])
        sound, rate_hz = soundfile.read(directory / file, always_2d=True)
        shape = (48_000, 2) if name in STEREO_CODECS else (24_000, 1)
        assert (rate_hz, sound.shape[1]) == shape
        assert len(sound) >= rate_hz * 8 // 100, file
        assert np.isfinite(sound).all()


@pytest.mark.parametrize("name", MODEL_DIRS)
def test_one_command_serves_a_model_and_its_curl_lines_speak(name, codecs, tmp_path) -> None:
    places = {"MODEL_DIR": str(MODEL_DIRS[name]), "CODEC_DIR": codecs[name]}
    arguments = [places.get(word, word) for word in serve_line(name)]
    with serving(arguments, tmp_path / "data") as url:
        [model] = httpx.get(f"{url}/v1/models").json()["data"]
        assert model["id"] == name
        run_lines(curl_lines(name), url, tmp_path)
        stored = re.findall("-F name=([a-z]+)", curl_lines(name))
        voices = httpx.get(f"{url}/v1/voices").json()["data"]
        assert [voice["name"] for voice in voices] == stored
    assert_all_spoke(curl_lines(name), tmp_path, name)


def test_every_model_has_its_lines() -> None:
    assert set(MODEL_DIRS) == set(profile_names())
    told = {
        line for name in MODEL_DIRS for line in (shlex.join(serve_line(name)), curl_lines(name))
    }
    assert len(told) == 2 * len(MODEL_DIRS)
    [other] = [text for text in BLOCKS if "high-concurrency" in text]
    assert len(BLOCKS) == len(told) + 1
    assert "--profile moss-tts:high-concurrency" in other
