"""`conversation_requirements.md` has every requirement, and names tests that exist."""

from __future__ import annotations

from tests.proof_tables import missing_proofs, proofs, read_rows

ROWS = read_rows("conversation_requirements.md")
REQUIRED = {1: 3, 2: 5, 3: 3, 4: 4, 5: 2, 6: 1, 7: 3, 8: 3, 9: 2, 10: 1, 11: 2, 12: 1}


def test_every_requirement_is_proven_or_says_why_not() -> None:
    expected = [f"{part}.{n}" for part, count in REQUIRED.items() for n in range(1, count + 1)]
    assert list(ROWS) == expected
    for number, cell in ROWS.items():
        assert bool(proofs(cell)) != cell.startswith("out of scope: "), f"row {number}: {cell}"


def test_every_proof_exists() -> None:
    assert missing_proofs(ROWS) == []
