"""`complaints.md` has every row, and names tests that exist."""

from __future__ import annotations

from tests.proof_tables import missing_proofs, proofs, read_rows

ROWS = read_rows("complaints.md")
OF_THE_ENGINE = {22, 27}


def test_every_row_is_proven_or_says_why_not() -> None:
    assert list(ROWS) == [str(n) for n in range(1, 43) if n not in OF_THE_ENGINE]
    for number, cell in ROWS.items():
        reason = cell.startswith(("out of scope: ", "open: "))
        assert bool(proofs(cell)) != reason, f"row {number}: {cell}"


def test_every_proof_exists() -> None:
    assert missing_proofs(ROWS) == []
