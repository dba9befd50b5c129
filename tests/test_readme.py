"""README names only what exists, and a test for each of its claims."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CLAIMS = ROOT / "tests" / "claims.md"
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def claims() -> dict[str, list[str]]:
    """Return each claim of `tests/claims.md` with the tests that prove it."""
    rows = re.findall(r"^\| (?!claim)(\S.*?) \| (.*?) \|$", CLAIMS.read_text("utf-8"), re.MULTILINE)
    return {claim: re.findall(r"\]\((\S+?\.py)\)", tests) for claim, tests in rows}


def test_every_link_leads_somewhere() -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", README + CONTRIBUTING)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_every_claim_names_its_test() -> None:
    assert claims()
    assert [claim for claim, tests in claims().items() if not tests] == []


def test_the_tests_named_have_tests() -> None:
    named = {CLAIMS.parent / test for tests in claims().values() for test in tests}
    assert [path for path in named if "def test_" not in path.read_text(encoding="utf-8")] == []


def test_every_make_target_named_exists() -> None:
    targets = set(re.findall(r"^(\w+):", MAKEFILE, re.MULTILINE))
    named = set(re.findall(r"\bmake (\w+)\b(?= *(?:$|#|`))", README + CONTRIBUTING, re.MULTILINE))
    assert {"demo", "test"} <= named <= targets


def test_readme_fits_a_screen() -> None:
    assert len(README.splitlines()) <= 90
