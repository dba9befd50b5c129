"""Resolve what a `response.start` asks for, and make the response."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from engine.models.realtime_prompt import RealtimePrompt
from engine.text.normalise.normaliser import AsWritten, Normaliser
from realtime.protocol.errors import ProtocolError
from realtime.protocol.messages import Context, ResponseStart
from realtime.session.history import History
from realtime.session.response import Request, Response
from realtime.session.sampling import layered, max_frames, response_seed, sampling_of, with_defaults
from realtime.session.settings import SessionConfig, Settings, Voice
from realtime.session.sound import FrameClock
from realtime.session.text import SpokenText

_STREAMS = 0xFFFF  # handles are 1..65,535 and come round


class Requests:
    """Makes responses; counts streams and ordinals."""

    def __init__(
        self,
        history: History,
        prompt: RealtimePrompt,
        clock: FrameClock,
        config: SessionConfig,
        new_row: Callable[[], int],
        seed: int,
    ) -> None:
        self._history = history
        self._prompt = prompt
        self._clock = clock
        self._config = config
        self.new_row = new_row
        self._seed = seed
        self._ordinals = itertools.count()

    def make(
        self, message: ResponseStart, settings: Settings, voice: Voice | None, now_ms: int
    ) -> Response:
        """Return a new response that speaks in the current model context.

        Raises `ProtocolError` before anything is counted.
        """
        context = _context(message)
        limits = self._config.limits
        ordinal = next(self._ordinals)
        asked = with_defaults(layered(message.generation, settings.generation), self._clock.model)
        session_seed = settings.generation.seed
        request = Request(
            id=message.response_id,
            item_id=self._history.new_id(),
            stream=ordinal % _STREAMS + 1,
            row=self.new_row(),
            context=context,
            commit=message.commit and context == "conversation",
            history_context=self._history.context,
            voice=voice,
            sampling=sampling_of(asked),
            seed=response_seed(
                message.generation, self._seed if session_seed is None else session_seed, ordinal
            ),
            max_frames=max_frames(asked, limits.audio_s, self._clock.model),
            max_ahead_ms=settings.max_ahead_ms,
            acknowledged=settings.flow.mode == "ack",
            stall_flush_ms=settings.stall_flush_ms,
            tells_words=settings.timestamps == "words",
            metadata=message.metadata,
            started_ms=now_ms,
        )
        normalize = settings.normalize if message.normalize is None else message.normalize
        text = SpokenText(
            request.row,
            self._prompt.tokenizer,
            lambda: self._prompt.next_prefix(settings.layout),
            limits.text_chars,
            Normaliser() if normalize else AsWritten(),
        )
        text.check_room(len(message.text or ""))
        return Response(request, text, self._clock, self._prompt.prefill_text_len)


def _context(message: ResponseStart) -> Context:
    if isinstance(message.context, tuple):
        raise ProtocolError(
            "unsupported",
            "a list of items as context is not supported by this server yet; "
            "use 'conversation' or 'none'",
            param="context",
        )
    return message.context
