"""`moss-realtime finetune`: continue a checkpoint on your own recordings."""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from engine.hub import CheckpointError, resolve
from engine.train.files import written_whole
from engine.train.finetune.check import LEAST_CLIPS, Report, Target, check
from engine.train.finetune.encoding import CodeBook
from engine.train.finetune.lessons import Course, Lesson, lesson_of, split
from engine.train.finetune.loop import OtherRun, Recipe, Run, describe
from engine.train.finetune.lora import MissingPackage
from engine.train.finetune.manifest import ManifestError, read_manifest
from engine.train.finetune.voices import write_voices
from engine.train.journal import Journal
from engine.train.memory import keep_freed_memory

log = logging.getLogger("finetune")

RATE_TIMES_WIDTH = 0.05  # the wider a model, the smaller the steps that it bears
ADAPTERS_FASTER = 10

_FORMAT = """\
The manifest has one JSON object a line; file names are relative to it:

  {"audio": "a.wav", "text": "What is said in it.", "speaker": "nova"}

`speaker` names the voice (without it all clips are one voice), `ref_audio` a recording of the voice
to imitate (without it another clip of the speaker serves). `turns` are earlier turns of the
dialogue: [{"role": "user", "text": "...", "audio": "u.wav"}, {"role": "assistant", ...}]; a user's
may be without audio. WAV, FLAC, MP3 and Ogg of any rate are read, and never changed.

In --out: model/ is the best checkpoint, voices/ a reference of each speaker, figures.jsonl and
figures.png what happened; run the same command again to go on with a run that was stopped. Then:

  moss-realtime serve --model OUT/model --codec CODEC --voices OUT/voices
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Check, encode, train, choose the references. Returns the exit status."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    torch.set_num_threads(options.threads)
    keep_freed_memory()
    try:
        return _finetune(options)
    except (CheckpointError, ManifestError, MissingPackage, OtherRun) as error:
        print(f"finetune: {error}", file=sys.stderr)
    except torch.OutOfMemoryError:
        print(
            "finetune: not enough GPU memory; try fewer --rows with more --accumulate, "
            "--gradient-checkpointing or --lora 16",
            file=sys.stderr,
        )
    except OSError as error:
        print(f"finetune: {error}; what was saved last is kept", file=sys.stderr)
    except KeyboardInterrupt:
        print("finetune: stopped; run the same command again to go on", file=sys.stderr)
        return 130
    return 1


def _finetune(options: argparse.Namespace) -> int:
    model_dir, codec_dir = resolve(options.model), resolve(options.codec)
    target = Target.of(model_dir, codec_dir)
    clips, unusable = read_manifest(options.data)
    report = check(clips, unusable, target)
    print(report.json() if options.json else report.text(), flush=True)
    if options.check_only or not report.enough:
        return 0 if report.enough else 1
    if options.out is None:
        raise ManifestError("name a folder for the result: --out DIR")
    if (options.out / "model").resolve() == model_dir.resolve():
        raise OtherRun(f"{options.out} holds the checkpoint to start from; name another --out")
    return _train(options, model_dir, codec_dir, target, report)


def _train(
    options: argparse.Namespace, model_dir: Path, codec_dir: Path, target: Target, report: Report
) -> int:
    out, device = options.out, _device(options.device)
    out.mkdir(parents=True, exist_ok=True)
    with written_whole(out / "check.json") as partial:
        partial.write_text(report.json() + "\n", encoding="utf-8")
    book = CodeBook(out / "codes", codec_dir, target.model.n_vq, device)
    clips = [checked.clip for checked in report.usable]
    book.encode_all(clips, Journal(out / "codes", "codes"))
    lessons = [lesson_of(clip, target.prompt, book.codes) for clip in clips]
    recipe = _recipe(options, target.model.backbone.hidden_size)
    training, validation = split(lessons, recipe.validation_share, recipe.seed)
    log.info("%d clips to learn from, %d for validation", len(training), len(validation))
    course = Course(training, validation, target.prompt, recipe.rows, recipe.seed)
    dtype = None if options.dtype == "auto" else getattr(torch, options.dtype)
    run = Run(model_dir, out, course, recipe, _origin(model_dir, lessons), device, dtype)
    place = run.train()
    del run  # and the memory of its model and optimizer
    if not place.improved:
        print(f"finetune: nothing was better than {model_dir}; try another --rate", file=sys.stderr)
        return 1
    voices = write_voices(out / "model", course, training, target.codec.sample_rate, out / "voices")
    _finish(out, describe(place) | {"voices": voices, "clips": len(training)})
    print(
        f"validation loss {place.start_loss:.4f} -> {place.best_loss:.4f}. To hear it:\n"
        f"moss-realtime serve --model {out / 'model'} --codec {options.codec} "
        f"--voices {out / 'voices'}"
    )
    return 0


def _finish(out: Path, figures: dict[str, object]) -> None:
    with written_whole(out / "result.json") as partial:
        partial.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    try:
        Journal(out, "finetune").plot()
    except ImportError:
        log.info("no figures.png: matplotlib is not installed")


def _recipe(options: argparse.Namespace, width: int) -> Recipe:
    usual = RATE_TIMES_WIDTH / width * (1 if options.lora is None else ADAPTERS_FASTER)
    return Recipe(
        epochs=options.epochs,
        rate=options.rate or usual,
        rows=options.rows,
        accumulate=options.accumulate,
        patience=options.patience,
        lora=options.lora,
        recompute=options.gradient_checkpointing,
        validation_share=options.validation,
        seed=options.seed,
    )


def _origin(model_dir: Path, lessons: Sequence[Lesson]) -> str:
    """What a run is made of: it can only be continued on the same."""
    digest = hashlib.sha256(str(model_dir.resolve()).encode())
    for lesson in lessons:
        digest.update(f"{lesson.clip.speaker}\0{lesson.clip.text}\0".encode())
        for turn in lesson.turns:
            digest.update(repr(turn.text_ids).encode() + turn.codes.tobytes())
    return digest.hexdigest()


def _device(wanted: str) -> str:
    if wanted != "auto":
        return wanted
    return "cuda" if torch.cuda.is_available() else "cpu"


def _parser() -> argparse.ArgumentParser:
    defaults = Recipe(rate=0.0)
    parser = argparse.ArgumentParser(
        prog="moss-realtime finetune",
        description="Continue a checkpoint on your own recordings.",
        epilog=_FORMAT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--model", required=True, metavar="DIR", help="checkpoint to start from, or its hub id")
    add("--codec", required=True, metavar="DIR", help="codec of that checkpoint, or its hub id")
    add("--data", type=Path, required=True, metavar="FILE", help="manifest of the recordings")
    add("--out", type=Path, metavar="DIR", help="folder for the result and the run's state")
    add("--check-only", action="store_true", help=f"only check (at least {LEAST_CLIPS} clips)")
    add("--json", action="store_true", help="print the check as JSON")
    add("--lora", type=_count, metavar="RANK", help="train adapters of this rank, then merge them")
    add("--epochs", type=_count, default=defaults.epochs, help="at most (%(default)s)")
    add("--rate", type=float, help="learning rate (by the width of the model; --lora: 10x)")
    add("--rows", type=_count, default=defaults.rows, help="grid rows in a batch (%(default)s)")
    add("--accumulate", type=_count, default=1, help="batches in an update (%(default)s)")
    add(
        "--patience",
        type=_count,
        default=defaults.patience,
        help="epochs without gain (%(default)s)",
    )
    add("--validation", type=_share, default=defaults.validation_share, help="share of the clips")
    add("--gradient-checkpointing", action="store_true", help="less memory, a third more time")
    add("--dtype", choices=("auto", "float32", "bfloat16"), default="auto", help="auto: the faster")
    add("--device", default="auto", help="auto, cpu, cuda, cuda:1...")
    add("--threads", type=_count, default=os.cpu_count() or 1, help="CPU threads")
    add("--seed", type=int, default=0)
    return parser


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {value}")
    return value


def _share(text: str) -> float:
    value = float(text)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"must be between 0 and 1, not {value}")
    return value


if __name__ == "__main__":
    sys.exit(main())
