"""An hour of dialogue in one reply: memory grows by what the model must remember, and no more."""

from __future__ import annotations

from tests.bench.long_reply import long_reply

MINUTES = 60
SPARE_MIB = 48
"""For what the allocator and the first minutes take."""
KEPT_BYTES_PER_ROW = 2048
"""Of a grid row besides keys and values: its ids and codes in the row's grid and in the codec."""


def test_memory_of_an_hour_is_bounded(tmp_path) -> None:
    figures = long_reply(MINUTES, tmp_path)
    assert figures["sound_s"] == 60 * MINUTES
    assert figures["reason"] == "max_audio"
    tenths = [tenth["rss_mib"] for tenth in figures["rss"]]
    rows = figures["steps"]
    must_keep = rows * (figures["kv_bytes_per_grid_row"] + KEPT_BYTES_PER_ROW) / 2**20
    assert tenths[-1] - tenths[1] < must_keep + SPARE_MIB
