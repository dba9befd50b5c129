"""Reading and changing the history from outside: create, delete, clear, get, export."""

from __future__ import annotations

from realtime.protocol.capsule import write_capsule
from realtime.protocol.errors import ProtocolError
from realtime.protocol.messages import History as HistoryMessage
from realtime.protocol.messages import (
    HistoryCapsule,
    HistoryClear,
    HistoryExport,
    HistoryGet,
    ItemCreate,
    ItemDelete,
    ItemDeleted,
)
from realtime.session.capsule import to_capsule
from realtime.session.context import ModelContext
from realtime.session.emitter import Emitter
from realtime.session.history import History
from realtime.session.sound import FrameClock
from realtime.session.speaking import Speaking
from realtime.session.user_audio import UserAudio

HistoryEdit = ItemCreate | ItemDelete | HistoryClear | HistoryGet | HistoryExport


class HistoryEdits:
    """Applies what a client asks about the history. A reply under way keeps the context it has."""

    def __init__(
        self,
        emitter: Emitter,
        history: History,
        speaking: Speaking,
        context: ModelContext,
        clock: FrameClock,
        user_audio: UserAudio,
    ) -> None:
        self._emitter = emitter
        self._history = history
        self._speaking = speaking
        self._context = context
        self._clock = clock
        self._user_audio = user_audio

    def apply(self, message: HistoryEdit) -> None:
        """Apply a message; raises `ProtocolError`."""
        match message:
            case ItemCreate():
                self._create(message)
            case ItemDelete():
                self._delete(message)
            case HistoryClear():
                self._clear(message)
            case HistoryGet():
                self._send_history(message.event_id, audio=message.audio)
            case HistoryExport():
                self._export(message)

    def _create(self, message: ItemCreate) -> None:
        item = self._history.read(message.item)
        if message.after is None:
            self._history.add(item)
        elif self._history.find(message.after):
            self._history.insert_after(item, (message.after,))
        else:
            raise ProtocolError(
                "unknown_item", f"there is no item {message.after!r} to follow", param="after"
            )
        self._emitter.send(self._history.created(item, message.event_id))
        self._context.trim_history()
        if item.role == "user" and message.after is None:
            # A reply is near, and what was said before has been heard to its end.
            self._speaking.late.clear()
            self._context.warm()

    def _delete(self, message: ItemDelete) -> None:
        item_id = message.item_id
        if self._history.find(item_id) is None:
            speaking = any(r.request.item_id == item_id for r in self._speaking.active())
            why = "is still being spoken: cancel its response" if speaking else "is not there"
            raise ProtocolError("unknown_item", f"item {item_id!r} {why}", param="item_id")
        self._history.remove(item_id)
        self._speaking.late.pop(item_id, None)
        self._emitter.send(ItemDeleted(reply_to=message.event_id, item_id=item_id))
        self._context.warm()

    def _clear(self, message: HistoryClear) -> None:
        self._history.items = []
        self._speaking.late.clear()
        self._send_history(message.event_id, audio=False)
        self._context.warm()

    def _send_history(self, reply_to: str | None, *, audio: bool) -> None:
        items = [self._history.wire(item, audio=audio) for item in self._history.items]
        self._emitter.send(HistoryMessage(reply_to=reply_to, items=tuple(items)))

    def _export(self, message: HistoryExport) -> None:
        # Whoever follows the news hears of the others later, and would have them twice.
        items = [i for i in self._history.items if i.id not in self._user_audio.unannounced]
        capsule = to_capsule(self._history, items, self._clock, self._context.voice)
        data = write_capsule(capsule)
        self._emitter.send(HistoryCapsule(reply_to=message.event_id, data=data))
