"""Which `Open` a model cannot serve, however much room there is, and what to say about it."""

from __future__ import annotations

import numpy as np

from engine.api import ModelInfo, Open, Refused, U16Codes
from engine.models.interface import Layout


def unfit(command: Open, info: ModelInfo, layout: Layout) -> Refused | None:
    """What makes a row impossible for the model, if anything does."""
    problem = _problem(command, info, layout)
    return None if problem is None else Refused(command.row, *problem, 0)


def _problem(command: Open, info: ModelInfo, layout: Layout) -> tuple[str, str] | None:
    """Code and message."""
    if command.model != info.name:
        return "unknown_model", f"no model {command.model!r}; loaded: {info.name}"
    n_vq = info.n_vq if command.n_vq is None else command.n_vq
    if not layout.least_n_vq <= n_vq <= info.n_vq:
        return "bad_n_vq", f"n_vq is {_range(layout.least_n_vq, info.n_vq)} here, not {n_vq}"
    return (
        _problem_with_context(command, n_vq, info, layout)
        or _problem_with_frames(command, n_vq, layout)
        or _problem_with_going_on(command, info, layout)
    )


def _problem_with_context(
    command: Open, n_vq: int, info: ModelInfo, layout: Layout
) -> tuple[str, str] | None:
    problem = layout.problem_with(command.grid) or layout.cannot_open(command.grid, n_vq)
    if problem is not None:
        return "bad_grid", problem
    rows, made = len(command.grid), len(command.generated) - command.segment_frame
    if rows + layout.prefill_ids + max(0, made - 1) > info.max_grid_rows:
        made_rows = f" and {made} of the reply" if made > 0 else ""
        most = f"{info.max_grid_rows} is the most"
        return "context", f"the context has {rows} grid rows{made_rows}; {most}"
    return None


def _problem_with_frames(command: Open, n_vq: int, layout: Layout) -> tuple[str, str] | None:
    for name in ("decoder_codes", "generated"):
        problem = _problem_with_codes(name, getattr(command, name), n_vq, layout.frame_codes)
        if problem is not None:
            return "bad_grid", problem
    return None


def _problem_with_codes(name: str, codes: U16Codes, n_vq: int, size: int) -> str | None:
    if codes.ndim != 2 or codes.shape[1] != n_vq or codes.dtype.kind not in "iu":
        return f"{name} is {codes.dtype} {list(codes.shape)}; expected whole numbers [F, {n_vq}]"
    outside = (codes < 0) | (codes >= size)
    if not outside.any():
        return None
    frame, codebook = np.argwhere(outside)[0]
    return (
        f"code {codes[frame, codebook]} of {name}, frame {frame}, codebook {codebook}, "
        f"is outside 0..{size - 1}"
    )


def _problem_with_going_on(
    command: Open, info: ModelInfo, layout: Layout
) -> tuple[str, str] | None:
    made = len(command.generated)
    if not 0 <= command.segment_frame <= made:
        return "bad_grid", f"segment_frame is {command.segment_frame}; there are {made} frames"
    if made and not layout.can_go_on:
        return "engine_restarted", f"a response of {info.name} cannot go on after a restart"
    return None


def _range(least: int, most: int) -> str:
    return str(most) if least == most else f"{least}..{most}"
