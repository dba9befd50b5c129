"""What holds for every file that is committed."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TOP_LEVEL = {
    *("pyproject.toml", "Makefile", "README.md", "LICENSE", "CONTRIBUTING.md", ".ci", ".gitignore"),
    *("realtime", "engine", "kernels", "web", "deploy", "tests"),
}
MACHINE_PATH = re.compile(r"(?<![\w.])/(?:work|root|home|opt|Users|mnt)/\w")
PACKAGE_INDEX = re.compile(r"pypi\.org|python[h]osted|registry\.npmjs|deb\.debian|archive\.ubuntu")


def committed_files() -> list[Path]:
    """Return the tracked files, or skip where this is no clone."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def texts() -> dict[str, str]:
    contents = {path: path.read_bytes() for path in committed_files()}
    return {
        str(path.relative_to(ROOT)): data.decode("utf-8", "replace")
        for path, data in contents.items()
        if b"\0" not in data
    }


def test_the_top_level_is_fixed() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in committed_files()} <= TOP_LEVEL


@pytest.mark.parametrize("pattern", [MACHINE_PATH, PACKAGE_INDEX], ids=["path", "index"])
def test_no_file_names_a_machine(pattern: re.Pattern[str]) -> None:
    found = {
        name: match.group() for name, text in texts().items() if (match := pattern.search(text))
    }
    assert found == {}


def test_the_patterns_find_what_they_are_for() -> None:
    assert MACHINE_PATH.search("see " + "/".join(["", "home", "me", "notes"]))
    assert not MACHINE_PATH.search("https://example.org/home/page, ./srv/x")


def test_scripts_can_be_executed() -> None:
    scripts = [path for path in committed_files() if path.read_bytes().startswith(b"#!")]
    assert {"run", "setup.sh"} <= {path.name for path in scripts}
    assert [path.name for path in scripts if not path.stat().st_mode & 0o100] == []
