"""`make demo`: what it prints, and what README shows, is run as it stands."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import numpy as np
import pytest
import soundfile

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
README_URL = "http://127.0.0.1:8000"
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
TIMEOUT_S = 120

pytestmark = pytest.mark.slow


class Demo:
    """What a running `make demo` printed, and its address."""

    def __init__(self, printed: str) -> None:
        self.printed = printed
        self.url = re.findall(r"http://[\d.:]+", printed)[0]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    path = tmp_path_factory.mktemp("demo")
    with (path / "log").open("w+") as log:
        server = subprocess.Popen(
            ["make", "demo", "PORT=0"],
            cwd=ROOT,
            env=os.environ | {"MOSS_DATA_DIR": str(path)},
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        )
        too_late = threading.Timer(TIMEOUT_S, interrupt, [server])
        too_late.start()
        try:
            printed = read_greeting(server)
            log.seek(0)
            assert "asyncio.run" in printed, log.read()
            yield Demo(printed)
        finally:
            too_late.cancel()
            interrupt(server)
            server.communicate(timeout=TIMEOUT_S)


def read_greeting(server: subprocess.Popen[str]) -> str:
    """Return what was printed up to the end of the Python snippet, or of the server."""
    assert server.stdout
    printed = ""
    for line in server.stdout:
        printed += line
        if line.startswith("asyncio.run"):
            break
    return printed


def interrupt(server: subprocess.Popen[str]) -> None:
    """Do what Ctrl-C does in a terminal."""
    if server.poll() is None:
        os.killpg(server.pid, signal.SIGINT)


def run(source: str, language: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """Run lines of a shell or a Python program as a person would have pasted them."""
    command = [sys.executable, "-"] if language == "python" else ["sh", "-e"]
    return subprocess.run(
        command,
        input=source,
        cwd=directory,
        env=os.environ | {"MOSS_PORT": "0"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def readme_block(part: str) -> tuple[str, str]:
    """Return the source and language of README's block with `part` in it."""
    ((language, source),) = [block for block in BLOCKS if part in block[1]]
    return source.replace(".venv/bin/", f"{Path(sys.executable).parent}/"), language


def assert_speech(path: Path) -> None:
    sound, rate_hz = soundfile.read(path, always_2d=True)
    assert len(sound) > rate_hz / 4
    assert np.abs(sound).max() > 0.01


def test_the_page_is_where_it_is_said_to_be(demo: Demo) -> None:
    with urlopen(f"{demo.url}/", timeout=TIMEOUT_S) as page:
        assert "<title>" in page.read().decode()


def test_the_printed_curl_line_speaks(demo: Demo, tmp_path: Path) -> None:
    (line,) = re.findall(r"^ *curl (?:.*\\\n)*.*\n", demo.printed, re.MULTILINE)
    done = run(line, "sh", tmp_path)
    assert done.returncode == 0, done.stderr
    (file,) = tmp_path.iterdir()
    assert_speech(file)


def test_the_printed_python_snippet_speaks(demo: Demo, tmp_path: Path) -> None:
    (snippet,) = re.findall(r"^import asyncio.*\Z", demo.printed, re.MULTILINE | re.DOTALL)
    done = run(snippet, "python", tmp_path)
    assert done.returncode == 0, done.stderr
    (file,) = tmp_path.iterdir()
    assert_speech(file)


def test_every_block_of_readme_is_run_here() -> None:
    parts = ("make demo", "--device cuda", "curl", "realtime.sdk", "doctor")
    assert [readme_block(part)[1] for part in parts] == ["sh", "sh", "sh", "python", "sh"]
    assert len(parts) == len(BLOCKS)


def test_readme_curl_line_speaks(demo: Demo, tmp_path: Path) -> None:
    source, language = readme_block("curl")
    assert README_URL in source
    done = run(source.replace(README_URL, demo.url), language, tmp_path)
    assert done.returncode == 0, done.stderr
    assert_speech(tmp_path / "hello.wav")


def test_readme_python_program_speaks_and_remembers_what_was_heard(
    demo: Demo, tmp_path: Path
) -> None:
    source, language = readme_block("realtime.sdk")
    assert README_URL in source
    done = run(source.replace(README_URL, demo.url), language, tmp_path)
    assert done.returncode == 0, done.stderr
    assert_speech(tmp_path / "reply.wav")
    assert "('user', 'A table for tonight, please.'), ('assistant', 'Of course!" in done.stdout
    assert "let me explain" not in done.stdout


def test_readme_command_line_speaks_without_a_server(tmp_path: Path) -> None:
    source, language = readme_block("doctor")
    done = run(source, language, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert_speech(tmp_path / "said.wav")
    assert "FAIL" not in done.stdout


def test_readme_gpu_line_takes_checkpoints_by_directory(tmp_path: Path) -> None:
    done = run(*readme_block("--device cuda"), tmp_path)
    assert done.returncode == 1
    assert "no directory 'DIR'" in done.stderr
