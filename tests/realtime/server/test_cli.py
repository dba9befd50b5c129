"""`moss-realtime` as a person runs it: a real process, real files, errors that help."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
import soundfile

from engine.index_sound import chirp
from engine.models.realtime_speech import CAPABILITIES
from realtime.server.cli import main
from realtime.server.config import ServerConfig
from realtime.server.greeting import greeting

DELAY = Path(__file__).parents[2] / "vectors" / "delay" / "tiny_a"
TIMEOUT_S = 60


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "realtime.server.cli", *arguments]


def run(*arguments: str, stdin: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments),
        input=stdin,
        env=os.environ | environ,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A `serve --fake` process and its address, from its greeting."""
    arguments = ("serve", "--fake", "--port", "0", "--data-dir", str(tmp_path))
    with subprocess.Popen(
        command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        try:
            first = server.stdout.readline()
            url = re.search(r"http://[\d.:]+", first)
            assert url, first + server.stderr.read()
            yield server, url[0]
        finally:
            server.send_signal(signal.SIGINT)
            server.communicate(timeout=TIMEOUT_S)


def test_serve_answers_holds_no_torch_and_stops_when_asked(served, tmp_path):
    server, url = served
    assert httpx.get(f"{url}/readyz").status_code == 200
    assert "torch" not in Path(f"/proc/{server.pid}/maps").read_text()
    server.send_signal(signal.SIGTERM)
    _, log = server.communicate(timeout=TIMEOUT_S)
    assert "config host='127.0.0.1' port=0" in log
    assert "Traceback" not in log
    engine_pid = re.search(r"engine_pid=(\d+) status=started", log)
    assert not Path(f"/proc/{engine_pid[1]}").exists()


def test_the_greeting_has_the_address_and_lines_to_paste():
    text = greeting(ServerConfig(port=9876), CAPABILITIES)
    assert text.count("http://127.0.0.1:9876/") == 2
    source = text[text.index("import asyncio") :]
    compile(source, "greeting", "exec")
    everyone = greeting(ServerConfig(host="0.0.0.0", insecure=True), CAPABILITIES)
    assert "http://127.0.0.1:8000/" in everyone


REPORT = r"said.wav: \d+\.\d\d s of sound, first after \d+ ms, real-time factor \d"


def assert_chirp(file: Path) -> None:
    pcm, rate_hz = soundfile.read(file, dtype="float32")
    assert len(pcm) >= 24000
    np.testing.assert_allclose(pcm, chirp(0, len(pcm), rate_hz), atol=1e-4)


@pytest.fixture
def say(tmp_path: Path, monkeypatch, capsys) -> Callable[[str], str]:
    """`say(text)` writes said.wav without a process of its own and returns what was printed."""
    monkeypatch.setenv("MOSS_DATA_DIR", str(tmp_path))

    def say(text: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main(["say", text, "-o", str(tmp_path / "said.wav"), "--fake"])
        assert ended.value.code == 0
        return capsys.readouterr().out

    return say


def test_say_writes_the_sound_and_how_fast_it_was_made(say: Callable[[str], str], tmp_path: Path):
    assert re.search(REPORT, say("Hello! How are you today?"))
    assert_chirp(tmp_path / "said.wav")


def test_say_with_nothing_to_say(say: Callable[[str], str]):
    assert "nothing to say" in say("  \n")


def test_say_speaks_standard_input_while_it_is_still_being_written(tmp_path: Path):
    output = tmp_path / "said.wav"
    with subprocess.Popen(
        command("say", "-", "-o", str(output), "--fake", "--data-dir", str(tmp_path)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as speaking:
        speaking.stdin.write("one two three four five six seven eight nine ten " * 2)
        speaking.stdin.flush()
        deadline = time.monotonic() + TIMEOUT_S
        while not output.exists() or output.stat().st_size < 24000:
            assert time.monotonic() < deadline, "nothing is spoken before the end of the input"
            time.sleep(0.01)
        printed, _ = speaking.communicate("and eleven.", timeout=TIMEOUT_S)
    assert re.search(REPORT, printed)
    assert_chirp(output)


def test_ctrl_c_ends_say_though_its_input_stays_open(tmp_path: Path):
    output = tmp_path / "said.wav"
    with subprocess.Popen(
        command("say", "-", "-o", str(output), "--fake", "--data-dir", str(tmp_path)),
        stdin=subprocess.PIPE,
    ) as speaking:
        speaking.stdin.write(b"one two three four five six seven eight nine ten " * 2)
        speaking.stdin.flush()
        deadline = time.monotonic() + TIMEOUT_S
        while not output.exists() or not output.stat().st_size:
            assert time.monotonic() < deadline, "nothing is spoken"
            time.sleep(0.01)
        speaking.send_signal(signal.SIGINT)
        assert speaking.wait(TIMEOUT_S) == 130


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("say", "x", "--voice", "nobody", "--fake"), "no voice 'nobody'; there are .*heart"),
        (("say", "x", "-o", "x.doc", "--fake"), "'x.doc' must end in one of .mp3"),
        (("say", "x", "-o", "/nowhere/x.wav", "--fake"), "No such file or directory: '/nowhere"),
        (("say", "x", "--model", "/nowhere"), "no directory '/nowhere'"),
        (("serve", "--model", "/nowhere"), "no directory '/nowhere'"),
        (("serve", "--host", "0.0.0.0"), "can be reached by others"),
        (("serve", "--port", "x"), "--port must be a number, not 'x'"),
    ],
)
def test_a_mistake_is_one_line_that_names_it(tmp_path: Path, monkeypatch, arguments, complaint):
    monkeypatch.setenv("MOSS_DATA_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match=f"^moss-realtime: .*{complaint}.*$"):
        main(arguments)


def test_evaluate_without_its_packages_says_what_to_install(tmp_path: Path):
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['jiwer'] = None\n")
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    done = run("evaluate", "--texts", "agent", PYTHONPATH=path)
    assert done.returncode == 1
    assert re.fullmatch(
        r"evaluate: .*\bjiwer\b.* missing: run `deploy/setup.sh train`, .*\n", done.stderr
    )


@pytest.mark.slow
def test_finetune_is_started_with_its_own_arguments(tmp_path: Path):
    data = str(tmp_path / "none.jsonl")
    done = run("finetune", "--model", "/nowhere", "--codec", "/nowhere", "--data", data)
    assert done.returncode == 1
    assert re.fullmatch(r"finetune: no directory '/nowhere'.*\n", done.stderr)


def test_serve_says_that_the_port_is_taken(tmp_path: Path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = run("serve", "--fake", "--port", port, MOSS_DATA_DIR=str(tmp_path))
        assert done.returncode not in (0, None)
        assert "address already in use" in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_serve_ends_when_the_engine_does_not_start(tmp_path: Path):
    broken = tmp_path / "codec"
    broken.mkdir()
    (broken / "config.json").write_text("{}")
    done = run("serve", "--port", "0", "--codec", str(broken), MOSS_DATA_DIR=str(tmp_path))
    assert done.returncode == 1
    assert "moss-realtime: the engine did not start: " in done.stderr.splitlines()[-1]


@pytest.mark.slow
def test_say_needs_a_model_that_is_fed_its_text(tmp_path: Path):
    done = run("say", "hi", "--fake", "--model", str(DELAY), "-o", str(tmp_path / "a.wav"))
    assert done.returncode == 1
    assert "moss-tts cannot hold a dialogue: load MOSS-TTS-Realtime too" in done.stderr


def test_doctor_names_each_model_of_several():
    flags = [*("--model", str(DELAY)) * 2, *("--variant", "tts", "--variant", "ttsd")]
    found = run("doctor", *flags, MOSS_PORT="0").stdout
    assert "is MOSS-TTS with 8 codebooks; " in found
    assert "is MOSS-TTSD with 8 codebooks" in found


def test_doctor_finds_nothing_wrong_here_and_names_what_is():
    healthy = run("doctor", MOSS_PORT="0")
    assert healthy.returncode == 0, healthy.stdout + healthy.stderr
    assert [line.split()[0] for line in healthy.stdout.splitlines()] == ["ok"] * 6
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        sick = run("doctor", "--port", port, "--model", "/nowhere", "--device", "cuda")
    assert sick.returncode == 1
    assert re.search(r"^FAIL  model: no directory '/nowhere'", sick.stdout, re.MULTILINE)
    assert re.search(rf"^FAIL  port: {port} is taken; .* --port$", sick.stdout, re.MULTILINE)
