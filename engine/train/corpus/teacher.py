"""The teacher: a small public text-to-speech package that says exactly when it says what.

`hibari-tts` (Apache-2.0) runs a hundred times faster than real time. Its phoneme durations are a
tensor inside its own graph, so that every label here is exact and none is estimated.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.train.corpus.speakers import Speaker, Spectrum, disguise

SAMPLE_RATE = 24_000
LABEL_SAMPLES = 300  # 12.5 ms: the teacher's own frame
LABELS_PER_DURATION = 2  # durations count 25 ms
PEAK = 0.6
QUIET = 0.01  # root mean square of a label that counts as silence
LEAD_LABELS, TAIL_LABELS = 5, 12  # silence that is kept around the speech
PHONEMES = 178  # ids of the teacher's alphabet; 0 is the pause around a sentence

_DURATIONS = "/Clip_output_0"


@dataclasses.dataclass(frozen=True, slots=True)
class Speech:
    """One spoken text."""

    sound: NDArray[np.float32]  # [samples], peak 0.6
    labels: NDArray[np.uint8]  # [samples / 300]: the phoneme that is being said
    words: tuple[tuple[float, float], ...] | None  # seconds; None where they match no text word


class Teacher:
    """Speaks any English text as any `Speaker`; one thread, deterministic for a seed."""

    def __init__(self) -> None:
        import hibari
        import onnx
        import onnxruntime

        assets = Path(hibari.__file__).parent / "assets"
        graph = onnx.load(assets / "hibari.onnx")
        graph.graph.output.append(onnx.ValueInfoProto(name=_DURATIONS))
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(
            graph.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        self._outputs = [output.name for output in self._session.get_outputs()]
        self._text = hibari.Hibari(threads=1)

    def phonemes(self, text: str) -> list[list[int]]:
        """Phoneme ids of each sentence of `text`, without the pauses around it."""
        return [self._text.ids(sentence)[1:-1] for sentence in self._text.phonemize(text)]

    def phoneme_ids(self, phonemes: str) -> list[int]:
        """Ids of phonemes written in the teacher's alphabet."""
        return list(self._text.ids(phonemes)[1:-1])

    def speak(self, text: str, speaker: Speaker, seed: int, speed: float = 1.0) -> Speech:
        """Speak `text`. Raises `ValueError` for a text without anything to say."""
        from hibari import dsp

        draws = np.random.default_rng(seed)
        sounds, labels, words = [], [], []
        start_s = 0.0
        for sentence in self._text.phonemize(text):
            ids = self._text.ids(sentence)
            spectrum, durations = self._predict(ids, speed)
            said = disguise(spectrum, speaker)
            sounds.append(
                dsp.synth(
                    *(said.harmonic, said.phase, said.noise, said.free, said.free_phase),
                    *(said.f0_hz, draws),
                )
            )
            spoken = np.repeat(np.array(ids, np.uint8), durations * LABELS_PER_DURATION)
            frames = len(sounds[-1]) // LABEL_SAMPLES
            labels.append(np.pad(spoken, (0, max(0, frames - len(spoken))))[:frames])
            words.append(_word_times(sentence, ids, durations, start_s))
            start_s += len(sounds[-1]) / SAMPLE_RATE
        if not sounds:
            raise ValueError(f"nothing to say in {text!r}")
        sound = np.concatenate(sounds)
        sound *= PEAK / max(1e-3, float(np.abs(sound).max()))
        return _trimmed(Speech(sound, np.concatenate(labels), _joined(words, text)))

    def _predict(self, ids: list[int], speed: float) -> tuple[Spectrum, NDArray[np.int64]]:
        inputs: dict[str, Any] = {
            "ids": np.asarray([ids], np.int64),
            "speed": np.asarray([speed], np.float32),
        }
        *parts, durations = self._session.run(self._outputs, inputs)
        return Spectrum(*(part[0] for part in parts)), durations.reshape(-1).astype(np.int64)


_Times = list[tuple[float, float]]


def _word_times(
    sentence: str, ids: list[int], durations: NDArray[np.int64], start_s: float
) -> _Times | None:
    """Start and end of each word of one sentence; None where a phoneme has no id of its own."""
    if len(ids) != len(sentence) + 2:
        return None
    ends_s = start_s + np.cumsum(durations) * (LABELS_PER_DURATION * LABEL_SAMPLES / SAMPLE_RATE)
    times: _Times = []
    opened: float | None = None
    for index, phoneme in enumerate(sentence):
        if phoneme == " ":
            opened = None
        elif opened is None:
            opened = float(ends_s[index])
            times.append((opened, float(ends_s[index + 1])))
        else:
            times[-1] = (opened, float(ends_s[index + 1]))
    return times


def _joined(parts: list[_Times | None], text: str) -> tuple[tuple[float, float], ...] | None:
    times = [time for part in parts if part is not None for time in part]
    complete = None not in parts and len(times) == len(text.split())
    return tuple(times) if complete else None


def _trimmed(speech: Speech) -> Speech:
    """Without the teacher's long silence at both ends: a reply should start at once."""
    power = np.square(speech.sound.reshape(-1, LABEL_SAMPLES)).mean(1)
    loud = np.flatnonzero(power > QUIET**2)
    if not len(loud):
        return speech
    first, last = max(0, loud[0] - LEAD_LABELS), loud[-1] + 1 + TAIL_LABELS
    length_s = (min(last, len(power)) - first) * LABEL_SAMPLES / SAMPLE_RATE
    start_s = first * LABEL_SAMPLES / SAMPLE_RATE
    return Speech(
        sound=speech.sound[first * LABEL_SAMPLES : last * LABEL_SAMPLES],
        labels=speech.labels[first:last],
        words=None
        if speech.words is None
        else tuple(
            (max(0.0, start - start_s), min(length_s, end - start_s)) for start, end in speech.words
        ),
    )
