"""`moss-realtime say --server`: another process's server speaks into a file here."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.realtime.server.test_cli import assert_chirp, run

if TYPE_CHECKING:
    from tests.running_server import RunningServer

KEY = "sk-0123456789abcdef"


@pytest.mark.parametrize("typed", ["Hello! How are you today?", "-"])
def test_a_server_speaks_into_the_file_for_who_has_its_key(
    run_server: Callable[..., RunningServer], tmp_path: Path, typed: str
) -> None:
    server = run_server(api_keys=(KEY,))
    output = tmp_path / "said.wav"
    arguments = ("say", typed, "-o", str(output), "--server", server.base_url)
    done = run(*arguments, stdin="Hello! How are you today?", MOSS_API_KEY=KEY)
    assert done.returncode == 0, done.stderr
    assert re.search(r"said.wav: \d+\.\d\d s of sound, first after \d+ ms", done.stdout)
    assert_chirp(output)


def test_what_went_wrong_is_one_line_without_the_key(
    run_server: Callable[..., RunningServer], tmp_path: Path
) -> None:
    server = run_server(api_keys=(KEY,))
    wrong = "sk-not-the-right-key"
    for url, environ, complaint in (
        (server.base_url, {}, "HTTP 401"),
        (server.base_url, {"MOSS_API_KEY": wrong}, "HTTP 401"),
        ("http://127.0.0.1:1", {"MOSS_API_KEY": wrong}, "cannot connect"),
        ("elsewhere", {"MOSS_API_KEY": wrong}, "--server: not the address of a server"),
    ):
        output = str(tmp_path / "x.wav")
        done = run("say", "Hi.", "-o", output, "--server", url, **environ)
        assert done.returncode == 1
        assert done.stderr.startswith("moss-realtime: ")
        assert complaint in done.stderr
        assert "Traceback" not in done.stderr
        assert wrong not in done.stderr
