"""Speak through the engine, in this process and as many lines at a time as it has rows."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine import api
from engine.config import EngineConfig
from engine.engine import Engine
from engine.models.realtime_prompt import RealtimePrompt, Turn
from engine.train.evaluation.speech import Line, Said

ROWS = 8
_MOST_ROWS_WAITING = 4096
_MAX_AHEAD_MS = 10**9  # no listener: nothing waits for playback
_TIMED_LINES = 4


@dataclasses.dataclass(frozen=True, slots=True)
class Reply:
    """What the engine made of one line: the frames, and the turn that they are in a dialogue."""

    said: Said
    turn: Turn


class EngineVoice:
    """A model and a codec that speak lines; `references` are the codes of each voice."""

    def __init__(
        self,
        model_dir: Path,
        codec_dir: Path,
        references: Mapping[str, NDArray[np.uint16]],
        *,
        sampling: Mapping[str, Any],
        threads: int,
    ) -> None:
        config = EngineConfig(
            model_dir=str(model_dir),
            codec_dir=str(codec_dir),
            threads=threads,
            max_rows=ROWS,
            max_queued_rows=_MOST_ROWS_WAITING,
            cache_blocks=512,
            codec_slots=4 * ROWS,
            warm_up=False,
        )
        self._events: dict[int, list[api.Event]] = {}
        self._engine = Engine(config, self._take)
        self._prompt = RealtimePrompt.from_checkpoint(model_dir)
        self.references = references
        self._sampling = dataclasses.replace(self.info.sampling_defaults, **sampling)
        self._next_row = 1

    @property
    def info(self) -> api.ModelInfo:
        """Rates and sizes of the model."""
        return self._engine.parts.info

    @property
    def voices(self) -> list[str]:
        """The voices that it has a reference of."""
        return list(self.references)

    def speak(self, lines: Sequence[Line], longest_s: Sequence[float]) -> list[Said]:
        """Speak each line by itself; what goes on beyond its `longest_s` is cut."""
        replies = self.reply(lines, [()] * len(lines), longest_s)
        return [reply.said for reply in replies]

    def reply(
        self,
        lines: Sequence[Line],
        earlier: Sequence[Sequence[Turn]],
        longest_s: Sequence[float],
    ) -> list[Reply]:
        """Speak each line after the turns of its dialogue."""
        rows = [
            self._open(line, turns, limit_s)
            for line, turns, limit_s in zip(lines, earlier, longest_s, strict=True)
        ]
        while not all(self._is_over(row) for row in rows):
            self._engine.tick()
        return [self._reply(line, row) for line, row in zip(lines, rows, strict=True)]

    def real_time_factor(self, lines: Sequence[Line], longest_s: Sequence[float]) -> float:
        """Seconds of work for a second of sound, one line at a time; the first warms up."""
        work_s = sound_s = 0.0
        for number, (line, limit_s) in enumerate(zip(lines, longest_s, strict=True)):
            if number > _TIMED_LINES:
                break
            started_s = time.perf_counter()
            [said] = self.speak([line], [limit_s])
            if number:
                work_s += time.perf_counter() - started_s
                sound_s += said.length_s
        return work_s / sound_s if sound_s else float("nan")

    def _open(self, line: Line, turns: Sequence[Turn], longest_s: float) -> int:
        row, self._next_row = self._next_row, self._next_row + 1
        kept = [turn.codes for turn in turns if turn.role == "assistant"]
        none = np.zeros((0, self.info.n_vq), np.uint16)
        self._events[row] = []
        opened = api.Open(
            row=row,
            model=self.info.name,
            grid=self._prompt.dialogue(turns, self.references[line.voice]),
            decoder_codes=np.concatenate([none, *kept]),
            generated=none,
            seed=row,
            sampling=self._sampling,
            lane="throughput",
            prebuffer_ms=0,
            max_ahead_ms=_MAX_AHEAD_MS,
            max_frames=max(1, round(1e3 * longest_s / self.info.frame_ms)),
        )
        ids = tuple(self._prompt.tokenizer.encode(line.text))
        for command in (opened, api.Feed(row, ids), api.End(row)):
            self._engine.submit(command)
        return row

    def _take(self, event: api.Event) -> None:
        if isinstance(event, api.Frames | api.Segment | api.Done | api.Refused):
            self._events[event.row].append(event)

    def _is_over(self, row: int) -> bool:
        events = self._events[row]
        return bool(events) and isinstance(events[-1], api.Done | api.Refused)

    def _reply(self, line: Line, row: int) -> Reply:
        *before, end = self._events.pop(row)
        if isinstance(end, api.Refused) or (isinstance(end, api.Done) and end.reason == "failed"):
            raise RuntimeError(f"the engine did not speak {line.text!r}: {end}")
        frames = [event for event in before if isinstance(event, api.Frames)]
        sound = [event.pcm.mean(1) for event in frames if len(event.pcm)]
        said = Said(
            line,
            np.concatenate([np.zeros(0, np.float32), *sound]),
            self.info.rate_hz,
            ended=isinstance(end, api.Done) and end.reason == "completed",
        )
        none = np.zeros((0, self.info.n_vq), np.uint16)
        codes = np.concatenate([none, *(event.codes for event in frames)])
        consumed = sum(e.text_ids_consumed for e in before if isinstance(e, api.Segment))
        ids = tuple(self._prompt.tokenizer.encode(line.text))
        return Reply(said, Turn("assistant", ids[: consumed or len(ids)], codes))
