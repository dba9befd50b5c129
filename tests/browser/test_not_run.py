"""Without a browser a test run must not look like a success."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def run_without_chromium(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (directory / "conftest.py").write_text((HERE / "conftest.py").read_text())
    (directory / "pytest.ini").write_text("[pytest]\nmarkers =\n    browser: drives Chromium\n")
    (directory / "test_some.py").write_text(
        "import pytest\n"
        "def test_plain(): pass\n"
        "def test_broken(): assert False\n"
        "@pytest.mark.browser\n"
        "def test_browser(): pass\n"
    )
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    environment = os.environ | {"CHROMIUM": str(directory / "no-such-browser")}
    return subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["-k", "not broken"], 2, True),
        (["-k", "browser"], 2, True),
        ([], 1, True),
        (["-k", "not broken", "-m", "not browser"], 0, False),
    ],
    ids=["passes", "nothing else", "fails", "not wanted"],
)
def test_a_missing_browser(tmp_path: Path, arguments: list[str], status: int, said: bool) -> None:
    run = run_without_chromium(tmp_path, *arguments)
    assert run.returncode == status, run.stdout + run.stderr
    last = run.stdout.strip().splitlines()[-1]
    assert (last == "NOT RUN: browser") is said
