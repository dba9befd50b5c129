"""`python -m engine.train.evaluation`: how well a checkpoint, a server or a codec speaks."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import soundfile
import torch

from engine.codec.codec import load_codec
from engine.hub import CheckpointError
from engine.train.evaluation.measure import Measures, summary
from engine.train.evaluation.recogniser import NAME
from engine.train.evaluation.resynthesis import resynthesised
from engine.train.evaluation.speech import TEACHER_VOICES, Line, Said, cast, teacher_speech
from engine.train.evaluation.texts import NAMES, read_texts


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print a line for each speaker of the texts, and write the figures."""
    options = _parser().parse_args(arguments)
    torch.set_num_threads(options.threads)
    try:
        _evaluate(options)
    except (CheckpointError, OSError, ValueError) as error:
        print(f"evaluate: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m engine.train.evaluation", description=__doc__)
    add = parser.add_argument
    add("--stage", choices=("speech", "codec"), default="speech", help="what is measured")
    add("--codec", type=Path, metavar="DIR", help="codec checkpoint")
    add("--texts", default="agent", help=f"{', '.join(NAMES)} or a file, one text a line")
    add("--voice", default="all", help="one voice; all: each text by the next voice in turn")
    add("--limit", type=int, metavar="N", help="only the first N texts")
    add("--codebooks", default="", metavar="1,2,4", help="decode the first K true codes as well")
    add("--out", type=Path, metavar="DIR", help="write evaluation.json here")
    add("--keep-sound", action="store_true", help="write WAV files too (needs --out)")
    add("--threads", type=int, default=1, help="more than the free cores makes it slower")
    return parser


def _evaluate(options: argparse.Namespace) -> None:
    texts = read_texts(options.texts)[: options.limit]
    report = Report(options)
    _codec_stage(options, report, cast(texts, _voices(options.voice, list(TEACHER_VOICES))))
    report.write()


def _voices(wanted: str, known: Sequence[str]) -> list[str]:
    if wanted != "all" and wanted not in known:
        raise ValueError(f"there is no voice {wanted!r}; there are {', '.join(known)}")
    return list(known) if wanted == "all" else [wanted]


def _codec_stage(options: argparse.Namespace, report: Report, lines: Sequence[Line]) -> None:
    """The ceilings: the teacher's speech, and what the codec keeps of it."""
    if options.codec is None:
        raise ValueError("name the codec: --codec DIR")
    codec = load_codec(options.codec)
    teacher = teacher_speech(lines)
    report.measures = Measures(teacher, options.threads)
    report.add("teacher", teacher)
    counts = [codec.codebooks(int(count)) for count in options.codebooks.split(",") if count]
    every = codec.config.n_codebooks
    for count, said in resynthesised(codec, teacher, sorted({*counts, every})).items():
        report.add("codec" if count == every else f"codec, first {count}", said)


class Report:
    """Figures as they come, on the screen and in `evaluation.json`."""

    measures: Measures

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._figures: dict[str, Any] = {
            "texts": options.texts,
            "recogniser": NAME,
            "model": str(options.codec),
        }

    def add(self, name: str, said: Sequence[Said], **more: Any) -> None:
        """Measure what was said, show it and keep it."""
        figures = self.measures.of(said, ends=name == "speech") | more
        self._figures[name] = figures
        print(summary(name, figures), flush=True)
        if self._options.out and self._options.keep_sound:
            _write_sound(self._options.out / name, said)

    def write(self) -> None:
        """Write `evaluation.json`, if a folder was given for it."""
        if self._options.out:
            self._options.out.mkdir(parents=True, exist_ok=True)
            path = self._options.out / "evaluation.json"
            path.write_text(json.dumps(self._figures, indent=1) + "\n", encoding="utf-8")


def _write_sound(directory: Path, said: Sequence[Said]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for number, one in enumerate(said):
        path = directory / f"{number:03d}-{one.line.voice}.wav"
        soundfile.write(path, one.sound, one.rate_hz)
