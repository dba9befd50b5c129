"""`make voice`: from nothing to a voice that speaks, stage after stage; each resumes where it was.

Every stage has a folder in `--out`: `corpus`, `codec`, `codes`, `language`, `evaluation`, and
`voice`, which is what ships.
"""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Sequence
from pathlib import Path

import torch

from engine.train import evaluation
from engine.train.codec.run import CodecRecipe, train_codec
from engine.train.corpus.build import build_corpus
from engine.train.evaluation.texts import held_out
from engine.train.export import export_voice
from engine.train.journal import Journal
from engine.train.language.codes import encode_corpus
from engine.train.language.prepare import load_utterances, prepare_settings
from engine.train.language.run import LanguageRecipe, train_language

log = logging.getLogger(__name__)

CODEC_SHARE, LANGUAGE_SHARE = 0.45, 0.45  # of the minutes; the rest is for all that is not training
HOURS_PER_MINUTE = 0.1
MOST_HOURS = 20.0
CODEBOOKS = 4


def main(arguments: Sequence[str] | None = None) -> None:
    """Run all stages."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    torch.set_num_threads(options.threads)
    out, minutes = options.out, options.minutes
    excluded = held_out()
    hours = options.hours or min(MOST_HOURS, HOURS_PER_MINUTE * minutes)
    build_corpus(out / "corpus", hours, excluded, Journal(out / "corpus", "corpus"))
    codec_dir, settings = out / "codec" / "codec", out / "language" / "settings"
    train_codec(out / "corpus", out / "codec", CODEC_SHARE * minutes, CodecRecipe(), options.codec)
    encode_corpus(out / "corpus", codec_dir, out / "codes", Journal(out / "codes", "codes"))
    prepare_settings(out / "corpus", codec_dir, settings, CODEBOOKS)
    utterances = load_utterances(out / "corpus", out / "codes", settings, excluded)
    train_language(
        utterances, settings, out / "language", LANGUAGE_SHARE * minutes, LanguageRecipe()
    )
    export_voice(out / "language" / "model", codec_dir, out / "voice")
    evaluation.measure_voice(out / "voice", out / "evaluation", options.limit)
    log.info("the voice is in %s: moss-realtime serve --model ... --codec ...", out / "voice")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m engine.train.voice", description=__doc__)
    add = parser.add_argument
    add("--out", type=Path, default=Path("build/voice"), help="where the stages keep their work")
    add("--minutes", type=float, default=300, help="about how long all of it may take")
    add("--hours", type=float, help="of speech to learn from (default: by the minutes, at most 20)")
    add("--codec", type=Path, metavar="DIR", help="a codec checkpoint to continue")
    add("--limit", type=int, help="evaluate only the first N texts")
    add("--threads", type=int, default=os.cpu_count() or 1)
    return parser


if __name__ == "__main__":
    main()
