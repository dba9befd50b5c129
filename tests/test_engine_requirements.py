"""`engine_requirements.md` has every requirement, and names tests that exist."""

from __future__ import annotations

from tests.proof_tables import missing_proofs, proofs, read_rows

ROWS = read_rows("engine_requirements.md")
REQUIRED = {2: (*range(1, 9), 11), 3: (*range(1, 8), 10), 4: range(1, 9), 8: range(1, 7)}


def test_every_requirement_is_proven_or_says_why_not() -> None:
    expected = [f"{section}.{number}" for section, all_ in REQUIRED.items() for number in all_]
    assert list(ROWS) == expected
    for number, cell in ROWS.items():
        assert bool(proofs(cell)) != cell.startswith("out of scope: "), f"row {number}: {cell}"


def test_every_proof_exists() -> None:
    assert missing_proofs(ROWS) == []
