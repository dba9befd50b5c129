"""The responses of a session: the conversation's one after another, others beside them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from engine.api import Cancel, Played
from realtime.protocol.errors import ProtocolError
from realtime.protocol.messages import (
    HeardSource,
    ResponseDone,
    ResponseEnd,
    ResponseFlush,
    ResponseResumed,
    ResponseStart,
    ResponseStarted,
    ResponseText,
    Status,
    Warned,
)
from realtime.session.context import ModelContext
from realtime.session.cut import Part
from realtime.session.effects import Listen, Reopen
from realtime.session.emitter import Emitter
from realtime.session.history import History, HistoryItem
from realtime.session.outcome import Outcome
from realtime.session.playback import Heard
from realtime.session.requests import Requests
from realtime.session.response import Response
from realtime.session.restarts import RESTARTED
from realtime.session.settings import SessionConfig, Settings, Voice

_REMEMBERED = 1024  # finished responses whose ids are known
_STILL_PLAYING = 16  # done responses that may still be cut


class Speaking:
    """Accepts responses, opens their rows in turn, feeds them text, ends them.

    `queue` are the conversation's responses, the first of them speaking; `beside` those without
    context; `late` those that are done but may still be playing, by item id.
    """

    def __init__(
        self,
        emitter: Emitter,
        history: History,
        context: ModelContext,
        requests: Requests,
        settings: Settings,
        config: SessionConfig,
    ) -> None:
        self.settings = settings
        self.queue: list[Response] = []
        self.beside: list[Response] = []
        self.late: dict[str, Response] = {}
        self.waits_for_user = False  # what the next reply answers is still being encoded
        self.playing: Response | None = None  # the conversation's last response that sent sound
        self._finished: OrderedDict[str, Status] = OrderedDict()
        self._emitter = emitter
        self._history = history
        self._context = context
        self._requests = requests
        self._limits = config.limits

    def active(self) -> Iterator[Response]:
        """All responses that are not done."""
        yield from self.queue
        yield from self.beside

    def find(self, response_id: str) -> Response | None:
        """Return a response that is not done."""
        return next((r for r in self.active() if r.request.id == response_id), None)

    def find_row(self, row: int) -> Response | None:
        """Return the response, not done, of an engine row."""
        return next((r for r in self.active() if r.request.row == row), None)

    def status(self, response_id: str) -> Status | None:
        """How a response ended; None for one that did not, or that nobody knows."""
        return self._finished.get(response_id)

    def start(self, message: ResponseStart, voice: Voice | None, now_ms: int) -> None:
        """Accept a response; raises `ProtocolError`."""
        self._check_start(message)
        if message.context == "conversation":
            self._context.use_voice(voice)
        response = self._requests.make(message, self.settings, voice, now_ms)
        line = self.queue if response.is_conversation else self.beside
        position = len(line) if response.is_conversation else 0
        line.append(response)
        request = response.request
        self._emitter.send(
            ResponseStarted(
                reply_to=message.event_id,
                response_id=request.id,
                item_id=request.item_id,
                stream=request.stream,
                position=position,
                context=request.context,
                epoch=self._emitter.epoch,
                seed=request.seed,
                metadata=request.metadata,
            )
        )
        if response.is_conversation:
            self.open_next(now_ms)
        else:
            self._open(response, now_ms)
        if message.text:
            response.text.add(message.text)
        if message.end:
            response.text.end(None)
        self.feed(response, now_ms)

    def _check_start(self, message: ResponseStart) -> None:
        response_id = message.response_id
        if self.find(response_id) or response_id in self._finished:
            raise ProtocolError(
                "duplicate_response",
                f"there already was a response {response_id!r} in this session",
                scope="response",
                response_id=response_id,
                param="response_id",
            )
        beside = message.context == "none"
        allowed = self._limits.parallel_responses if beside else self._limits.queued_responses
        waiting = len(self.beside) if beside else len(self.queue) - 1
        if waiting >= allowed:
            what = "without context run" if beside else "are queued"
            raise ProtocolError(
                "rate_limited",
                f"{allowed} responses {what} already; wait for a response.done",
                scope="response",
                response_id=response_id,
            )

    def add_text(self, message: ResponseText, now_ms: int) -> None:
        """Speak more text; dropped if the response failed or was cut short."""
        response = self._writable(message.response_id)
        if response:
            try:
                response.text.add(message.delta)
            except ProtocolError as error:
                error.scope, error.response_id = "response", message.response_id
                raise
            self.feed(response, now_ms)

    def flush(self, message: ResponseFlush, now_ms: int) -> None:
        """End a segment."""
        response = self._writable(message.response_id)
        if response:
            response.text.flush(message.event_id)
            self.feed(response, now_ms)

    def end(self, message: ResponseEnd, now_ms: int) -> None:
        """End a response's text."""
        response = self._writable(message.response_id)
        if response:
            response.text.end(message.event_id)
            self.feed(response, now_ms)

    def _writable(self, response_id: str) -> Response | None:
        response = self.find(response_id)
        if response and not response.text.ended:
            return None if response.outcome else response
        if response or self._finished.get(response_id) == "completed":
            raise unknown_response(response_id, "its text has ended")
        if response_id not in self._finished:
            raise unknown_response(response_id, "there is no such response")
        return None

    def feed(self, response: Response, now_ms: int) -> None:
        """Note new text, and hand it to the row if that is open."""
        response.note_text(now_ms)
        self.hand_over(response)

    def hand_over(self, response: Response) -> None:
        """Give an open row its outstanding text commands, and report segments that are through."""
        if response.opened_ms is None:
            return
        self._emitter.command(*response.text.commands)
        response.text.commands = []
        for report in response.new_segments():
            self._emitter.send(report)

    def open_next(self, now_ms: int) -> None:
        """Let the conversation's next response speak, once what it answers is there."""
        if self.queue and self.queue[0].opened_ms is None and not self.waits_for_user:
            self._open(self.queue[0], now_ms)
            self.hand_over(self.queue[0])

    def _open(self, response: Response, now_ms: int) -> None:
        response.opening = opening = self._context.opening(response.request)
        response.earlier = frozenset(item.id for item in self._history.items)
        response.opened_ms = now_ms
        self._emitter.emit(Listen(response.request.row, response.request.id))
        self._emitter.command(opening)

    def reopen(self, response: Response, now_ms: int) -> None:
        """Go on in the next engine with a response whose engine died."""
        if why := response.parked:
            self._emitter.send(ResponseResumed(response_id=response.request.id, why=why))
        response.go_on_in(self._requests.new_row(), now_ms)
        row = response.request.row
        message = f"the engine restarted: response {response.request.id!r} goes on where it was"
        self._emitter.send(Warned(code=RESTARTED, message=message))
        self._emitter.emit(Listen(row, response.request.id))
        self._emitter.emit(Reopen(self._context.going_on(response)))
        self.hand_over(response)
        self._emitter.command(Played(row, response.heard_samples(now_ms), now_ms * 1_000_000))

    def stop_row(self, response: Response) -> None:
        """Stop the engine's work on a response."""
        if response.is_running:
            self._emitter.command(Cancel(response.request.row))

    def finish(
        self,
        response: Response,
        outcome: Outcome,
        *,
        heard: Heard | None = None,
        reply_to: str | None = None,
    ) -> None:
        """Send `response.done`; nothing of the response follows it."""
        self._leave(response, outcome.status)
        source: HeardSource | None = heard.source if heard else None
        self._emitter.send(
            ResponseDone(
                reply_to=reply_to,
                response_id=response.request.id,
                status=outcome.status,
                reason=outcome.reason,
                error=outcome.error,
                audio_ms=response.audio_ms,
                sent_ms=response.playback.sent_ms,
                heard_ms=heard.ms if heard else None,
                heard_source=source,
                clamped=heard.clamped if heard else None,
                metrics=response.metrics(),
                metadata=response.request.metadata,
            )
        )

    def _leave(self, response: Response, status: Status) -> None:
        line = self.queue if response.is_conversation else self.beside
        line.remove(response)
        self._finished[response.request.id] = status
        if len(self._finished) > _REMEMBERED:
            self._finished.popitem(last=False)

    def keep(self, response: Response, parts: tuple[Part, ...], exact: bool) -> None:
        """Make the parts heard of a response an item of the history."""
        request = response.request
        generated = response.parts()
        item = HistoryItem(
            request.item_id, "assistant", parts, generated, request.history_context, exact
        )
        self._history.insert_after(item, response.earlier)
        self.late[item.id] = response
        if len(self.late) > _STILL_PLAYING:
            del self.late[next(iter(self.late))]
        self._emitter.send(self._history.created(item))
        self._context.trim_history()


def unknown_response(response_id: str, why: str) -> ProtocolError:
    """Return the error for a message to a response that takes none."""
    return ProtocolError(
        "unknown_response",
        f"response {response_id!r}: {why}",
        scope="response",
        response_id=response_id,
        param="response_id",
    )
