"""The grids the model sees: opened for a response, warmed before one is needed."""

from __future__ import annotations

import dataclasses

import numpy as np

from engine.api import I32Grid, Open, Warm
from engine.models.realtime_prompt import RealtimePrompt, Turn
from realtime.protocol.messages import ItemDeleted, Warned
from realtime.session.emitter import Emitter
from realtime.session.history import History
from realtime.session.response import Request, Response
from realtime.session.settings import SessionConfig, Settings, Voice
from realtime.session.sound import FrameClock

_KEEP = 0.75  # of the limit, after trimming; so that the prefix does not change every turn
_REPLY = 0.125  # of the limit, kept free for the reply


class ModelContext:
    """Builds grids from the history and keeps them within the model's limit."""

    def __init__(
        self,
        emitter: Emitter,
        history: History,
        prompt: RealtimePrompt,
        clock: FrameClock,
        config: SessionConfig,
        key: str,
        settings: Settings,
    ) -> None:
        self._emitter = emitter
        self._history = history
        self._prompt = prompt
        self._clock = clock
        self._config = config
        self._key = key
        self._layout = settings.layout
        self._text_only_user = settings.text_only_user
        self.voice = settings.voice

    def use_voice(self, voice: Voice | None) -> None:
        """Begin a new model context if the conversation's voice changes."""
        if _id(voice) == _id(self.voice):
            return
        self.voice = voice
        self.restart()

    def restart(self) -> None:
        """Begin a new model context: the items before it were spoken by another voice."""
        if self._history.start_context():
            message = "the voice changed: the model no longer hears the items before this point"
            self._emitter.send(Warned(code="context_restarted", message=message))

    def warm(self) -> None:
        """Have the engine prefill what the next response of the conversation starts with."""
        grid = self._fit(self._history.context, self.voice)
        if not self._history.turns(self._history.context):
            grid = self._prompt.system(_codes(self.voice))
        model = self._clock.model.name
        self._emitter.command(Warm(self._key, model, grid, self._config.warm_pin_s))

    def opening(self, request: Request) -> Open:
        """Return the command that opens a response's row."""
        if request.context == "none":
            grid = self._dialogue([], request.voice)
            decoder_codes = self._clock.no_codes()
        else:
            grid = self._fit(request.history_context, request.voice)
            decoder_codes = self._history.decoder_codes(request.history_context)
        return Open(
            row=request.row,
            model=self._clock.model.name,
            grid=grid,
            decoder_codes=decoder_codes,
            generated=self._clock.no_codes(),
            seed=request.seed,
            sampling=request.sampling,
            lane="live",
            prebuffer_ms=self._config.prebuffer_ms,
            max_ahead_ms=request.max_ahead_ms,
            max_frames=request.max_frames,
        )

    def going_on(self, response: Response) -> Open:
        """Return the command that goes on with a response in another engine.

        What it has said so far is a turn of the context, segment by segment.
        """
        assert response.opening
        grid, segment_frame = [response.opening.grid], 0
        for part in response.parts():
            if part.whole:
                grid.append(self._prompt.assistant_turn(part.ids, part.codes, self._layout))
                grid.append(self._prompt.assistant_header(False, self._layout))
                segment_frame += len(part.codes)
        return dataclasses.replace(
            response.opening,
            row=response.request.row,
            grid=np.concatenate(grid),
            generated=response.codes,
            segment_frame=segment_frame,
            chunk_frames=response.chunk_frames,
        )

    def trim_history(self) -> None:
        """Drop the oldest turns of a history that is larger than is kept."""
        dropped: list[str] = []
        while self._history.is_over_limits():
            dropped += self._history.drop_oldest()
        self._warn_trimmed(dropped)

    def _fit(self, context: int, voice: Voice | None) -> I32Grid:
        """Return the grid of a context, whose oldest turns go if it leaves no room for a reply."""
        limit = min(self._clock.model.max_grid_rows, self._config.limits.history_grid_rows)
        grid = self._dialogue(self._history.turns(context), voice)
        dropped: list[str] = []
        if len(grid) > limit * (1 - _REPLY):
            while len(grid) > limit * _KEEP and self._history.turns(context):
                dropped += self._history.drop_oldest()
                grid = self._dialogue(self._history.turns(context), voice)
        self._warn_trimmed(dropped)
        return grid

    def _dialogue(self, turns: list[Turn], voice: Voice | None) -> I32Grid:
        return self._prompt.dialogue(turns, _codes(voice), self._layout, self._text_only_user)

    def _warn_trimmed(self, dropped: list[str]) -> None:
        for item_id in dropped:
            self._emitter.send(ItemDeleted(item_id=item_id))
        if dropped:
            message = f"the {len(dropped)} oldest items left the history: the context was full"
            self._emitter.send(Warned(code="history_trimmed", message=message))


def _id(voice: Voice | None) -> str | None:
    return voice.id if voice else None


def _codes(voice: Voice | None) -> np.ndarray | None:
    return None if voice is None else voice.codes
