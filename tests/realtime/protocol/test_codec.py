"""Reading client messages: what is refused, with which words; and that nothing slips through."""

from __future__ import annotations

import json
import math
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from realtime.protocol.codec import choose_subprotocol, decode_client, decode_server, encode
from realtime.protocol.errors import ProtocolError
from realtime.protocol.limits import Limits
from realtime.protocol.messages import (
    ResponseText,
    SessionStart,
    Warned,
)


def refusal(fields: Any, encoding: Any = "json") -> ProtocolError:
    data = json.dumps(fields) if encoding == "json" else msgpack.packb(fields)
    with pytest.raises(ProtocolError) as caught:
        decode_client(data, encoding)
    return caught.value


START = {"type": "session.start", "m": 1, "event_id": "e"}
TEXT = {"type": "response.text", "m": 4, "response_id": "r"}


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        (START | {"voise": "x"}, "voise", "is not a field; there are"),
        (START | {"audio": {"codec": "opus", "rate": 1}}, "audio.rate", "is not a field"),
        (START | {"generation": {"temp": 1}}, "generation.temp", "repetition_window"),
        (START | {"history": [{"role": "user"}, {"role": "pope"}]}, "history[1].role", "'pope'"),
        (START | {"audio": {"frame_ms": 30}}, "audio.frame_ms", "20, 40, 60, 80, not 30"),
        (START | {"audio": {"frame_ms": True}}, "audio.frame_ms", "True"),
        (START | {"voice": {"name": "x"}}, "voice.id", "is required"),
        (START | {"voice": 5}, "voice", "must be a string, not 5"),
        (START | {"stall_flush_ms": -1}, "stall_flush_ms", "-1"),
        (START | {"stall_flush_ms": 1.5}, "stall_flush_ms", "must be an integer, not 1.5"),
        (START | {"metadata": [1]}, "metadata", "must be a map"),
        (START | {"metadata": {"a": {"b": math.inf}}}, "metadata.a.b", "inf"),
        (START | {"event_id": "x" * 65}, "event_id", "not 65"),
        ({"type": "session.start"}, "m", "is required"),
        ({"type": "session.start", "m": 0}, "m", "not 0"),
        ({"type": "session.start", "m": "1"}, "m", "must be an integer, not '1'"),
        (TEXT, "delta", "is required"),
        (TEXT | {"delta": ""}, "delta", "not 0"),
        (TEXT | {"delta": None}, "delta", "must be a string, not None"),
        ({"type": "item.create", "m": 2, "item": "hi"}, "item", "must be a map, not 'hi'"),
    ],
)
def test_a_wrong_field_is_named(fields: dict[str, Any], param: str, words: str) -> None:
    error = refusal(fields)
    assert (error.code, error.param) == ("invalid_field", param)
    assert words in error.message
    assert refusal(fields, "msgpack").message == error.message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1),
        ("temperature", 2.5),
        ("top_p", 1.01),
        ("top_k", -1),
        ("top_k", 2.5),
        ("repetition_penalty", 0.0),
        ("repetition_window", -1),
        ("seed", -1),
        ("max_audio_s", 601),
        ("temperature", math.nan),
        ("top_p", math.inf),
        ("temperature", 10**400),
        ("temperature", "hot"),
        ("temperature", True),
    ],
)
def test_a_sampling_value_out_of_range_is_shown(name: str, value: Any) -> None:
    error = refusal(START | {"generation": {name: value}})
    assert (error.code, error.param) == ("invalid_field", f"generation.{name}")
    assert repr(value)[:20] in error.message


@pytest.mark.parametrize("encoding", ["json", "msgpack"])
def test_a_refusal_keeps_number_and_event_id(encoding: str) -> None:
    error = refusal(START | {"voise": "x"}, encoding)
    assert (error.m, error.reply_to) == (1, "e")


def test_a_long_delta_is_text_too_long() -> None:
    assert decode_client(json.dumps(TEXT | {"delta": "x" * 4096}), "json")
    assert refusal(TEXT | {"delta": "x" * 4097}).code == "text_too_long"


@pytest.mark.parametrize(
    ("data", "encoding"),
    [
        ("", "json"),
        ("{", "json"),
        ("[" * 60_000, "json"),
        ("9" * 5000, "json"),
        ("[1]", "json"),
        ('"session.start"', "json"),
        ('{"m":1}', "json"),
        ('{"type":5,"m":1}', "json"),
        (b"{}", "json"),
        ("{}", "msgpack"),
        (b"\xc1", "msgpack"),
        (b"\x91" * 60_000, "msgpack"),
        (b"\x93\x01\x02\x03", "msgpack"),
        (b"\x81\xa4type\xa3\xff\xfe\xfd", "msgpack"),
        (b"\x81\xa1m\xd4\x05\x00", "msgpack"),
        (msgpack.packb(START | {"m": 1})[:-3], "msgpack"),
        (msgpack.packb(START) + b"\x01", "msgpack"),
    ],
)
def test_what_cannot_be_read_is_a_bad_message(data: str | bytes, encoding: Any) -> None:
    with pytest.raises(ProtocolError) as caught:
        decode_client(data, encoding)
    assert caught.value.code == "bad_message"
    assert len(caught.value.message) < 300


def test_metadata_takes_neither_timestamps_nor_depth() -> None:
    with pytest.raises(ProtocolError, match="metadata"):
        decode_client(msgpack.packb(START | {"metadata": {"at": msgpack.Timestamp(1)}}), "msgpack")
    deep: Any = 1
    for _ in range(40):
        deep = {"x": deep}
    assert "nested" in refusal(START | {"metadata": deep}).message


def test_an_unknown_type_lists_the_known() -> None:
    error = refusal({"type": "response.create", "m": 9})
    assert (error.code, error.m) == ("unknown_type", 9)
    assert "response.start" in error.message


def test_only_items_and_whole_texts_may_be_large() -> None:
    limits = Limits(control_message_bytes=200, item_message_bytes=400)
    long = {"text": "x" * 200}
    item = json.dumps({"type": "item.create", "m": 1, "item": {"role": "user"} | long})
    assert decode_client(item, "json", limits)
    for data in (json.dumps(TEXT | {"delta": "x" * 200}), item + " " * 400):
        with pytest.raises(ProtocolError, match="bytes; this has") as caught:
            decode_client(data, "json", limits)
        assert caught.value.code == "bad_message"
        assert caught.value.m is not None


def test_base64_is_checked() -> None:
    item = {"role": "user", "audio": {"codes": "AA*="}}
    error = refusal({"type": "item.create", "m": 1, "item": item})
    assert (error.code, error.param) == ("invalid_field", "item.audio.codes")


def test_a_client_reads_a_newer_server() -> None:
    newer = {"type": "warning", "n": 1, "code": "c", "message": "m", "new": {"x": 1}}
    assert decode_server(json.dumps(newer), "json") == Warned(n=1, code="c", message="m")
    newer = {"type": "error", "scope": "galaxy", "code": "new", "message": "", "retryable": False}
    assert decode_server(json.dumps(newer), "json") is not None
    assert decode_server('{"type":"response.mood","words":[]}', "json") is None


@pytest.mark.parametrize("encoding", ["json", "msgpack"])
@given(st.text(st.characters(), min_size=1, max_size=50))
def test_any_text_survives(encoding: Any, text: str) -> None:
    message = ResponseText(m=1, response_id="r", delta=text)
    assert decode_client(encode(message, encoding), encoding) == message


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)


@pytest.mark.parametrize("encoding", ["json", "msgpack"])
@given(st.dictionaries(st.text(max_size=8), JSON_VALUES, max_size=4))
def test_metadata_survives(encoding: Any, metadata: dict[str, Any]) -> None:
    message = SessionStart(m=1, metadata=metadata)
    assert decode_client(encode(message, encoding), encoding) == message


@given(
    st.dictionaries(st.sampled_from(["m", "event_id", "response_id", "delta", "x"]), JSON_VALUES),
    st.sampled_from(["response.text", "session.start", "ping"]),
)
def test_anything_is_read_or_refused(fields: dict[str, Any], kind: str) -> None:
    refused: ProtocolError | None = None
    try:
        decode_client(json.dumps(fields | {"type": kind}), "json")
    except ProtocolError as error:
        refused = error
    if refused:
        assert refused.code in ("invalid_field", "text_too_long")
        assert refused.param


@given(st.binary(max_size=200))
def test_noise_is_refused_quietly(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_client(data, "msgpack")


def test_subprotocols() -> None:
    assert choose_subprotocol([]) == (None, "json")
    assert choose_subprotocol(["moss.v1.json"]) == ("moss.v1.json", "json")
    both = ["bearer.x", "moss.v1.json", "moss.v1.msgpack"]
    assert choose_subprotocol(both) == ("moss.v1.msgpack", "msgpack")
    with pytest.raises(ProtocolError, match="moss\\.v1\\.msgpack"):
        choose_subprotocol(["bearer.x", "moss.v9.json"])
