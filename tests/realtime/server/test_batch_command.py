"""`moss-realtime batch`: lines in, files out, with a server and without, killed and begun again."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import soundfile

from engine.fake import FakeScript
from realtime.server.batch import TRIES, Unreachable, patiently
from realtime.server.batch_input import BadLine, Line, read_lines
from realtime.server.batch_output import JOURNAL, BatchOutput
from realtime.server.config import ConfigError
from tests.realtime.server.test_cli import TIMEOUT_S, assert_chirp, command, run

if TYPE_CHECKING:
    from tests.running_server import RunningServer

RunServer = Callable[..., "RunningServer"]
KEY = "sk-0123456789abcdef"
HELLO = {"input": "Hello! How are you today?"}
BYE = {"input": "Good night, and thank you."}
DEFAULTS: dict[str, Any] = {"response_format": "wav", "seed": 0, "voice": "heart"}


def write_lines(path: Path, *lines: Any) -> Path:
    texts = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
    path.write_bytes(b"\n".join(texts) + b"\n")
    return path


def batch(source: Path, out: Path, *flags: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return run("batch", str(source), "--out", str(out), *flags, **environ)


def test_lines_become_requests_and_bad_ones_say_why() -> None:
    lines = [
        b'{"input": "One."}',
        b"  ",
        b'{"input": "Two.", "id": "two", "voice": "male", "response_format": "opus"}',
        b'{"input": "Three.", "id": "TWO", "response_format": "opus"}',
        b'{"input": "Four.", "id": "../four"}',
        b'{"input": "Five.", "response_format": "aac"}',
        b"[6]",
        b"{7",
        b'{"input": "\xff"}',
        b'{"input": "Ten.", "ref_audio": "data:", "seed": null}',
    ]
    found = read_lines(lines, DEFAULTS)
    good = [line for line in found if isinstance(line, Line)]
    assert [(line.number, line.file) for line in good] == [
        *((1, "00001.wav"), (3, "two.ogg"), (10, "00010.wav"))
    ]
    assert good[0].fields == {"input": "One."} | DEFAULTS
    assert good[1].fields == {
        **{"input": "Two.", "voice": "male", "response_format": "opus", "seed": 0}
    }
    assert "voice" not in good[2].fields
    problems = {line.number: line.problem for line in found if isinstance(line, BadLine)}
    for number, part in {
        4: "'TWO.ogg', as that of line 3",
        5: "not '../four'",
        6: "'aac' is not one of mp3",
        7: "it is list, not an object",
        8: "line 1 column 2",
        9: "not UTF-8",
    }.items():
        assert part in problems.pop(number)
    assert problems == {}


def test_what_is_done_stays_done_and_what_is_not_never_looks_it(tmp_path: Path) -> None:
    [line, other, changed] = read_lines(
        [b'{"input": "One."}', b'{"input": "Two."}', b'{"input": "Else.", "id": "00001b"}'],
        DEFAULTS,
    )
    assert all(isinstance(one, Line) for one in (line, other, changed))
    with BatchOutput(tmp_path) as output:
        assert not output.has(line)
        output.add(line, b"sound", {"audio_duration_ms": 80})
        assert output.has(line)
        with pytest.raises(ConfigError, match="another process"), BatchOutput(tmp_path):
            pass
    # A kill between any two writes: a partial file, a renamed one, a torn line of the journal.
    (tmp_path / ".partial-00002.wav").write_bytes(b"so")
    (tmp_path / "00002.wav").write_bytes(b"sound")
    whole = (tmp_path / JOURNAL).read_bytes()
    (tmp_path / JOURNAL).write_bytes(whole + whole.replace(b"00001", b"00002")[:-9])
    with BatchOutput(tmp_path) as output:
        assert output.has(line)
        assert not output.has(other)
        assert list(tmp_path.glob(".partial*")) == []
        output.add(other, b"more", {})
    with BatchOutput(tmp_path) as output:
        assert output.has(line)
        assert output.has(other)
        (tmp_path / "00001.wav").write_bytes(b"sou")
        assert not output.has(line)
    entries = (tmp_path / JOURNAL).read_bytes().splitlines()
    assert json.loads(entries[-1])["line"] == 2


def test_another_text_on_a_line_is_another_request() -> None:
    [one] = read_lines([b'{"input": "One."}'], DEFAULTS)
    [same] = read_lines([b'{"seed": 0, "input": "One."}'], DEFAULTS)
    [other] = read_lines([b'{"input": "Two."}'], DEFAULTS)
    assert isinstance(one, Line)
    assert isinstance(same, Line)
    assert isinstance(other, Line)
    assert one.digest == same.digest != other.digest


@pytest.mark.anyio
async def test_a_busy_server_is_asked_again_later() -> None:
    waits_s: list[float] = []
    [line] = read_lines([b'{"input": "One."}'], DEFAULTS)
    assert isinstance(line, Line)
    answers: list[Any] = [
        {"status": "error", "status_code": 429, "retry_after_s": 7},
        Unreachable("gone"),
        {"status": "success", "status_code": 200},
    ]

    async def speak(line: Line) -> dict[str, Any]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return dict(answer)

    async def sleep(seconds: float) -> None:
        waits_s.append(seconds)

    assert (await patiently(speak, line, sleep))["status"] == "success"
    assert waits_s[0] >= 7
    assert waits_s[1] >= 2
    answers += [{"status": "error", "status_code": 400}, *([Unreachable("gone")] * TRIES)]
    assert (await patiently(speak, line, sleep))["status_code"] == 400
    with pytest.raises(Unreachable):
        await patiently(speak, line, sleep)
    assert answers == []


@pytest.mark.slow
def test_without_a_server(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.jsonl", HELLO, b"oops", BYE)
    flags, out = ("--fake", "--data-dir", str(tmp_path)), tmp_path / "out"
    done = batch(source, out, *flags)
    assert done.returncode == 1
    assert "line 2: it cannot be read as JSON" in done.stderr
    assert done.stdout.startswith("2 spoken, 0 done before, 1 failed; ")
    assert_chirp(out / "00001.wav")
    assert_chirp(out / "00003.wav")
    write_lines(source, HELLO, {"input": "Hi."}, BYE)
    again = batch(source, out, *flags)
    assert (again.returncode, again.stdout.split(";")[0]) == (
        *(0, "1 spoken, 2 done before, 0 failed"),
    )


@pytest.mark.slow
def test_with_a_server(run_server: RunServer, tmp_path: Path) -> None:
    server = run_server(api_keys=(KEY,))
    lines = [HELLO | {"id": "one"}, {"input": "Two.", "voice": "nobody"}, {"input": " "}]
    lines += [{"input": "Four.", "response_format": "flac"}, HELLO | {"max_new_tokens": 13}]
    source, out = write_lines(tmp_path / "in.jsonl", *lines), tmp_path / "out"
    flags = ("--server", server.base_url, "--voice", "male")
    done = batch(source, out, *flags, MOSS_API_KEY=KEY)
    assert done.returncode == 1
    problems = sorted(done.stderr.splitlines())
    assert [problem.split(":")[0] for problem in problems] == ["line 2", "line 3", "line 5"]
    assert "nobody" in problems[0]
    assert "blank" in problems[1]
    assert "stopped early" in problems[2]
    assert sorted(path.name for path in out.iterdir()) == [
        *("00004.flac", "00005.wav", JOURNAL, "one.wav")
    ]
    assert_chirp(out / "one.wav")
    assert soundfile.info(out / "00005.wav").frames == 13 * 1920
    wrong = batch(source, out, *flags, MOSS_API_KEY="sk-not-the-right-key")
    assert (wrong.returncode, "HTTP 401" in wrong.stderr) == (1, True)
    assert "Traceback" not in wrong.stderr


@pytest.mark.slow
def test_after_a_kill_only_what_is_missing_is_spoken(run_server: RunServer, tmp_path: Path) -> None:
    server = run_server(FakeScript(block_after_frames=10))
    lines = [{"input": "Hi.", "max_new_tokens": 9}] * 3 + [{"input": "A long one."}] * 3
    source, out = write_lines(tmp_path / "in.jsonl", *lines), tmp_path / "out"
    journal = out / JOURNAL
    arguments = ("batch", str(source), "--out", str(out), "--server", server.base_url)
    with subprocess.Popen(command(*arguments), stderr=subprocess.PIPE) as speaking:
        deadline = time.monotonic() + TIMEOUT_S
        while not journal.exists() or journal.read_bytes().count(b"\n") < 3:
            assert time.monotonic() < deadline, "the short ones are not spoken"
            time.sleep(0.01)
        speaking.send_signal(signal.SIGKILL)
    before = {path: path.stat().st_mtime_ns for path in out.glob("*.wav")}
    server.engine.release()
    done = run(*arguments)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("3 spoken, 3 done before, 0 failed; ")
    assert len(list(out.glob("*.wav"))) == 6
    assert {path: path.stat().st_mtime_ns for path in before} == before


@pytest.mark.slow
def test_a_terminal_shows_how_far_it_is(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.jsonl", {"input": "Hello."}, {"input": "Bye."})
    flags = ("--fake", "--data-dir", str(tmp_path))
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    arguments = ("batch", str(source), "--out", str(tmp_path / "out"), *flags)
    with subprocess.Popen(command(*arguments), stderr=theirs) as speaking:
        assert speaking.wait(TIMEOUT_S) == 0
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # the end of a terminal
        while data := os.read(ours, 1 << 16):
            shown += data
    os.close(ours)
    assert "| 2/2 [" in shown.decode()


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (("--parallel", "0"), "--parallel must be at least 1, not 0"),
        (("--server", "elsewhere"), "not the address of a server: 'elsewhere'"),
    ],
)
def test_a_mistake_is_one_line(tmp_path: Path, flags: tuple[str, ...], complaint: str) -> None:
    source = write_lines(tmp_path / "in.jsonl", {"input": "Hello."})
    done = batch(source, tmp_path / "out", "--fake", *flags)
    assert done.returncode == 1
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr
