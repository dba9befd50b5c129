"""Tables of requirements whose last column names the tests that prove them."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parent
ROW = re.compile(r"\| ([\d.]+) \| ([^|]+) \| ([^|]+) \|")


def read_rows(table: str) -> dict[str, str]:
    """Return the proofs of each number in a Markdown file beside this one."""
    lines = (TESTS / table).read_text(encoding="utf-8").splitlines()
    return {row[1]: row[3] for line in lines if (row := ROW.fullmatch(line))}


def proofs(cell: str) -> list[tuple[str, str]]:
    """Return the file and name of each test that a cell names."""
    return re.findall(r"`([\w/]+\.py)::(\w+)`", cell)


def missing_proofs(rows: dict[str, str]) -> list[str]:
    """Return the tests that are named and do not exist."""
    return [
        f"row {number}: {file}::{test}"
        for number, cell in rows.items()
        for file, test in proofs(cell)
        if not (TESTS / file).exists() or f"def {test}(" not in (TESTS / file).read_text("utf-8")
    ]
