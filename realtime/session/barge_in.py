"""Stopping what is spoken, and remembering only what was heard of it."""

from __future__ import annotations

import dataclasses

from engine.api import Played
from realtime.protocol.errors import ProtocolError
from realtime.protocol.frames import next_epoch
from realtime.protocol.messages import (
    Interrupt,
    ItemDeleted,
    ItemTruncate,
    ItemTruncated,
    Playback,
    ResponseCancel,
    Warned,
)
from realtime.session.context import ModelContext
from realtime.session.cut import Cut, Cutter
from realtime.session.effects import DropAudio
from realtime.session.emitter import Emitter
from realtime.session.heard import SpeechRate
from realtime.session.history import History
from realtime.session.outcome import Outcome
from realtime.session.playback import Heard
from realtime.session.response import Response
from realtime.session.sound import FrameClock
from realtime.session.speaking import Speaking, unknown_response

CANCELLED = Outcome("cancelled")
_UNHEARD = Heard(0.0, "none")


class BargeIn:
    """Interrupts, cancels, truncates; takes reports of where the listener is."""

    def __init__(
        self,
        emitter: Emitter,
        speaking: Speaking,
        history: History,
        context: ModelContext,
        clock: FrameClock,
        cutter: Cutter,
        rate: SpeechRate,
    ) -> None:
        self._emitter = emitter
        self._speaking = speaking
        self._history = history
        self._context = context
        self._clock = clock
        self._cutter = cutter
        self._rate = rate

    def interrupt(self, message: Interrupt, now_ms: int) -> None:
        """Cancel every conversation response and cut what was still playing.

        Order: every `response.done`, then per item what was heard of it.
        """
        self._emitter.epoch = next_epoch(self._emitter.epoch)
        running = list(self._speaking.queue)
        late = [r for r in self._speaking.late.values() if not r.is_cut]
        heard = self._positions([*late, *running], message, now_ms)
        text = message.played.text if message.played else None
        named = message.played.response_id if message.played else None
        for response in running:
            self._stop(response, heard[response.request.id], message.event_id)
        for response in [*late, *running]:
            own_text = text if response.request.id == named else None
            self._remember(response, heard[response.request.id], own_text, message.event_id)
        self._speaking.playing = None
        if late or running:
            self._context.warm()

    def _positions(
        self, playing: list[Response], message: Interrupt, now_ms: int
    ) -> dict[str, Heard]:
        """Return how far each response was heard; they play one after another."""
        heard = {r.request.id: r.playback.heard(now_ms) for r in playing}
        if message.played is None:
            return heard
        ids = list(heard)
        if message.played.response_id not in heard:
            if self._speaking.status(message.played.response_id) is None:
                text = f"played: there is no response {message.played.response_id!r}; estimated"
                self._emitter.send(Warned(code="unknown_response", message=text))
            return heard
        named = ids.index(message.played.response_id)
        for index, response in enumerate(playing):
            if index < named:
                heard[response.request.id] = Heard(response.playback.sent_ms, "client")
            elif index == named:
                heard[response.request.id] = response.playback.claimed(message.played.ms)
            else:
                heard[response.request.id] = Heard(0.0, "client")
        return heard

    def cancel(self, message: ResponseCancel, now_ms: int) -> None:
        """Stop one response; nothing happens if it is done."""
        response = self._speaking.find(message.response_id)
        if response is None:
            if self._speaking.status(message.response_id) is None:
                raise unknown_response(message.response_id, "there is no such response")
            return
        heard = response.playback.heard(now_ms)
        if message.played_ms is not None:
            heard = response.playback.claimed(message.played_ms)
        if self._speaking.playing is response:
            self._speaking.playing = None
        self._stop(response, heard, message.event_id)
        self._remember(response, heard, None, message.event_id)
        if response.is_conversation:
            self._context.warm()
            self._speaking.open_next(now_ms)

    def _stop(self, response: Response, heard: Heard, reply_to: str | None) -> None:
        self._speaking.stop_row(response)
        if response.opened_ms is not None:
            self._emitter.emit(DropAudio(response.request.stream))
        self._speaking.finish(response, CANCELLED, heard=heard, reply_to=reply_to)

    def _remember(
        self, response: Response, heard: Heard, text: str | None, reply_to: str | None
    ) -> None:
        """Cut a response's item to what was heard; make it first if it was still being spoken."""
        item_id = response.request.item_id
        was_item = self._history.find(item_id)
        if not response.request.commit or (was_item and heard.ms >= response.audio_ms):
            return
        response.is_cut = True
        cut = self._cutter.cut(response.parts(), heard.ms, self._rate.syllable_ms, text)
        if was_item is None:
            if not cut.parts:
                return
            self._speaking.keep(response, cut.parts, cut.exact)
            self._send_truncated(item_id, cut, heard, reply_to)
        else:
            self._shorten(item_id, cut, heard, reply_to)

    def truncate(self, message: ItemTruncate, now_ms: int) -> None:
        """Cut an item that may still be playing; raises `ProtocolError`."""
        response = self._speaking.late.get(message.item_id)
        if response is None:
            raise self._not_truncatable(message.item_id)
        heard = response.playback.claimed(message.audio_end_ms)
        response.is_cut = True
        cut = self._cutter.cut(response.parts(), heard.ms, self._rate.syllable_ms, message.text)
        self._shorten(message.item_id, cut, heard, message.event_id)
        self._context.warm()

    def _not_truncatable(self, item_id: str) -> ProtocolError:
        if any(r.request.item_id == item_id for r in self._speaking.active()):
            why = "is still being spoken: interrupt or cancel its response"
        elif self._history.find(item_id):
            why = "cannot be cut: it was played to its end, or a user item followed it"
            return ProtocolError("invalid_field", f"item {item_id!r} {why}", param="item_id")
        else:
            why = "is not in the history"
        return ProtocolError("unknown_item", f"item {item_id!r} {why}", param="item_id")

    def _shorten(self, item_id: str, cut: Cut, heard: Heard, reply_to: str | None) -> None:
        item = self._history.find(item_id)
        if item is None:
            return
        self._send_truncated(item_id, cut, heard, reply_to)
        if cut.parts:
            self._history.replace(dataclasses.replace(item, parts=cut.parts, exact=cut.exact))
        else:
            self._history.remove(item_id)
            self._speaking.late.pop(item_id, None)
            self._emitter.send(ItemDeleted(reply_to=reply_to, item_id=item_id))

    def _send_truncated(self, item_id: str, cut: Cut, heard: Heard, reply_to: str | None) -> None:
        self._emitter.send(
            ItemTruncated(
                reply_to=reply_to,
                item_id=item_id,
                audio_end_ms=cut.end_ms,
                text="".join(part.text for part in cut.parts),
                exact=cut.exact,
                clamped=heard.clamped,
                heard_source=heard.source,
            )
        )

    def playback(self, message: Playback, now_ms: int) -> None:
        """Take the listener's report; it is also the credit of flow mode `ack`."""
        running = self._speaking.find(message.response_id)
        late = self._speaking.late
        response = running or next(
            (r for r in late.values() if r.request.id == message.response_id), None
        )
        if response is None:
            if self._speaking.status(message.response_id) is None:
                raise unknown_response(message.response_id, "there is no such response")
            return
        position_ms = response.playback.report(message.played_ms, message.state, now_ms)
        if response.playback.done:
            late.pop(response.request.item_id, None)
        if running and running.is_running and running.request.acknowledged:
            samples = self._clock.samples(position_ms)
            self._emitter.command(Played(running.request.row, samples, now_ms * 1_000_000))
