"""Which `Open` a model cannot serve, however much room there is, and what to say about it."""

from __future__ import annotations

from engine.api import ModelInfo, Open, Refused
from engine.models.interface import Layout


def unfit(command: Open, info: ModelInfo, layout: Layout) -> Refused | None:
    """What makes a row impossible for the model, if anything does."""
    problem = _problem(command, info, layout)
    return None if problem is None else Refused(command.row, *problem, 0)


def _problem(command: Open, info: ModelInfo, layout: Layout) -> tuple[str, str] | None:
    """Code and message."""
    if command.model != info.name:
        return "unknown_model", f"no model {command.model!r}; loaded: {info.name}"
    rows, made = len(command.grid), len(command.generated) - command.segment_frame
    if rows + layout.prefill_ids + max(0, made - 1) > info.max_grid_rows:
        made_rows = f" and {made} of the reply" if made > 0 else ""
        most = f"{info.max_grid_rows} is the most"
        return "context", f"the context has {rows} grid rows{made_rows}; {most}"
    problem = layout.problem_with(command.grid) or layout.cannot_open(command.grid)
    if problem is None and command.decoder_codes.shape[1:] != (info.n_vq,):
        problem = f"decoder_codes are {list(command.decoder_codes.shape)}, not [F, {info.n_vq}]"
    if problem is None:
        problem = layout.problem_with_made(command.generated, command.segment_frame)
    if problem is not None:
        return "bad_grid", problem
    if len(command.generated) and not layout.can_go_on:
        return "engine_restarted", f"a response of {info.name} cannot go on after a restart"
    return None
