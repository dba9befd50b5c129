"""`moss-realtime evaluate`: how well a checkpoint, a server or a codec speaks."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from engine.hub import CheckpointError
from engine.train.evaluation.stages import Evaluation
from engine.train.evaluation.texts import NAMES


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print a line for each speaker of the texts, and write the figures."""
    options = _parser().parse_args(arguments)
    torch.set_num_threads(options.threads)
    try:
        evaluation = Evaluation(options)
        if options.ceilings or options.stage == "codec":
            evaluation.ceilings()
        if options.stage == "speech":
            evaluation.speech()
        if options.stage == "diagnose":
            evaluation.diagnose()
        if options.dialogue:
            evaluation.dialogues()
        evaluation.write()
    except (CheckpointError, OSError, ValueError) as error:
        print(f"evaluate: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="moss-realtime evaluate", description=__doc__)
    add = parser.add_argument
    add("--model", type=Path, metavar="DIR", help="checkpoint, spoken by the engine in here")
    add("--codec", type=Path, metavar="DIR", help="codec checkpoint")
    add("--voices", type=Path, metavar="DIR", help="NAME.wav of each voice; else the teacher's")
    add("--url", help="a running server instead of a checkpoint, such as http://localhost:8000")
    add(
        "--stage",
        choices=("speech", "codec", "diagnose"),
        default="speech",
        help="codec: the ceilings alone; diagnose: true codes first, the model's own after them",
    )
    add("--state", type=Path, metavar="FILE", help="state.pt of training: diagnose phonemes, too")
    add("--texts", default="agent", help=f"{', '.join(NAMES)} or a file, one text a line")
    add("--voice", default="all", help="one voice; all: each text by the next voice in turn")
    add("--limit", type=int, metavar="N", help="only the first N texts")
    add("--dialogue", action="store_true", help="three turns in one context, too")
    add("--no-ceilings", dest="ceilings", action="store_false", help="neither teacher nor codec")
    add("--codebooks", default="", metavar="1,2,4", help="decode the first K true codes as well")
    add("--temperature", type=float, help="this and the next three: the checkpoint's by default")
    add("--top-p", type=float)
    add("--top-k", type=int)
    add("--repetition-penalty", type=float)
    add("--out", type=Path, metavar="DIR", help="write evaluation.json here")
    add("--keep-sound", action="store_true", help="and WAV files too")
    add("--threads", type=int, default=1, help="more than the free cores makes it slower")
    return parser
