"""The dialogue as this client knows it, kept by what the server says, to begin anew elsewhere."""

from __future__ import annotations

import dataclasses

from realtime.protocol.messages import (
    History,
    HistoryCapsule,
    Item,
    ItemCreated,
    ItemDeleted,
    ItemTruncated,
    NewItem,
    ServerMessage,
)


@dataclasses.dataclass(frozen=True, slots=True)
class Seed:
    """What another session begins with: a capsule, and the items that came after it, as text."""

    capsule: bytes | None = None
    history: tuple[NewItem, ...] = ()


class HistoryMirror:
    """Follows `item.created`, `item.truncated`, `item.deleted`, `history` and `history.capsule`.

    The sound of items is in the newest capsule only; what changed since it was made, other than by
    items that follow, makes it worthless.
    """

    def __init__(self) -> None:
        self._items: list[Item] = []
        self._capsule: bytes | None = None
        self._in_capsule = 0  # items from the front

    @property
    def items(self) -> tuple[Item, ...]:
        """The items, oldest first, without their sound."""
        return tuple(self._items)

    @property
    def is_carried(self) -> bool:
        """Whether the capsule has every item."""
        return self._capsule is not None and self._in_capsule == len(self._items)

    def apply(self, message: ServerMessage) -> bool:
        """Take what the server says; true when the items changed."""
        match message:
            case ItemCreated():
                self._create(message)
            case ItemTruncated():
                self._truncate(message)
            case ItemDeleted():
                self._change(self._place(message.item_id), [])
            case History():
                self._replace([dataclasses.replace(item, audio=None) for item in message.items])
            case HistoryCapsule():
                self._capsule, self._in_capsule = message.data, len(self._items)
                return False
            case _:
                return False
        return True

    def seed(self) -> Seed:
        """Return what to give another session, so that it goes on from here."""
        later = self._items[self._in_capsule :] if self._capsule is not None else self._items
        return Seed(
            self._capsule,
            tuple(
                NewItem(role=item.role, id=item.id, text=item.text, spoken_text=item.spoken_text)
                for item in later
                if item.text.strip()
            ),
        )

    def _create(self, message: ItemCreated) -> None:
        item = dataclasses.replace(message.item, audio=None)
        if (known := self._place(item.id)) is not None:  # it had no sound before
            return self._change(known, [item])
        place = 0 if message.after is None else len(self._items)
        if message.after is not None and (before := self._place(message.after)) is not None:
            place = before + 1
        if place < self._in_capsule:
            self._capsule, self._in_capsule = None, 0
        self._items.insert(place, item)

    def _replace(self, items: list[Item]) -> None:
        known, given = self._items[: self._in_capsule], items[: self._in_capsule]
        if [(i.id, i.text, i.audio_ms) for i in known] != [
            (i.id, i.text, i.audio_ms) for i in given
        ]:
            self._capsule, self._in_capsule = None, 0
        self._items = items

    def _truncate(self, message: ItemTruncated) -> None:
        place = self._place(message.item_id)
        if place is not None:
            cut = dataclasses.replace(
                self._items[place],
                text=message.text,
                audio_ms=message.audio_end_ms,
                exact=message.exact,
                spoken_text=None,
            )
            self._change(place, [cut])

    def _change(self, place: int | None, items: list[Item]) -> None:
        if place is None:
            return
        self._items[place : place + 1] = items
        if place < self._in_capsule:
            self._capsule, self._in_capsule = None, 0

    def _place(self, item_id: str) -> int | None:
        return next((i for i, item in enumerate(self._items) if item.id == item_id), None)
