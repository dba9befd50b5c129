"""A session outlives its socket: who may take it up, until when, and where it goes on."""

from __future__ import annotations

import json

import pytest

from engine.api import Cancel
from realtime.protocol.codec import decode_client
from realtime.protocol.errors import ProtocolError
from realtime.protocol.messages import SessionStarted
from realtime.session.settings import SessionConfig

TEXT = "Nice, welcome to Paris! There is a lot to see."


def lose(talk) -> None:
    """The socket goes without a word."""
    talk.carry_out(talk.session.disconnected(talk.now_ms, for_good=False))


def resume(talk, token: str, **fields) -> SessionStarted:
    """Take the session up on a new socket."""
    data = {"type": "session.start", "m": 1, "session_id": "sess_1", "resume": {"token": token}}
    message = decode_client(json.dumps(data | fields), "json")
    talk.session.check_token(message.resume)
    talk.closed = None
    return talk.session.resumed(message, (), None, talk.now_ms)


def test_the_start_gives_the_first_token(talk):
    started = talk.messages()[0]
    assert (started.resume_token, started.resume_ttl_s) == ("token_1", 120)
    assert (started.resumed, started.last_m, started.items, started.gaps) == (False, *[None] * 3)


def test_a_resumed_session_says_where_it_is(talk):
    user = talk.say("item.create", item={"role": "user", "text": "Any ideas?"})[0].item
    talk.start(text=TEXT)
    talk.say("interrupt")
    lose(talk)
    started = resume(talk, "token_1", event_id="e9")
    assert (started.resumed, started.reply_to, started.n) == (True, "e9", None)
    assert (started.resume_token, started.last_m, started.epoch) == ("token_2", 4, 1)
    assert [(item.id, item.role) for item in started.items] == [(user.id, "user")]
    first = talk.messages()[0]
    assert (started.audio, started.voice, started.limits) == (
        first.audio,
        first.voice,
        first.limits,
    )


def test_numbers_go_on_where_they_were(talk):
    talk.say("ping", t=1)  # m = 2
    lose(talk)
    resume(talk, "token_1")
    assert talk.say("ping", t=1, m=2) == []
    (gap,) = talk.say("ping", t=1, m=4)
    assert (gap.code, gap.expected) == ("sequence_gap", 3)
    (pong,) = talk.say("ping", t=1, m=3)
    assert pong.n == gap.n + 1


@pytest.mark.parametrize("token", ["nonsense", "token_2", "token_1\u00e9"])
def test_other_tokens_open_nothing(talk, token):
    lose(talk)
    with pytest.raises(ProtocolError) as refused:
        resume(talk, token)
    assert (refused.value.code, refused.value.param) == ("resume_rejected", "resume.token")
    assert not refused.value.retryable
    assert resume(talk, "token_1").resumed


def test_a_token_is_good_once(talk):
    lose(talk)
    resume(talk, "token_1")
    talk.say("ping", t=1, m=2)
    with pytest.raises(ProtocolError, match="newest"):
        resume(talk, "token_1")
    assert resume(talk, "token_2").resume_token == "token_3"


def test_a_token_whose_answer_was_lost_is_good_again(talk):
    """Nobody can know whether `session.started` arrived before its socket died."""
    lose(talk)
    resume(talk, "token_1")
    lose(talk)
    assert resume(talk, "token_1").resume_token == "token_3"
    with pytest.raises(ProtocolError):  # it never arrived, so nobody can hold it
        resume(talk, "token_2")
    assert resume(talk, "token_3").resumed


def test_a_detached_session_goes_on_speaking_and_remembers_it(talk):
    talk.start(text=TEXT, end=True)
    talk.step(3)
    lose(talk)
    talk.run()
    assert talk.of("response.done")[0].status == "completed"
    assert len(resume(talk, "token_1").items) == 1


def test_a_session_nobody_comes_back_for_is_given_up(talk):
    talk.start(text=TEXT)
    talk.wait(5_000)
    lose(talk)
    talk.wait(119_999)
    assert not talk.session.is_closed
    talk.wait(1)
    assert talk.session.is_closed
    assert [c.row for c in talk.commands if isinstance(c, Cancel)] == [100]
    assert talk.session.next_deadline_ms() is None


def test_losing_the_socket_twice_does_not_prolong_the_wait(talk):
    lose(talk)
    talk.wait(60_000)
    lose(talk)
    talk.wait(60_000)
    assert talk.session.is_closed


def test_a_session_that_is_taken_up_is_not_given_up(talk):
    lose(talk)
    talk.wait(119_000)
    resume(talk, "token_1")
    talk.wait(300_000)
    assert not talk.session.is_closed


def test_a_start_nobody_heard_of_is_not_kept(new_talk):
    talk = new_talk()
    lose(talk)
    assert talk.session.is_closed


def test_keeping_can_be_switched_off(new_talk):
    talk = new_talk(config=SessionConfig(resume_ttl_s=0))
    talk.say("session.start")
    started = talk.messages()[0]
    assert (started.resume_token, started.resume_ttl_s) == (None, 0)
    (error,) = talk.say("session.close", keep=True)
    assert (error.code, error.param) == ("unsupported", "keep")
    talk.start(text=TEXT)
    lose(talk)
    assert talk.session.is_closed
    assert isinstance(talk.commands[-1], Cancel)


def test_a_closed_session_can_be_kept(talk):
    talk.start(text=TEXT, end=True)
    assert talk.say("session.close", keep=True) == []
    assert (talk.closed.code, talk.session.is_closed) == (1000, False)
    lose(talk)
    assert resume(talk, "token_1").resumed
    talk.run()
    assert talk.of("response.done")[0].status == "completed"


def test_an_idle_socket_is_closed_and_its_session_kept(talk):
    talk.wait(600_000)
    assert (talk.closed.code, talk.session.is_closed) == (4408, False)
    assert resume(talk, "token_1").resumed
    talk.wait(599_999)
    assert talk.closed is None


def test_ten_minutes_of_silence_with_pings_are_fine(talk):
    for _ in range(60):
        talk.wait(20_000)
        talk.say("ping", t=talk.now_ms)
    assert talk.closed is None
    talk.start(text=TEXT, end=True)
    talk.run()
    assert talk.of("response.done")[0].status == "completed"


def test_a_server_that_drains_says_so_and_goes_on(talk):
    talk.start(text=TEXT, end=True)
    talk.carry_out(talk.session.going_away(10_000))
    warned = talk.messages()[-1]
    assert (warned.type, warned.in_ms, warned.reason) == ("session.going_away", 10_000, "drain")
    talk.run()
    assert talk.of("response.done")[0].status == "completed"
