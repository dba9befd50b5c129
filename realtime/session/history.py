"""The dialogue as the session keeps it: items, what was heard of them, what the model sees."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Collection
from typing import Literal

import numpy as np

from engine.api import U16Codes
from engine.models.realtime_prompt import Turn
from engine.text.plain import join_surrogates
from engine.text.wording import Piece, Wording
from realtime.protocol.errors import ProtocolError
from realtime.protocol.limits import Limits
from realtime.protocol.messages import Item, ItemAudio, ItemCreated, NewItem
from realtime.session.cut import Part
from realtime.session.sound import FrameClock


@dataclasses.dataclass(frozen=True, slots=True)
class HistoryItem:
    """One item. `parts` are what was heard; `generated` is all that was made.

    Items of one voice have one `context` number. `exact` is false where the text is an estimate.
    """

    id: str
    role: Literal["user", "assistant"]
    parts: tuple[Part, ...]
    generated: tuple[Part, ...]
    context: int
    exact: bool = True

    @property
    def text(self) -> str:
        """The text heard."""
        return "".join(part.text for part in self.parts)


class History:
    """Items in order. `encode` gives the ids of a whole text."""

    def __init__(
        self, clock: FrameClock, encode: Callable[[str], list[int]], limits: Limits
    ) -> None:
        self.items: list[HistoryItem] = []
        self.context = 0
        self._clock = clock
        self.encode = encode
        self._limits = limits
        self._ids = itertools.count(1)
        self._given: set[str] = set()  # also of items that are still being spoken

    def new_id(self) -> str:
        """Return an item id that nobody has, and that nobody else will get."""
        item_id = next(f"item_{n}" for n in self._ids if not self.find(f"item_{n}"))
        self._given.add(item_id)
        return item_id

    def is_taken(self, item_id: str) -> bool:
        """Whether an item has this id, or will."""
        return item_id in self._given or self.find(item_id) is not None

    def find(self, item_id: str) -> HistoryItem | None:
        """Return the item, if it is there."""
        return next((item for item in self.items if item.id == item_id), None)

    def read(self, new: NewItem) -> HistoryItem:
        """Make an item of what a client gives; raises `ProtocolError`."""
        if new.role == "system":
            raise ProtocolError(
                "unsupported",
                "role 'system' is refused: the model was trained with one fixed system prompt",
                param="item.role",
            )
        text = join_surrogates(new.text or "")
        codes = self._read_codes(new.audio) if new.audio else self._clock.no_codes()
        if not text.strip() and not len(codes):
            raise ProtocolError("invalid_field", "an item has text, sound or both", param="item")
        item_id = self._checked_id(new.id, "item.id")
        spoken = text if new.spoken_text is None else join_surrogates(new.spoken_text)
        part = Part(Wording((Piece(spoken, text),)), tuple(self.encode(spoken)), codes)
        return HistoryItem(item_id, new.role, (part,), (part,), self.context)

    def user_item(self, text: str, item_id: str | None) -> HistoryItem:
        """Make a user item whose sound is not there yet; raises `ProtocolError`."""
        text = join_surrogates(text)
        ids = tuple(self.encode(text))
        part = Part(Wording.verbatim(text), ids, self._clock.no_codes())
        item_id = self._checked_id(item_id, "item_id")
        return HistoryItem(item_id, "user", (part,), (part,), self.context)

    def add_sound(self, item_id: str, codes: U16Codes) -> HistoryItem | None:
        """Give a user item its sound and return it; None if it has left the history."""
        item = self.find(item_id)
        if item is None:
            return None
        parts = (dataclasses.replace(item.parts[0], codes=codes),)
        sounding = dataclasses.replace(item, parts=parts, generated=parts)
        self.replace(sounding)
        return sounding

    def _checked_id(self, item_id: str | None, param: str) -> str:
        if item_id is None:
            return self.new_id()
        if self.is_taken(item_id):
            raise ProtocolError("invalid_field", f"the id {item_id!r} is taken", param=param)
        return item_id

    def _read_codes(self, audio: ItemAudio) -> U16Codes:
        model = self._clock.model
        if len(audio.codes) % (2 * model.n_vq):
            raise ProtocolError(
                "bad_audio",
                f"codes are u16 [frames, {model.n_vq}], so a multiple of {2 * model.n_vq} bytes; "
                f"there are {len(audio.codes)}",
                param="item.audio.codes",
            )
        codes = np.frombuffer(audio.codes, "<u2").reshape(-1, model.n_vq).astype(np.uint16)
        if codes.size and codes.max() >= model.codebook_size:
            raise ProtocolError(
                "bad_audio",
                f"code {codes.max()} is outside 0..{model.codebook_size - 1}",
                param="item.audio.codes",
            )
        if self._clock.length_ms(codes) > 1000 * self._limits.item_audio_s:
            raise ProtocolError(
                "bad_audio",
                f"an item may have {self._limits.item_audio_s} s of sound; this one has "
                f"{self._clock.length_ms(codes) / 1000:g} s",
                param="item.audio.codes",
            )
        return codes

    def add(self, item: HistoryItem) -> None:
        """Put an item at the end."""
        self.items.append(item)

    def insert_after(self, item: HistoryItem, earlier: Collection[str]) -> None:
        """Put an item after the last of the `earlier` ones that is left, else at the front."""
        places = [index for index, other in enumerate(self.items) if other.id in earlier]
        self.items.insert(places[-1] + 1 if places else 0, item)

    def replace(self, item: HistoryItem) -> None:
        """Put an item in the place of the one with its id."""
        self.items = [item if other.id == item.id else other for other in self.items]

    def remove(self, item_id: str) -> None:
        """Take an item out."""
        self.items = [item for item in self.items if item.id != item_id]

    def start_context(self) -> bool:
        """Begin a new model context, because the voice changes.

        User items that no reply follows come along. True if older items stay behind.
        """
        self.context += 1
        pending = len(self.items)
        while pending and self.items[pending - 1].role == "user":
            pending -= 1
        moved = [dataclasses.replace(i, context=self.context) for i in self.items[pending:]]
        self.items[pending:] = moved
        return bool(pending)

    def turns(self, context: int) -> list[Turn]:
        """Return the turns of a model context; a segment is a turn of its own."""
        return [
            Turn(item.role, part.ids, part.codes)
            for item in self.items
            if item.context == context
            for part in item.parts
        ]

    def decoder_codes(self, context: int) -> U16Codes:
        """Return the sounding assistant frames of a model context, in order."""
        pieces = [turn.codes for turn in self.turns(context) if turn.role == "assistant"]
        return self._clock.sounding(np.concatenate([self._clock.no_codes(), *pieces]))

    def drop_oldest(self) -> list[str]:
        """Drop the oldest turn, up to the next user item, and return its items' ids."""
        count = 1
        while count < len(self.items) and self.items[count].role == "assistant":
            count += 1
        dropped = [item.id for item in self.items[:count]]
        del self.items[:count]
        return dropped

    def is_over_limits(self) -> bool:
        """Whether there are more items or more sound than are kept."""
        frames = sum(len(part.codes) for item in self.items for part in item.generated)
        sound_s = frames * self._clock.model.frame_ms / 1000
        return len(self.items) > self._limits.history_items or (
            sound_s > self._limits.history_audio_s
        )

    def created(self, item: HistoryItem, reply_to: str | None = None) -> ItemCreated:
        """Return the news of an item that is in the history now."""
        place = next(i for i, other in enumerate(self.items) if other.id == item.id)
        after = self.items[place - 1].id if place else None
        return ItemCreated(reply_to=reply_to, item=self.wire(item), after=after)

    def wire(self, item: HistoryItem, *, audio: bool = False) -> Item:
        """Return an item as clients see it."""
        codes = np.concatenate([part.codes for part in item.parts])
        generated = "".join(part.text for part in item.generated)
        spoken = "".join(part.wording.spoken for part in item.parts)
        return Item(
            id=item.id,
            role=item.role,
            text=item.text,
            audio_ms=self._clock.length_ms(codes),
            in_context=item.context == self.context,
            exact=item.exact,
            generated_text=generated if generated != item.text else None,
            spoken_text=spoken if spoken != item.text else None,
            audio=ItemAudio(codes=codes.astype("<u2").tobytes()) if audio and len(codes) else None,
        )
