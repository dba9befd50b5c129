"""One reference of each learned speaker, as `moss-realtime serve --voices` reads them."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import soundfile
import torch
from safetensors.torch import save_file

from engine.train.checkpoint import trainable
from engine.train.files import written_whole
from engine.train.finetune.learner import Learner
from engine.train.finetune.lessons import Course, Lesson
from engine.train.finetune.sound import recording_for

log = logging.getLogger(__name__)

GOOD_FRAMES = (38, 100)  # 3 to 8 s: long enough to know the voice, short enough to be quick
POSSIBLE_FRAMES = (13, 375)  # 1 to 30 s: what a server takes
CANDIDATES = 4


def write_voices(
    model_dir: Path, course: Course, lessons: Sequence[Lesson], rate_hz: int, directory: Path
) -> list[str]:
    """Write `NAME.wav` for each speaker, `transcripts.json` and `references.safetensors`.

    The reference is the training clip with which the model predicts the validation clips best.
    Returns the speakers' names.
    """
    directory.mkdir(parents=True, exist_ok=True)
    judge = Learner(trainable(model_dir), 0.0, torch.float32)
    chosen: dict[str, Lesson] = {}
    for speaker in dict.fromkeys(lesson.clip.speaker for lesson in lessons):
        best = _best(judge, course, speaker, [x for x in lessons if x.clip.speaker == speaker])
        if best is None:
            log.warning("no clip of %s is 1 to 30 s long: no reference is written", speaker)
        else:
            chosen[speaker] = best
    for speaker, lesson in chosen.items():
        pcm = recording_for(lesson.clip.audio, "reply", rate_hz).pcm
        with written_whole(directory / f"{speaker}.wav") as partial:
            soundfile.write(partial, pcm, rate_hz, format="WAV", subtype="PCM_16")
    texts = {speaker: lesson.clip.text for speaker, lesson in chosen.items()}
    with written_whole(directory / "transcripts.json") as partial:
        partial.write_text(json.dumps(texts, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    codes = {name: lesson.as_reference.astype(np.int32) for name, lesson in chosen.items()}
    with written_whole(directory / "references.safetensors") as partial:
        save_file({name: torch.from_numpy(array) for name, array in codes.items()}, partial)
    return list(chosen)


def _best(judge: Learner, course: Course, speaker: str, lessons: list[Lesson]) -> Lesson | None:
    candidates = _candidates(lessons)
    if len(candidates) < 2:
        return candidates[0] if candidates else None
    losses = []
    for lesson in candidates:
        batches = course.imitating(speaker, lesson.as_reference)
        losses.append(judge.loss(batches) if batches else 0.0)
    return candidates[int(np.argmin(losses))]


def _candidates(lessons: list[Lesson]) -> list[Lesson]:
    """Clips of a good length, else of a possible one; those nearest to the middle of it."""
    for low, high in (GOOD_FRAMES, POSSIBLE_FRAMES):
        fitting = [lesson for lesson in lessons if low <= len(lesson.as_reference) <= high]
        if fitting:
            middle = sum(GOOD_FRAMES) / 2
            fitting.sort(key=lambda lesson: abs(len(lesson.as_reference) - middle))
            return fitting[:CANDIDATES]
    return []
