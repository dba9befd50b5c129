"""`make voice`: from nothing to a voice that speaks, stage after stage; each resumes where it was.

Every stage has a folder in `--out`: `corpus`, `codec`, `codes`, `language`, `evaluation`, and
`voice`, which is what ships. Run the same command again to go on with a run that was stopped.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from engine.train.codec.run import CodecRecipe, train_codec
from engine.train.corpus.build import build_corpus
from engine.train.evaluation.texts import held_out
from engine.train.export import export_voice
from engine.train.files import written_whole
from engine.train.journal import Journal
from engine.train.language.codes import encode_corpus
from engine.train.language.prepare import load_utterances, prepare_settings
from engine.train.language.run import LanguageRecipe, train_language
from engine.train.packages import MissingPackages, require_packages

log = logging.getLogger(__name__)

SPOKEN_CODEBOOKS = 4  # at most: more cost time in every frame and carry little that is heard
CODEC_SHARE = 0.5  # of the time for training; the rest is the language model's
LEAST_TRAINING_SHARE = 0.5  # of all minutes, however slow the rest may be

HOURS_PER_MINUTE, MOST_HOURS = 0.09, 20.0  # ten minutes: two shards
TEXTS_PER_MINUTE, FEWEST_TEXTS, MOST_TEXTS = 0.5, 4, 100

# What the rest costs, measured on two cores of 2.1 GHz.
TEACHER_TIMES_REAL_TIME = 100.0  # on each core
ENCODER_TIMES_REAL_TIME = 100.0
EVALUATION_S_PER_TEXT = 10.0  # of each set: spoken, and heard nine times
FIXED_S = 90.0  # tokenizer, export, loading of the recogniser


class OtherRun(Exception):
    """The folder holds a run that was begun with other settings."""


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """How long a run takes, and of what; what it was begun with is what it goes on with."""

    minutes: float  # all of it, about
    hours: float  # of speech to learn from
    texts: int  # of each set, to be evaluated
    codec: str | None  # the checkpoint to continue

    @classmethod
    def of(cls, minutes: float, hours: float | None, texts: int | None, codec: Path | None) -> Plan:
        """Fill in what was not given, by the minutes."""
        return cls(
            minutes=minutes,
            hours=hours or min(MOST_HOURS, round(HOURS_PER_MINUTE * minutes, 2)),
            texts=texts or int(min(MOST_TEXTS, max(FEWEST_TEXTS, TEXTS_PER_MINUTE * minutes))),
            codec=None if codec is None else str(codec),
        )

    def training_minutes(self, cores: int) -> tuple[float, float]:
        """What is left for the codec and for the language model once all else has its time."""
        speech_s = 3600 * self.hours
        other_s = speech_s / (TEACHER_TIMES_REAL_TIME * cores) + speech_s / ENCODER_TIMES_REAL_TIME
        other_s += FIXED_S + EVALUATION_S_PER_TEXT * self.texts
        training = max(LEAST_TRAINING_SHARE * self.minutes, self.minutes - other_s / 60)
        return CODEC_SHARE * training, (1 - CODEC_SHARE) * training


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all stages that are not done yet. Returns the exit status."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    torch.set_num_threads(options.threads)
    try:
        require_packages()
        plan = Plan.of(options.minutes, options.hours, options.texts, options.codec)
        _keep_plan(options.out, plan)
        make_voice(options.out, plan, options.threads)
    except (MissingPackages, OtherRun) as error:
        print(f"voice: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"voice: {error}; run the same command again to go on", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("voice: stopped; run the same command again to go on", file=sys.stderr)
        return 130
    return 0


def make_voice(out: Path, plan: Plan, threads: int) -> None:
    """Run the stages; one that is done is not run again."""
    codec_minutes, language_minutes = plan.training_minutes(threads)
    recipe = CodecRecipe()
    codebooks = min(SPOKEN_CODEBOOKS, recipe.codebooks)
    codec, settings, voice = out / "codec/codec", out / "language/settings", out / "voice"
    start = None if plan.codec is None else Path(plan.codec)
    excluded = held_out()

    def corpus() -> None:
        journal = Journal(out / "corpus", "corpus")
        build_corpus(out / "corpus", plan.hours, excluded, journal, threads)
        journal.plot()

    def codes() -> None:
        journal = Journal(out / "codes", "codes")
        encode_corpus(out / "corpus", codec, out / "codes", journal)
        journal.plot()

    def language() -> None:
        prepare_settings(out / "corpus", codec, settings, codebooks)
        utterances = load_utterances(out / "corpus", out / "codes", settings, excluded)
        train_language(utterances, settings, out / "language", language_minutes, LanguageRecipe())

    def evaluate(name: str, *what: str) -> None:
        _evaluate(out / "evaluation" / name, plan, threads, *what)

    speaks = ("--model", str(voice / "model"), "--voices", str(voice / "voices"))
    speaks += ("--codec", str(voice / "codec"))
    kept = ("--stage", "codec", "--codec", str(codec), "--codebooks", _halvings(recipe.codebooks))
    _once(out / "corpus", corpus)
    _once(
        out / "codec",
        lambda: train_codec(out / "corpus", codec.parent, codec_minutes, recipe, start),
    )
    _once(out / "evaluation/codec", lambda: evaluate("codec", *kept))
    _once(out / "codes", codes)
    _once(out / "language", language)
    _once(voice, lambda: export_voice(out / "language/model", codec, voice))
    for texts in ("agent", "words"):
        _once(
            out / "evaluation" / texts, lambda name=texts: evaluate(name, *speaks, "--texts", name)
        )
    log.info("the voice is in %s; to hear it:", voice)
    log.info("moss-realtime serve %s", " ".join(speaks))


def _once(folder: Path, work: Callable[[], None]) -> None:
    """Do `work`, unless it was done; `folder` says so afterwards."""
    done = folder / "done"
    if not done.is_file():
        log.info("stage %s", folder)
        work()
        done.touch()


def _keep_plan(out: Path, plan: Plan) -> None:
    """Write the plan of a new run; refuse to go on with an old one by another plan.

    A codec that is trained on would no longer fit the codes that the language model has learned.
    """
    path = out / "plan.json"
    wanted = dataclasses.asdict(plan)
    if not path.is_file():
        out.mkdir(parents=True, exist_ok=True)
        with written_whole(path) as partial:
            partial.write_text(json.dumps(wanted) + "\n", encoding="utf-8")
        return
    begun = json.loads(path.read_text(encoding="utf-8"))
    other = [
        f"{name} {begun.get(name)}, not {wanted[name]}"
        for name in wanted
        if begun.get(name) != wanted[name]
    ]
    if other:
        raise OtherRun(f"{out} was begun with {', '.join(other)}: go on so, or name another folder")


def _evaluate(directory: Path, plan: Plan, threads: int, *what: str) -> None:
    from engine.train.evaluation.command import main as evaluate

    settings = ("--limit", str(plan.texts), "--threads", str(threads), "--out", str(directory))
    if evaluate([*what, *settings]):
        raise OSError(f"the evaluation for {directory} failed, see above")


def _halvings(codebooks: int) -> str:
    """`1,2,4` and so on, all below `codebooks`: all of them are measured anyway."""
    return ",".join(str(1 << power) for power in range(16) if 1 << power < codebooks)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m engine.train.voice", description=__doc__)
    add = parser.add_argument
    add("--out", type=Path, default=Path("build/voice"), help="where the stages keep their work")
    add("--minutes", type=_positive, default=300, help="about how long all of it may take")
    add(
        "--hours",
        type=_positive,
        help="of speech to learn from (default: by the minutes, at most 20)",
    )
    add("--texts", type=int, metavar="N", help="evaluate the first N of each set (by the minutes)")
    add("--codec", type=Path, metavar="DIR", help="a codec checkpoint to continue")
    add("--threads", type=int, default=os.cpu_count() or 1)
    return parser


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} must be more than 0")
    return value


if __name__ == "__main__":
    sys.exit(main())
