"""Whatever a client sends, its session answers as documented and goes on, or closes as it says."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings

from realtime.protocol.codec import decode_client, encode
from realtime.protocol.errors import CLOSE_NORMAL, CLOSE_PROTOCOL, ProtocolError
from realtime.protocol.frames import is_audio
from tests.realtime.hostile import ATTACKS, check_error, on_the_wire

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("encoding", ["json", "msgpack"])
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(ATTACKS)
def test_hostile_messages_are_answered_and_the_session_goes_on(new_talk, encoding, attack):
    talk = new_talk()
    talk.say("session.start")
    talk.start("r1", text="A response that speaks while it is attacked, and goes on to.")
    talk.start("r2", text="One that waits.", end=True)
    talk.step(20)
    for hostile in attack:
        if talk.closed:
            break
        receive(talk, on_the_wire(hostile, encoding, talk.session.awaited_m), encoding)
        talk.step(2)
    messages = talk.messages()
    assert [m.n for m in messages] == list(range(1, len(messages) + 1))
    errors = [json.loads(encode(m, "json")) for m in talk.of("error")]
    for error in errors:
        check_error(error)
    if talk.closed:
        check_close(talk, errors)
    else:
        talk.say("interrupt", m=talk.session.awaited_m)
        check_it_speaks(talk)


def receive(talk, data, encoding) -> None:
    if isinstance(data, bytes) and is_audio(data):
        talk.carry_out(talk.session.receive_audio(data, talk.now_ms))
        return
    try:
        message = decode_client(data, encoding)
    except ProtocolError as error:
        talk.carry_out(talk.session.reject(error, talk.now_ms))
    else:
        talk.carry_out(talk.session.receive(message, talk.now_ms))


def check_close(talk, errors) -> None:
    """Only the client itself, or ten messages that are none, close it."""
    bad = [e for e in errors if e["code"] in ("bad_message", "unknown_type", "not_started")]
    assert (talk.closed.code, len(bad)) == (CLOSE_PROTOCOL, 10) or (
        talk.closed.code == CLOSE_NORMAL and talk.of("session.closed")
    )
    talk.step(3)
    assert not talk.engine._running


def check_it_speaks(talk) -> None:
    talk.run()
    for response in list(talk.session._dialogue.speaking.active()):
        cancel = {"response_id": response.request.id, "m": talk.session.awaited_m}
        talk.say("response.cancel", **cancel)
    m = talk.session.awaited_m
    talk.say("response.start", response_id="last one", text="Still here.", end=True, m=m)
    talk.run()
    assert talk.of("response.done")[-1].response_id == "last one"
    assert talk.of("response.done")[-1].status == "completed"
