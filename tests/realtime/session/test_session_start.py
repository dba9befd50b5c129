"""Opening, updating and closing a session; numbering; what a broken client gets."""

from __future__ import annotations

import json

import pytest

from engine.api import Cancel, Warm
from realtime.protocol.messages import Error, SessionStarted
from realtime.session.settings import SessionConfig


def only(messages):
    assert len(messages) == 1, messages
    return messages[0]


def refusal(messages) -> Error:
    error = only(messages)
    assert error.type == "error", error
    return error


def test_the_start_reads_back_every_setting(new_talk):
    talk = new_talk()
    started = only(
        talk.say(
            "session.start",
            event_id="e1",
            model="tiny",
            voice={"id": "v-male"},
            audio={"codec": "opus", "frame_ms": 20, "transport": "inline"},
            generation={"temperature": 0.5, "seed": 3},
            flow={"mode": "ack"},
            layout="upstream_streaming",
            text_only_user="skip",
            metadata={"a": [1]},
        )
    )
    assert isinstance(started, SessionStarted)
    assert (started.n, started.reply_to, started.session_id) == (1, "e1", "sess_1")
    assert (started.voice, started.model, started.epoch) == ("male", "tiny", 0)
    audio = started.audio
    assert (audio.codec, audio.sample_rate, audio.frame_ms) == ("opus", 48000, 20)
    assert (audio.frame_samples, audio.pre_skip, audio.transport) == (960, 312, "inline")
    assert (started.generation.temperature, started.generation.top_k) == (0.5, 30)
    assert (started.flow.mode, started.flow.max_ahead_ms) == ("ack", 4000)
    assert (started.layout, started.text_only_user) == ("upstream_streaming", "skip")
    assert started.stall_flush_ms == 800
    assert started.limits.text_chars == 8000
    assert started.metadata == {"a": [1]}
    assert talk.session.audio == audio


def test_the_defaults(new_talk):
    started = only(new_talk().say("session.start"))
    assert (started.voice, started.layout, started.text_only_user) == (
        "alto",
        "training",
        "include",
    )
    assert (started.audio.codec, started.audio.sample_rate) == ("pcm_s16le", 24000)
    assert started.audio.frame_samples == 1920
    assert (started.flow.mode, started.flow.max_ahead_ms) == ("none", 13107)
    assert started.resumed is False


@pytest.mark.parametrize(
    ("codec", "asked_hz", "rate_hz", "frame_samples"),
    [
        ("pcm_f32le", None, 24000, 960),
        ("mulaw", None, 8000, 320),
        ("alaw", 16000, 16000, 640),
        ("pcm_s16le", 48000, 48000, 1920),
        ("opus", 16000, 16000, 1920),
    ],
)
def test_the_sound_asked_for_is_read_back(new_talk, codec, asked_hz, rate_hz, frame_samples):
    audio = {"codec": codec, "sample_rate": asked_hz, "frame_ms": 40}
    started = only(new_talk().say("session.start", audio=audio))
    assert (started.audio.codec, started.audio.sample_rate) == (codec, rate_hz)
    assert started.audio.frame_samples == frame_samples
    assert started.audio.pre_skip == (312 if codec == "opus" else 0)


def test_the_start_warms_system_and_voice(new_talk):
    talk = new_talk()
    talk.say("session.start", voice="male")
    warm = only(talk.commands)
    assert isinstance(warm, Warm)
    assert (warm.key, warm.model) == ("sess_1", "tiny")
    assert (warm.grid[:, 1:] != 1024).any(axis=1).sum() == 5  # the voice's frames


@pytest.mark.parametrize(
    ("fields", "code", "param", "words"),
    [
        ({"voice": "nobody"}, "voice_not_found", "voice", "alto, male"),
        ({"voice": {"id": "v-x"}}, "voice_not_found", "voice", "'v-x'"),
        ({"model": "gpt"}, "invalid_field", "model", "'tiny'"),
        ({"audio": {"codec": "mp3"}}, "unsupported_codec", "audio.codec", "opus, pcm_s16le"),
        (
            {"audio": {"codec": "opus", "sample_rate": 44100}},
            "unsupported",
            "audio.sample_rate",
            "8000, 16000, 24000, 48000 Hz, not at 44100 Hz",
        ),
        (
            {"audio": {"codec": "mulaw", "sample_rate": 0}},
            "unsupported",
            "audio.sample_rate",
            "not at 0 Hz",
        ),
        ({"timestamps": "letters"}, "invalid_field", "timestamps", "words"),
        ({"session_id": "sess_9"}, "invalid_field", "session_id", "go together"),
        ({"resume": {"token": ""}}, "invalid_field", "resume.token", "1 to 128"),
        ({"generation": {"top_p": 7}}, "invalid_field", "generation.top_p", "7"),
        ({"history": [{"role": "system", "text": "x"}]}, "unsupported", "item.role", "trained"),
        ({"colour": 1}, "invalid_field", "colour", "is not a field"),
    ],
)
def test_a_start_that_cannot_be_leaves_the_session_unstarted(new_talk, fields, code, param, words):
    talk = new_talk()
    error = refusal(talk.say("session.start", event_id="e", **fields))
    assert (error.code, error.param, error.reply_to) == (code, param, "e")
    assert words in error.message
    assert talk.commands == []
    assert only(talk.say("session.start")).type == "session.started"


def test_without_opus_it_is_not_offered(new_talk):
    talk = new_talk(SessionConfig(codecs=("pcm_s16le",)))
    assert refusal(talk.say("session.start", audio={"codec": "opus"})).code == "unsupported_codec"


def test_nothing_goes_before_the_start(new_talk):
    talk = new_talk()
    assert refusal(talk.say("response.start", response_id="r")).code == "not_started"
    assert only(talk.say("ping", t=5, event_id="p")).reply_to == "p"
    talk.carry_out(talk.session.receive_audio(b"\x12" + bytes(15), talk.now_ms))
    assert talk.of("error")[-1].code == "not_started"
    assert only(talk.say("session.start")).type == "session.started"
    assert refusal(talk.say("session.start")).code == "bad_message"


def test_an_update_counts_from_the_next_response(talk):
    talk.say("response.start", response_id="r1")
    updated = only(
        talk.say(
            "session.update",
            event_id="u",
            voice="male",
            generation={"top_k": 5},
            flow={"mode": "ack", "max_ahead_ms": 1000},
            stall_flush_ms=0,
            metadata={"b": 2},
        )
    )
    assert (updated.reply_to, updated.voice, updated.stall_flush_ms) == ("u", "male", 0)
    assert (updated.generation.top_k, updated.generation.top_p) == (5, 0.6)
    assert updated.metadata == {"b": 2}
    talk.say("response.start", response_id="r2", context="none")
    first, second = talk.opens()
    assert (first.sampling.top_k, second.sampling.top_k) == (30, 5)
    assert (first.max_ahead_ms, second.max_ahead_ms) == (13107, 1000)


def test_an_update_keeps_what_it_does_not_name(talk):
    talk.say("session.update", generation={"top_k": 5})
    updated = only(talk.say("session.update", generation={"temperature": 1}))
    assert (updated.generation.top_k, updated.generation.temperature) == (5, 1)
    assert refusal(talk.say("session.update", voice="nobody")).code == "voice_not_found"
    assert refusal(talk.say("session.update", audio={})).param == "audio"


def test_close_ends_everything_once(talk):
    talk.say("response.start", response_id="r1", text="hello", end=True)
    talk.say("response.start", response_id="r2", text="hello", end=True)
    messages = talk.say("session.close", event_id="c")
    assert [m.type for m in messages] == ["response.done", "response.done", "session.closed"]
    assert [m.status for m in messages[:2]] == ["cancelled", "cancelled"]
    assert (messages[-1].reason, messages[-1].reply_to) == ("client", "c")
    assert talk.closed.code == 1000
    assert [c.row for c in talk.commands if isinstance(c, Cancel)] == [100]
    assert talk.say("ping", t=1) == []
    assert talk.session.next_deadline_ms() is None
    assert talk.session.disconnected(talk.now_ms, for_good=False) == []


def test_a_client_that_left_for_good_stops_the_rows(talk):
    talk.say("response.start", response_id="r1", text="hello", end=True)
    talk.say("response.start", response_id="r2", context="none", text="hello", end=True)
    effects = talk.session.disconnected(talk.now_ms, for_good=True)
    assert sorted(effect.command.row for effect in effects) == [100, 101]
    assert all(isinstance(effect.command, Cancel) for effect in effects)
    assert talk.session.disconnected(talk.now_ms, for_good=True) == []


def test_a_server_that_stops_says_so(talk):
    talk.carry_out(talk.session.shut_down(talk.now_ms))
    assert talk.messages()[-1].reason == "shutdown"
    assert talk.closed.code == 1001


# --- numbering


def test_events_are_numbered_without_holes(talk):
    for t in range(5):
        talk.say("ping", t=t)
    talk.say("nonsense")
    assert [message.n for message in talk.messages()] == list(range(1, 8))


def test_an_old_message_is_ignored_and_a_gap_refused(talk):
    talk.say("ping", t=1)  # m = 2
    assert talk.say("ping", t=1, m=2) == []
    assert talk.say("ping", t=1, m=1) == []
    gap = refusal(talk.say("response.start", response_id="r", m=5, event_id="g"))
    assert (gap.code, gap.expected, gap.reply_to) == ("sequence_gap", 3, "g")
    assert (gap.retryable, gap.scope) == (True, "connection")
    assert talk.opens() == []
    assert only(talk.say("ping", t=1, m=3)).type == "pong"


def test_a_refused_message_uses_its_number_up(talk):
    refusal(talk.say("session.update", voice="nobody"))
    refusal(talk.say("session.update", colour="red"))
    refusal(talk.say("item.delete", item_id="nope"))
    refusal(talk.say("no.such.type"))
    assert only(talk.say("ping", t=1)).type == "pong"


def test_a_message_without_a_number_does_not_count(talk):
    error = refusal(talk.say_raw(json.dumps({"type": "ping", "t": 1})))
    assert (error.code, error.param) == ("invalid_field", "m")
    for m in (0, -1, None, "1"):
        error = refusal(talk.say_raw(json.dumps({"type": "ping", "t": 1, "m": m})))
        assert (error.code, error.param) == ("invalid_field", "m")
    assert refusal(talk.say_raw("{nonsense")).code == "bad_message"
    assert only(talk.say("ping", t=1)).type == "pong"


# --- clients that make no sense, or nothing at all


def test_ten_bad_messages_close_the_socket(talk):
    for count in range(1, 11):
        talk.say_raw("nonsense") if count % 2 else talk.say("no.such.type")
        assert (talk.closed is not None) == (count == 10)
    assert talk.closed.code == 4400


def test_wrong_fields_do_not_close_the_socket(talk):
    for _ in range(20):
        talk.say("session.update", colour="red")
        talk.say("response.end", response_id="nope")
    assert talk.closed is None


def test_a_socket_without_a_valid_message_closes(new_talk):
    talk = new_talk()
    talk.wait(9_000)
    talk.say_raw("nonsense")
    talk.wait(999)
    assert talk.closed is None
    talk.wait(1)
    assert talk.closed.code == 4400


def test_an_idle_session_closes_but_a_speaking_one_does_not(new_talk):
    talk = new_talk(config=SessionConfig(resume_ttl_s=0))
    talk.say("session.start")
    talk.wait(599_999)
    talk.say("ping", t=1)
    talk.say("response.start", response_id="r1", text="Hello.", end=True)
    talk.wait(700_000)
    assert talk.closed is None
    talk.run()
    talk.wait(1)
    assert talk.closed.code == 4408
    assert talk.messages()[-1].reason == "idle"


@pytest.mark.parametrize(
    ("flow", "effective_ms"),
    [({}, 2000), ({"max_ahead_ms": 60_000}, 2000), ({"mode": "ack", "max_ahead_ms": 900}, 900)],
)
def test_all_responses_at_once_fit_the_queue(new_talk, flow, effective_ms):
    """Five responses of f32 at 24 kHz, each two seconds ahead."""
    talk = new_talk(SessionConfig(queued_sound_bytes=5 * 2 * 24_000 * 4))
    started = only(talk.say("session.start", flow=flow))
    assert started.flow.max_ahead_ms == effective_ms
    talk.start()
    assert talk.opens()[0].max_ahead_ms == effective_ms
    assert only(talk.say("session.update", flow={})).flow.max_ahead_ms == 2000
