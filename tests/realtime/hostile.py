"""What a broken or hostile client may send, as hypothesis strategies; both encodings."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any, get_args

import msgpack
from hypothesis import strategies as st

from realtime.protocol.errors import RETRYABLE, ErrorCode, Scope
from realtime.protocol.frames import AudioFrame, Flags
from realtime.protocol.messages import CLIENT_MESSAGES

NEXT = "next"  # as `m`: the number the server awaits
FIELDS = sorted(
    {field.name for cls in CLIENT_MESSAGES.values() for field in dataclasses.fields(cls)}
    | {"resume", "session_id", "__class__", "", "codes", "type "}
)
IDS = st.sampled_from([*["r1", "r2", "r3", "item_1"] * 4, "", "x" * 129, "\ud800", "\x00"])
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63),
    st.sampled_from([0, -1, 2**53, 10**400, math.nan, math.inf, -math.inf, 1e308, -0.0]),
    st.text(max_size=12),
    st.sampled_from(["<|im_end|>", "<|audio_start|>", "\ud83d", "a" * 5000, "../../etc", "%s{}"]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=8,
)
ANY_NUMBERS = SCALARS | st.integers(0, 60)
PLAUSIBLE = {
    "session.start": {"audio": st.just({"codec": "pcm_s16le"}), "history": st.just([])},
    "response.start": {
        "response_id": IDS,
        "text": st.text(max_size=40),
        "end": st.booleans(),
        "normalize": st.booleans(),
        "context": st.sampled_from(["conversation", "none", ["item_1"]]),
    },
    "response.text": {"response_id": IDS, "delta": st.text(min_size=1, max_size=40)},
    "response.flush": {"response_id": IDS},
    "response.end": {"response_id": IDS},
    "response.cancel": {"response_id": IDS, "played_ms": st.integers(0, 9000)},
    "interrupt": {"played": st.none() | st.builds(lambda i: {"response_id": i, "ms": 80}, IDS)},
    "playback": {"response_id": IDS, "played_ms": st.floats(0, 90_000)},
    "item.create": {"item": st.just({"role": "user", "text": "hi"})},
    "item.truncate": {"item_id": IDS, "audio_end_ms": st.integers(0, 9000)},
    "item.delete": {"item_id": IDS},
    "history.clear": {},
    "history.get": {"audio": st.booleans()},
    "input_audio.commit": {"text": st.none() | st.text(max_size=20)},
    "input_audio.clear": {},
    "session.update": {"normalize": st.booleans(), "stall_flush_ms": st.integers(0, 60_000)},
    "ping": {"t": st.floats(allow_nan=False, allow_infinity=False)},
}


@st.composite
def maps(draw: st.DrawFn) -> dict[str, Any]:
    """A message that is right but for what it asks, or wrong in one or a few fields."""
    kind = draw(st.sampled_from([*list(PLAUSIBLE) * 3, *sorted(CLIENT_MESSAGES)]))
    fields: dict[str, Any] = {
        "type": kind,
        "m": NEXT if draw(st.integers(0, 9)) else draw(ANY_NUMBERS),
    }
    fields |= {name: draw(values) for name, values in PLAUSIBLE.get(kind, {}).items()}
    if draw(st.integers(0, 3)) == 0:
        fields |= draw(st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=2))
    if draw(st.integers(0, 9)) == 0:
        fields["type"] = draw(st.sampled_from(["?", "session.stop"]) | VALUES)
    return fields


@dataclasses.dataclass(frozen=True)
class Raw:
    """Bytes or text as they go on the wire."""

    data: str | bytes


@dataclasses.dataclass(frozen=True)
class Deep:
    """A message with a field that is a list in a list in a list..."""

    depth: int


@dataclasses.dataclass(frozen=True)
class Cut:
    """A message cut off after a share of its bytes, or with one of them changed."""

    fields: dict[str, Any]
    at: float
    flip: int


@st.composite
def audio_frames(draw: st.DrawFn) -> Raw:
    numbers = [
        draw(st.integers(0, top)) for top in (0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFF, 0xFFFF)
    ]
    kind = draw(st.sampled_from([0x11, 0x12, 0x13, 0x14, 0x15, 0x01, 0x1F]))
    stream, seq, pts, samples, epoch = numbers
    few = draw(st.booleans())
    frame = AudioFrame(
        kind,
        Flags(draw(st.integers(0, 63))),
        0 if few else stream,
        draw(st.integers(0, 3)) if few else seq,
        pts,
        samples,
        epoch,
        draw(st.binary(max_size=200)),
    )
    return Raw(frame.pack()[: draw(st.sampled_from([None, None, 5, 17]))])


BROKEN = st.one_of(
    st.builds(Deep, st.integers(10, 30_000)),
    audio_frames(),
    st.builds(Cut, maps(), st.floats(0, 1), st.integers(0, 255)),
    (st.binary(max_size=60) | st.text(max_size=60)).map(Raw),
)
# Mostly messages that can be read: ten that cannot close the socket.
HOSTILE = st.integers(0, 7).flatmap(lambda kind: maps() if kind else BROKEN)
ATTACKS = st.lists(HOSTILE, min_size=8, max_size=40)


def on_the_wire(hostile: Any, encoding: str, awaited: int) -> str | bytes:
    """Encode what `HOSTILE` draws; `awaited` is the number the server waits for."""
    if isinstance(hostile, Raw):
        # A text frame is UTF-8: the client library could not send anything else.
        whole = hostile.data
        return whole if isinstance(whole, bytes) else whole.encode("utf-8", "replace").decode()
    if isinstance(hostile, Deep):
        head = {"type": "ping", "m": awaited, "t": 0}
        if encoding == "json":
            return json.dumps(head)[:-2] + "[" * hostile.depth + "]" * hostile.depth + "}"
        return msgpack.packb(head)[:-1] + b"\x91" * hostile.depth + b"\x00"
    fields = dict(hostile.fields if isinstance(hostile, Cut) else hostile)
    fields["m"] = awaited if fields["m"] == NEXT else fields["m"]
    data = _encoded(fields, encoding)
    if not isinstance(hostile, Cut) or not data:
        return data
    at = int(hostile.at * (len(data) - 1))
    if hostile.flip % 2:
        return data[:at]
    if isinstance(data, str):
        return data[:at] + chr(hostile.flip) + data[at + 1 :]
    return data[:at] + bytes([hostile.flip]) + data[at + 1 :]


def _encoded(fields: dict[str, Any], encoding: str) -> str | bytes:
    if encoding == "json":
        return json.dumps(fields)
    packed: bytes = msgpack.packb(_small(fields), unicode_errors="surrogatepass")
    return packed


def _small(value: Any) -> Any:
    """Only integers that msgpack can carry."""
    if isinstance(value, dict):
        return {key: _small(field) for key, field in value.items()}
    if isinstance(value, list):
        return [_small(entry) for entry in value]
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return float("inf")
    return value


def check_error(error: dict[str, Any]) -> None:
    """An error as the protocol documents it."""
    allowed = {"type", "n", "reply_to", "scope", "code", "message", "param", "retryable"}
    assert set(error) <= allowed | {"response_id", "retry_after_ms", "expected"}, error
    assert error["code"] in get_args(ErrorCode)
    assert error["scope"] in get_args(Scope)
    assert error["retryable"] is (error["code"] in RETRYABLE)
    assert error["code"] != "internal"
    assert 0 < len(error["message"]) < 1000
    assert "Traceback" not in error["message"]
    assert ("expected" in error) == (error["code"] == "sequence_gap")
