"""`complaints.md` has every row, and names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parent
ROW = re.compile(r"\| (\d+) \| ([^|]+) \| ([^|]+) \|")
OF_THE_ENGINE = {22, 27}


def rows() -> dict[int, str]:
    lines = (TESTS / "complaints.md").read_text(encoding="utf-8").splitlines()
    return {int(row[1]): row[3] for line in lines if (row := ROW.fullmatch(line))}


def proofs(cell: str) -> list[tuple[str, str]]:
    return re.findall(r"`([\w/]+\.py)::(\w+)`", cell)


def test_every_row_is_proven_or_says_why_not() -> None:
    table = rows()
    assert list(table) == sorted(set(range(1, 43)) - OF_THE_ENGINE)
    for number, cell in table.items():
        reason = cell.startswith(("out of scope: ", "open: "))
        assert bool(proofs(cell)) != reason, f"row {number}: {cell}"


def test_every_proof_exists() -> None:
    missing = [
        f"row {number}: {file}::{test}"
        for number, cell in rows().items()
        for file, test in proofs(cell)
        if not (TESTS / file).exists() or f"def {test}(" not in (TESTS / file).read_text("utf-8")
    ]
    assert missing == []
