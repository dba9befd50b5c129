"""Which part is the weakest: the model's codes beside true ones, and its phonemes beside the text.

Three parts stand between text and clear speech. What the codec keeps, resynthesis tells. The rest
is told here: the model's own codes on a true past, from the true first k codebooks of each frame
on; and what its phoneme head, which only training has, says of the sound that the model itself has
made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jiwer
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.codec.codec import AudioCodec
from engine.models.realtime import read_realtime
from engine.models.realtime_prompt import RealtimePrompt, Turn
from engine.train.corpus.teacher import PHONEMES, Teacher
from engine.train.evaluation.resynthesis import encode
from engine.train.evaluation.speech import TEACHER_VOICES, Line, Said
from engine.train.language.codes import SAMPLES_PER_FRAME
from engine.train.language.helpers import Heads
from engine.train.language.spoken import frame_phonemes
from engine.train.objective import hidden_states
from engine.train.packing import IGNORE, dialogue_example

PAUSE = 0


class Diagnosis:
    """A checkpoint on whole sequences: no engine, no sampling."""

    def __init__(
        self, model_dir: Path, codec: AudioCodec, references: Mapping[str, NDArray[np.uint16]]
    ) -> None:
        self._model = read_realtime(model_dir).eval()
        self._prompt = RealtimePrompt.from_checkpoint(model_dir)
        self._codec, self._references = codec, references

    def own_rest(self, teacher: Sequence[Said]) -> Iterator[tuple[int, list[Said]]]:
        """For k = 0, 1, ...: the sound of the true first k codes and the model's best guess after.

        The past is always the teacher's.
        """
        n_vq = self._prompt.n_vq
        coded = [encode(self._codec, said, n_vq) for said in teacher]
        hidden = [self.hidden(one.line, codes) for one, codes in zip(teacher, coded, strict=True)]
        for kept in range(n_vq):
            yield (
                kept,
                [
                    Said(said.line, self._sound(state, codes, kept), self._codec.config.sample_rate)
                    for said, state, codes in zip(teacher, hidden, coded, strict=True)
                ],
            )

    @torch.inference_mode()
    def hidden(self, line: Line, codes: NDArray[np.uint16]) -> Tensor:
        """The state [F, hidden_size] before each frame of `codes` u16 [F, n_vq]."""
        ids = tuple(self._prompt.tokenizer.encode(line.text))
        turns = [Turn("assistant", ids, codes)]
        example = dialogue_example(self._prompt, turns, self._references[line.voice])
        grid = torch.from_numpy(example.grid).long()
        states = hidden_states(self._model, self._model.embed(grid), [len(grid)])
        first = example.labels[:, 0]
        return states[torch.from_numpy((first != IGNORE) & (first < self._prompt.audio_pad))]

    @torch.inference_mode()
    def _sound(self, hidden: Tensor, codes: NDArray[np.uint16], kept: int) -> NDArray[np.float32]:
        true = torch.from_numpy(codes.astype(np.int64))

        def choose(codebook: int, logits: Tensor) -> Tensor:
            if codebook < kept:
                return true[:, codebook]
            return logits[:, : self._prompt.audio_pad].argmax(-1)

        made = self._model.depth(hidden, choose)
        sound: NDArray[np.float32] = self._codec.decode(made.T[:, None])[0].mean(0).cpu().numpy()
        return sound

    def phoneme_errors(
        self, state: Path, lines: Sequence[Line], codes: Sequence[NDArray[np.uint16]]
    ) -> dict[str, Any]:
        """Percent of phonemes that the head gets wrong on the past `codes` of each line."""
        heads = read_heads(state)
        wanted = teacher_phonemes(lines)
        said = []
        for line, frames in zip(lines, codes, strict=True):
            labels = np.zeros(0, np.int64)
            if len(frames):
                logits = heads.phonemes(self.hidden(line, frames)).unflatten(-1, (-1, PHONEMES))
                labels = logits.argmax(-1).flatten().numpy()
            said.append(collapsed(labels))
        return {"percent": error_percent(wanted, said), "phonemes": sum(map(len, wanted))}


def read_heads(state: Path) -> Heads:
    """Read the heads of the language model's training from its `state.pt`.

    Raises `ValueError` for a file that has none.
    """
    saved = torch.load(state, weights_only=True, map_location="cpu", mmap=True)
    try:
        weights = saved["training"]["heads"]
    except (KeyError, TypeError):
        raise ValueError(f"{state} has no heads: give state.pt of a language stage") from None
    heads = Heads(weights["token.weight"].shape[0])
    heads.load_state_dict(weights)
    return heads.requires_grad_(False).eval()


def teacher_phonemes(lines: Sequence[Line]) -> list[list[int]]:
    """What the teacher says in each line, phoneme after phoneme."""
    teacher = Teacher()
    found = []
    for seed, line in enumerate(lines):
        speaker = TEACHER_VOICES.get(line.voice, next(iter(TEACHER_VOICES.values())))
        speech = teacher.speak(line.text, speaker, seed=seed)
        frames = -(-len(speech.sound) // SAMPLES_PER_FRAME)
        found.append(collapsed(frame_phonemes(speech.labels, frames).flatten()))
    return found


def collapsed(labels: NDArray[Any]) -> list[int]:
    """Return the labels [N] without repetitions and pauses."""
    changed = np.diff(labels, prepend=-1) != 0
    return [int(label) for label in labels[changed] if label != PAUSE]


def error_percent(wanted: Sequence[Sequence[int]], said: Sequence[Sequence[int]]) -> float:
    """Substitutions, deletions and insertions in percent of what was wanted."""
    errors = 0
    for one, other in zip(wanted, said, strict=True):
        result = jiwer.process_words(" ".join(map(str, one)), " ".join(map(str, other)))
        errors += result.substitutions + result.deletions + result.insertions
    return 100 * errors / max(1, sum(map(len, wanted)))
