"""What a run leaves behind: a line of progress, figures as JSON lines, one plot, its last state."""

from __future__ import annotations

import json
import logging
import os
import time
from pathlib import Path
from typing import Any

import torch

log = logging.getLogger(__name__)

PROGRESS_EVERY_S = 10.0
SAVE_EVERY_S = 180.0  # a killed run loses less than five minutes


class Journal:
    """Writes into `directory`: `figures.jsonl`, `figures.png`, `state.pt`."""

    def __init__(self, directory: Path, stage: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self._stage = stage
        self._started_s = time.monotonic()
        self._spoke_s = self._saved_s = self._started_s
        self._begun_at = 0.0

    def resume_at(self, share: float) -> None:
        """Say what share of the work was done before, so that the time left is not too rosy."""
        self._begun_at = share

    def progress(self, share: float, *, always: bool = False, **figures: float) -> None:
        """Tell how far the work is (0..1) and its figures, at most every ten seconds."""
        now_s = time.monotonic()
        if not always and share < 1 and now_s - self._spoke_s < PROGRESS_EVERY_S:
            return
        self._spoke_s = now_s
        spent_s = now_s - self._started_s
        done = max(1e-9, share - self._begun_at)
        left_s = spent_s / done * (1 - share)
        shown = "  ".join(f"{name} {value:.4g}" for name, value in figures.items())
        log.info("%s %5.1f %%  %.0f min left  %s", self._stage, 100 * share, left_s / 60, shown)
        self.record(share=share, spent_s=spent_s, **figures)

    def record(self, **figures: Any) -> None:
        """Append one line to `figures.jsonl`."""
        line = {"stage": self._stage, **figures}
        with (self.directory / "figures.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def save_due(self) -> bool:
        """Whether the state is old enough to be saved again."""
        return time.monotonic() - self._saved_s > SAVE_EVERY_S

    def save(self, state: dict[str, Any]) -> None:
        """Replace `state.pt` by `state`: a kill or a full disk leaves the last good one."""
        path = self.directory / "state.pt"
        partial = path.with_suffix(".partial")
        with partial.open("wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
        self._saved_s = time.monotonic()

    def state(self) -> dict[str, Any] | None:
        """The state that was saved last, or None."""
        path = self.directory / "state.pt"
        return torch.load(path, weights_only=True) if path.is_file() else None

    def plot(self) -> None:
        """Draw every figure of `figures.jsonl` over the share of the work, as `figures.png`."""
        rows = [row for row in self._rows() if "share" in row]
        names = sorted({name for row in rows for name in row} - {"stage", "share", "spent_s"})
        if not names:
            return
        import matplotlib

        matplotlib.use("agg")
        from matplotlib import pyplot

        figure, axes = pyplot.subplots(
            len(names), figsize=(8, 1.6 * len(names)), squeeze=False, sharex=True
        )
        for axis, name in zip(axes[:, 0], names, strict=True):
            points = [(row["share"], row[name]) for row in rows if name in row]
            axis.plot(*zip(*points, strict=True))
            axis.set_ylabel(name)
        figure.savefig(self.directory / "figures.png")
        pyplot.close(figure)

    def _rows(self) -> list[dict[str, Any]]:
        """The lines of `figures.jsonl`, but for one that a kill has cut."""
        path = self.directory / "figures.jsonl"
        rows = []
        for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
            try:
                rows.append(json.loads(line))
            except json.JSONDecodeError:
                log.warning("%s has a broken line: %s", path, line)
        return rows
