"""Golden wire data: both encodings of every message, and audio frames. JavaScript reads it too."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any, get_args

import msgpack
import pytest

from realtime.protocol.codec import decode_client, decode_server, encode
from realtime.protocol.frames import (
    AudioFrame,
    Flags,
    epoch_is_before,
    is_audio,
    pack_packets,
    unpack_packets,
)
from realtime.protocol.messages import CLIENT_MESSAGES, SERVER_MESSAGES, ClientMessage

WIRE = Path(__file__).parents[2] / "vectors" / "wire"
MESSAGES = json.loads((WIRE / "messages.json").read_text())
FRAMES = json.loads((WIRE / "frames.json").read_text())


def cases(side: str) -> list[Any]:
    return [pytest.param(case, id=case["name"]) for case in MESSAGES[side]]


def plain(value: Any, *, binary: bool) -> Any:
    """The vectors write bytes as {"$bytes": base64}; JSON carries the string, msgpack bytes."""
    if isinstance(value, dict) and "$bytes" in value:
        return base64.b64decode(value["$bytes"]) if binary else value["$bytes"]
    if isinstance(value, dict):
        return {name: plain(entry, binary=binary) for name, entry in value.items()}
    return [plain(entry, binary=binary) for entry in value] if isinstance(value, list) else value


def test_every_message_has_a_vector() -> None:
    for side, catalogue in (("client", CLIENT_MESSAGES), ("server", SERVER_MESSAGES)):
        assert {case["fields"]["type"] for case in MESSAGES[side]} == set(catalogue)


@pytest.mark.parametrize("case", cases("client"))
def test_client_message(case: dict[str, Any]) -> None:
    message = decode_client(case["json"], "json")
    assert isinstance(message, get_args(ClientMessage))
    assert decode_client(bytes.fromhex(case["msgpack"]), "msgpack") == message
    check_fields(message, case["fields"])


@pytest.mark.parametrize("case", cases("server"))
def test_server_message(case: dict[str, Any]) -> None:
    message = decode_server(case["json"], "json")
    assert message is not None
    assert decode_server(bytes.fromhex(case["msgpack"]), "msgpack") == message
    check_fields(message, case["fields"])
    assert set(json.loads(encode(message, "json"))) == set(case["fields"])


def check_fields(message: Any, fields: dict[str, Any]) -> None:
    """What is encoded has the vector's fields, beside defaults that the vector leaves out."""
    as_json = json.loads(encode(message, "json"))
    as_msgpack = msgpack.unpackb(encode(message, "msgpack"), unicode_errors="surrogatepass")
    for encoded, binary in ((as_json, False), (as_msgpack, True)):
        assert {name: encoded[name] for name in fields} == plain(fields, binary=binary)


@pytest.mark.parametrize("case", [pytest.param(c, id=c["name"]) for c in FRAMES["frames"]])
def test_audio_frame(case: dict[str, Any]) -> None:
    data = bytes.fromhex(case["hex"])
    frame = AudioFrame.parse(data)
    assert frame == AudioFrame(
        case["type"],
        Flags(case["flags"]),
        *(case[name] for name in ("stream", "seq", "pts", "samples", "epoch")),
        bytes.fromhex(case["payload"]),
    )
    assert frame.pack() == data
    assert is_audio(data)
    if Flags.PACKED in frame.flags:
        packets = [bytes.fromhex(packet) for packet in case["packets"]]
        assert unpack_packets(frame.payload) == packets
        assert pack_packets(packets) == frame.payload


@pytest.mark.parametrize(("epoch", "other", "before"), FRAMES["epoch_is_before"])
def test_epoch_order(epoch: int, other: int, before: bool) -> None:
    assert epoch_is_before(epoch, other) is before
