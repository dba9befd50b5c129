"""The query of a handshake says what `session.start` says."""

from __future__ import annotations

import pytest

from realtime.protocol.errors import ProtocolError
from realtime.protocol.messages import AudioRequest, Flow, Generation, SessionStart
from realtime.protocol.query import start_from_query


def test_every_kind_of_setting_is_read_as_its_type() -> None:
    start = start_from_query(
        [
            ("token", "ct1.x.y"),
            ("voice", "7"),
            ("audio.codec", "opus"),
            ("audio.frame_ms", "20"),
            ("generation.temperature", "0.5"),
            ("generation.seed", "9"),
            ("flow.mode", "ack"),
            ("stall_flush_ms", "0"),
            ("normalize", "true"),
        ]
    )
    assert start == SessionStart(
        m=1,
        voice="7",
        audio=AudioRequest(codec="opus", frame_ms=20),
        generation=Generation(temperature=0.5, seed=9),
        flow=Flow(mode="ack"),
        stall_flush_ms=0,
        normalize=True,
    )


def test_a_query_without_settings_starts_nothing() -> None:
    assert start_from_query([]) is None
    assert start_from_query([("token", "ct1.x.y")]) is None


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("color", "red", "color is not a field; there are"),
        ("color.hue", "red", "color.hue is not a setting"),
        ("audio.hue", "red", "audio.hue is not a field"),
        ("voice.name", "x", "voice.id is required"),
        ("stall_flush_ms", "soon", "must be an integer, not 'soon'"),
        ("stall_flush_ms", "-1", "must be between 0 and 60000"),
        ("generation.temperature", "nan", "must be a finite number"),
        ("normalize", "yes", "must be true or false, not 'yes'"),
        ("audio.frame_ms", "30", "must be one of 20, 40, 60, 80"),
        ("audio", "opus", "audio must be a map"),
        ("m", "5", "cannot be given in a query"),
        ("resume.token", "t", "cannot be given in a query"),
        ("history", "[]", "cannot be given in a query"),
        ("metadata.a", "b", "cannot be given in a query"),
        ("", "", "is not a field"),
        (".", "", "is not a setting"),
    ],
)
def test_a_mistake_is_named(name: str, text: str, complaint: str) -> None:
    with pytest.raises(ProtocolError, match=complaint) as caught:
        start_from_query([(name, text)])
    assert caught.value.code == "invalid_field"


def test_a_setting_cannot_be_given_twice() -> None:
    for pairs in ([("voice", "a"), ("voice", "b")], [("audio", "x"), ("audio.codec", "opus")]):
        with pytest.raises(ProtocolError, match=r"given twice|exclude each other"):
            start_from_query(pairs)
    with pytest.raises(ProtocolError, match="given twice"):
        start_from_query([("audio.codec", "opus"), ("audio", "x")])
