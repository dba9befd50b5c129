"""What an evaluation measures: the ceilings, single lines, and the turns of dialogues."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import soundfile

from engine.checkpoint import read_json
from engine.codec.codec import AudioCodec, load_codec
from engine.text.plain import PlainTokenizer
from engine.train.evaluation.diagnosis import Diagnosis
from engine.train.evaluation.dialogue import cast_dialogues, speak_dialogues
from engine.train.evaluation.in_process import EngineVoice
from engine.train.evaluation.measure import Measures, summary
from engine.train.evaluation.over_http import ServerVoice
from engine.train.evaluation.recogniser import NAME
from engine.train.evaluation.references import read_references, reference_codes
from engine.train.evaluation.resynthesis import encode, resynthesised
from engine.train.evaluation.similarity import SHORTEST_S
from engine.train.evaluation.speech import TEACHER_VOICES, Said, cast, teacher_speech
from engine.train.evaluation.texts import read_texts

_LONGEST = 3.0  # times the teacher's length: a reply that goes on is cut there
_SAMPLING = ("temperature", "top_p", "top_k", "repetition_penalty")


class Evaluation:
    """One run: lines are spoken, measured, shown, and written to `evaluation.json`."""

    def __init__(self, options: argparse.Namespace) -> None:
        if options.stage == "codec" and not options.codec:
            raise ValueError("name the codec: --codec DIR")
        self._options = options
        self._texts = read_texts(options.texts)[: options.limit]
        self._codec = load_codec(options.codec) if options.codec else None
        self._recordings = [] if options.url else read_references(options.voices)
        self._voice = None if options.stage == "codec" else self._speaker()
        known = list(TEACHER_VOICES) if self._voice is None else self._voice.voices
        self._voices = _chosen(options.voice, known)
        self._teacher = teacher_speech(cast(self._texts, self._voices))
        self._lines = [one.line for one in self._teacher]
        self._measures = Measures(
            self._teacher, _spoken_references(self._recordings, self._teacher), options.threads
        )
        self.figures: dict[str, Any] = {
            "texts": options.texts,
            "recogniser": NAME,
            **{name: str(getattr(options, name)) for name in ("model", "codec", "url")},
        }

    def ceilings(self) -> None:
        """Measure the teacher, and what the codec keeps of it with its first codes or all."""
        self._add("teacher", self._teacher)
        if self._codec is None:
            return
        wanted = [int(count) for count in self._options.codebooks.split(",") if count]
        counts = {self._codec.codebooks(count): f"codec, first {count}" for count in wanted}
        counts[self._spoken_codebooks(self._codec)] = "codec"
        for count, said in resynthesised(self._codec, self._teacher, sorted(counts)).items():
            self._add(counts[count], said)

    def speech(self) -> None:
        """Measure each line spoken by itself."""
        assert self._voice is not None
        longest_s = [_LONGEST * one.length_s for one in self._teacher]
        said = self._voice.speak(self._lines, longest_s)
        factor = self._voice.real_time_factor(self._lines, longest_s)
        self._add("speech", said, ends=True, real_time_factor=factor)

    def dialogues(self) -> None:
        """Measure the same lines as three turns of a dialogue, and as single sentences beside."""
        if not isinstance(self._voice, EngineVoice) or self._codec is None:
            raise ValueError("dialogues need --model and --codec, and go without --url")
        dialogues = cast_dialogues(self._texts, self._voices)
        lines = [line for dialogue in dialogues for line in dialogue]
        teacher = teacher_speech(lines)
        self._measures.expect(teacher)
        longest_s = [_LONGEST * one.length_s for one in teacher]
        self._add("single", self._voice.speak(lines, longest_s), ends=True)
        tokenizer = PlainTokenizer.from_file(self._options.model / "tokenizer.json")
        limits = [longest_s[start : start + 3] for start in range(0, len(lines), 3)]
        turns = speak_dialogues(self._voice, dialogues, limits, self._codec, tokenizer)
        self._add("dialogue", [one for turn in turns for one in turn], ends=True)
        for number, said in enumerate(turns, start=1):
            self._add(f"turn {number}", said, ends=True)

    def diagnose(self) -> None:
        """Measure what is left with the true first k codes, and the phonemes that are meant."""
        if not isinstance(self._voice, EngineVoice) or self._codec is None:
            raise ValueError("a diagnosis needs --model and --codec, and goes without --url")
        diagnosis = Diagnosis(self._options.model, self._codec, self._voice.references)
        for kept, said in diagnosis.own_rest(self._teacher):
            self._add(f"true first {kept}", said)
        if self._options.state is None:
            return
        longest_s = [_LONGEST * one.length_s for one in self._teacher]
        replies = self._voice.reply(self._lines, [()] * len(self._lines), longest_s)
        own = [reply.turn.codes for reply in replies]
        true = [encode(self._codec, one, self._voice.info.n_vq) for one in self._teacher]
        for name, codes in (("phonemes, true past", true), ("phonemes, own past", own)):
            errors = diagnosis.phoneme_errors(self._options.state, self._lines, codes)
            self.figures[name] = errors
            print(f"{name:<22} errors {errors['percent']:5.1f} %", flush=True)

    def write(self) -> None:
        """Write `evaluation.json`, if a folder was given for it."""
        if self._options.out:
            self._options.out.mkdir(parents=True, exist_ok=True)
            path = self._options.out / "evaluation.json"
            path.write_text(json.dumps(self.figures, indent=1) + "\n", encoding="utf-8")

    def _add(self, name: str, said: Sequence[Said], *, ends: bool = False, **more: Any) -> None:
        figures = self._measures.of(said, ends=ends) | more
        self.figures[name] = figures
        print(summary(name, figures), flush=True)
        if self._options.out and self._options.keep_sound:
            _write_sound(self._options.out / name.replace(", ", "-").replace(" ", "-"), said)

    def _speaker(self) -> EngineVoice | ServerVoice:
        options = self._options
        given = {name: getattr(options, name) for name in _SAMPLING}
        sampling = {name: value for name, value in given.items() if value is not None}
        if options.url:
            return ServerVoice(options.url, sampling)
        if not options.model or self._codec is None:
            raise ValueError("name the checkpoint by --model and --codec, or a server by --url")
        codebooks = self._spoken_codebooks(self._codec)
        codes = reference_codes(self._recordings, options.voices, self._codec, codebooks)
        return EngineVoice(
            options.model, options.codec, codes, sampling=sampling, threads=options.threads
        )

    def _spoken_codebooks(self, codec: AudioCodec) -> int:
        """How many codebooks the model speaks, or all of the codec's where there is no model."""
        if not self._options.model:
            return codec.config.n_codebooks
        spoken: int = read_json(self._options.model, "config.json")["rvq"]
        return spoken


def _chosen(wanted: str, known: Sequence[str]) -> list[str]:
    if wanted != "all" and wanted not in known:
        raise ValueError(f"there is no voice {wanted!r}; there are {', '.join(known)}")
    return list(known) if wanted == "all" else [wanted]


def _spoken_references(recordings: Sequence[Said], teacher: Sequence[Said]) -> list[Said]:
    """The sound that voices are compared with: long recordings, else the teacher's own speech."""
    long = [
        one
        for one in recordings
        if one.length_s >= SHORTEST_S or one.line.voice not in TEACHER_VOICES
    ]
    names = {one.line.voice for one in long}
    own = [one for one in teacher if one.line.voice in TEACHER_VOICES]
    return long + [one for one in own if one.line.voice not in names]


def _write_sound(directory: Path, said: Sequence[Said]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for number, one in enumerate(said):
        path = directory / f"{number:03d}-{one.line.voice}.wav"
        soundfile.write(path, one.sound, one.rate_hz)
