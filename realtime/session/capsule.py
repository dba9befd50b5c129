"""The history as a capsule and back. What comes in may be damaged or hostile."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from engine.api import U16Codes
from engine.text.plain import join_surrogates
from engine.text.wording import Piece, Wording
from realtime.protocol.capsule import (
    Capsule,
    CapsuleCodes,
    CapsuleItem,
    CapsulePart,
    CapsulePiece,
)
from realtime.protocol.errors import ErrorCode, ProtocolError
from realtime.session.cut import Part
from realtime.session.history import History, HistoryItem
from realtime.session.settings import Voice
from realtime.session.sound import FrameClock

_OUT_OF_CONTEXT = -1
# Beyond the codebook the model draws three ids: pad, begin, end. They are fed back, so they count.
_EXTRA_IDS = 3


def pack_codes(codes: U16Codes, codebook_size: int) -> CapsuleCodes:
    """Pack codes u16 `[F, n_vq]`, at the width of the codebook or of the largest code."""
    largest = max(codebook_size - 1, int(codes.max(initial=0)))
    bits = max(1, largest.bit_length())
    spread = (codes.reshape(-1, 1) >> np.arange(bits, dtype=np.uint16)) & 1
    data = np.packbits(spread.astype(np.uint8), bitorder="little").tobytes()
    return CapsuleCodes(frames=len(codes), bits=bits, data=data)


class CapsuleReader:
    """Makes history items of a capsule's, or says where it is wrong."""

    def __init__(self, history: History, clock: FrameClock) -> None:
        self._history = history
        self._clock = clock

    def restore(self, capsule: Capsule) -> None:
        """Put the capsule's items at the end of the history; raises `ProtocolError`."""
        model = self._clock.model
        for name, ours in (
            ("model", model.name),
            ("n_vq", model.n_vq),
            ("codebook_size", model.codebook_size),
        ):
            if (theirs := getattr(capsule, name)) != ours:
                text = f"is {theirs!r:.80}; this server speaks with {ours!r}, and codes of another "
                raise _wrong(f"capsule.{name}", f"{text}model mean nothing to it")
        for index, item in enumerate(capsule.items):
            self._history.add(self._item(item, f"capsule.items[{index}]"))

    def _item(self, item: CapsuleItem, path: str) -> HistoryItem:
        if self._history.is_taken(item.id):
            raise _wrong(f"{path}.id", f"{item.id!r} is there twice")
        if not item.parts:
            raise _wrong(f"{path}.parts", "is empty")
        largest = self._clock.model.codebook_size - 1
        largest += _EXTRA_IDS if item.role == "assistant" else 0
        parts = tuple(
            self._part(part, largest, f"{path}.parts[{index}]")
            for index, part in enumerate(item.parts)
        )
        if not any(part.text.strip() or len(part.codes) for part in parts):
            raise _wrong(path, "has neither text nor sound")
        generated = parts
        if item.generated_text is not None:
            text = join_surrogates(item.generated_text)
            generated = (Part(Wording.verbatim(text), (), self._clock.no_codes()),)
        context = self._history.context if item.in_context else _OUT_OF_CONTEXT
        return HistoryItem(item.id, item.role, parts, generated, context, item.exact)

    def _part(self, part: CapsulePart, largest: int, path: str) -> Part:
        codes = self._clock.no_codes()
        if part.codes is not None:
            codes = self._codes(part.codes, largest, f"{path}.codes")
        wording = Wording(
            tuple(Piece(join_surrogates(p.spoken), join_surrogates(p.written)) for p in part.pieces)
        )
        ids = tuple(self._history.encode(wording.spoken))
        return Part(wording, ids, codes, part.whole)

    def _codes(self, packed: CapsuleCodes, largest: int, path: str) -> U16Codes:
        n_vq = self._clock.model.n_vq
        count = packed.frames * n_vq
        expected_bytes = math.ceil(count * packed.bits / 8)
        if len(packed.data) != expected_bytes:
            text = f"has {len(packed.data)} bytes; {packed.frames} frames of {n_vq} codes of "
            text += f"{packed.bits} bits take {expected_bytes}"
            raise _wrong(f"{path}.data", text, "bad_audio")
        stream = np.unpackbits(np.frombuffer(packed.data, np.uint8), bitorder="little")
        bits = stream[: count * packed.bits].reshape(-1, packed.bits).astype(np.uint16)
        places = np.arange(packed.bits, dtype=np.uint16)
        codes: U16Codes = np.bitwise_or.reduce(bits << places, axis=1)
        if codes.size and codes.max() > largest:
            frame = int(np.argmax(codes > largest)) // n_vq
            text = f"has code {codes.max()} (frame {frame}), which is outside 0..{largest}"
            raise _wrong(f"{path}.data", text, "bad_audio")
        return codes.reshape(-1, n_vq)


def to_capsule(
    history: History, items: Sequence[HistoryItem], clock: FrameClock, voice: Voice | None
) -> Capsule:
    """Return these `items` of the history; `voice` is the one of its model context."""
    model = clock.model
    return Capsule(
        model=model.name,
        n_vq=model.n_vq,
        codebook_size=model.codebook_size,
        voice=voice.id if voice else None,
        items=tuple(
            CapsuleItem(
                id=item.id,
                role=item.role,
                parts=tuple(_part(part, model.codebook_size) for part in item.parts),
                generated_text=history.wire(item).generated_text,
                in_context=item.context == history.context,
                exact=item.exact,
            )
            for item in items
        ),
    )


def _part(part: Part, codebook_size: int) -> CapsulePart:
    return CapsulePart(
        pieces=tuple(CapsulePiece(spoken=p.spoken, written=p.written) for p in part.wording.pieces),
        codes=pack_codes(part.codes, codebook_size) if len(part.codes) else None,
        whole=part.whole,
    )


def _wrong(path: str, complaint: str, code: ErrorCode = "invalid_field") -> ProtocolError:
    return ProtocolError(code, f"{path} {complaint}", param=path)
