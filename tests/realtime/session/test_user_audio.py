"""What the user says: encoded while it arrives, an item of the history once it is committed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file

from engine.api import CancelEncode, Encode, Encoded, Failed, Warm
from realtime.protocol.frames import AudioFrame, Flags
from realtime.protocol.limits import Limits
from realtime.protocol.messages import Codec
from realtime.session.settings import SessionConfig

REALTIME = Path(__file__).parents[2] / "vectors" / "realtime"
CASES = json.loads((REALTIME / "prompts.json").read_text())["cases"]
USER_CASES = [name for name in CASES if name.startswith("user_")]
FRAME = 1920  # samples, at 24 kHz
SPEECH = (np.sin(np.arange(20 * FRAME) / 7) * np.linspace(500, 20_000, 20 * FRAME)).astype("<i2")


@pytest.fixture(scope="module")
def grids():
    return load_file(REALTIME / "prompts.safetensors")


def hear(talk, samples: np.ndarray, *, seq: int = 0, step: int = 480) -> int:
    """Send s16 sound in frames of `step` samples; returns the next number."""
    for start in range(0, len(samples), step):
        part = samples[start : start + step]
        data = AudioFrame(0x11, Flags.NONE, 0, seq, start, len(part), 0, part.tobytes()).pack()
        talk.carry_out(talk.session.receive_audio(data, talk.now_ms))
        seq += 1
    return seq


def refused(talk, data: bytes) -> list:
    before = len(talk.wire)
    talk.carry_out(talk.session.receive_audio(data, talk.now_ms))
    return talk.messages(before)


def frame(seq: int = 0, payload: bytes = b"\1\0\2\0", kind: int = 0x11, **fields) -> bytes:
    samples = fields.pop("samples", len(payload) // 2)
    flags = fields.pop("flags", Flags.NONE)
    return AudioFrame(kind, flags, 0, seq, 0, samples, 0, payload).pack()


def levels(pcm: np.ndarray) -> list[int]:
    """First code of each frame, as the fake engine encodes: the frame's mean level."""
    sound = np.abs(pcm.astype(np.float32) / np.float32(32768)).reshape(-1, FRAME)
    return [int(level * 10000) % 1024 for level in sound.mean(axis=1)]


def user_codes(grid: np.ndarray) -> list[int]:
    return [int(code) for code in grid[:, 1] if code < 1024]


def test_the_first_sound_of_an_utterance_warms_the_dialogue_so_far(talk):
    """Memory that ran short while nobody spoke is refilled before a reply is wanted."""
    talk.say("item.create", item={"role": "user", "text": "Hello."})
    talk.start("r1", text="Good morning.", end=True)
    talk.run()
    before = len(talk.commands)
    seq = hear(talk, SPEECH[: 4 * FRAME])
    [warm] = [c for c in talk.commands[before:] if isinstance(c, Warm)]
    assert talk.commands[before + 1] is warm
    talk.say("input_audio.commit")
    talk.run()
    before = len(talk.commands)
    hear(talk, SPEECH[:FRAME], seq=seq)
    assert len([c for c in talk.commands[before:] if isinstance(c, Warm)]) == 1
    talk.start("r2", text="Yes.")
    np.testing.assert_array_equal(talk.opens()[-1].grid[: len(warm.grid) - 9], warm.grid[:-9])


class TestACommit:
    def test_is_answered_at_once_and_the_item_comes_with_its_sound(self, new_talk, no_voices):
        talk = new_talk(voices=no_voices)
        talk.say("session.start")
        hear(talk, SPEECH)
        answer = talk.say("input_audio.commit", text="Any ideas?", item_id="u1", event_id="e")
        assert [message.type for message in answer] == ["input_audio.committed"]
        assert (answer[0].reply_to, answer[0].item_id) == ("e", "u1")
        assert answer[0].duration_ms == 1600
        assert talk.of("item.created") == []
        talk.run()
        item = talk.of("item.created")[0].item
        assert (item.id, item.role, item.text, item.audio_ms) == ("u1", "user", "Any ideas?", 1600)
        talk.start("r1")
        assert user_codes(talk.opens()[0].grid) == levels(SPEECH)

    def test_finds_most_of_it_encoded_already(self, talk):
        hear(talk, SPEECH)
        talk.run()
        sent = [c for c in talk.commands if isinstance(c, Encode)]
        assert sum(len(c.pcm) for c in sent) == len(SPEECH)
        assert not any(c.end for c in sent)
        assert {(c.loudness, c.model) for c in sent} == {("keep", "tiny")}
        talk.say("input_audio.commit")
        last = talk.commands[-1]
        assert isinstance(last, Encode)
        assert (last.end, len(last.pcm)) == (True, 0)

    def test_fills_the_last_frame_up_with_silence(self, talk):
        hear(talk, SPEECH[: FRAME + 100])
        assert talk.say("input_audio.commit")[0].duration_ms == pytest.approx(84.17, abs=0.01)
        talk.run()
        assert talk.of("item.created")[0].item.audio_ms == 160

    def test_warms_the_context_with_the_sound_in_it(self, talk):
        hear(talk, SPEECH)
        talk.say("input_audio.commit", text="Well?")
        talk.run()
        warm = talk.commands[-1]
        assert isinstance(warm, Warm)
        talk.start("r1", text="Yes.")
        np.testing.assert_array_equal(warm.grid, talk.opens()[0].grid)

    def test_of_several_utterances_keeps_their_order(self, talk):
        seq = hear(talk, SPEECH)
        talk.say("input_audio.commit", text="One.")
        hear(talk, SPEECH[: 2 * FRAME], seq=seq)
        talk.say("input_audio.commit", text="Two.")
        talk.say("item.create", item={"role": "user", "text": "Three."})
        talk.run()
        items = talk.say("history.get")[0].items
        assert [(i.text, i.audio_ms) for i in items] == [
            ("One.", 1600),
            ("Two.", 160),
            ("Three.", 0),
        ]

    def test_with_neither_sound_nor_text_is_refused(self, talk):
        for fields in ({}, {"text": " "}):
            assert talk.say("input_audio.commit", **fields)[0].code == "bad_audio"
        assert talk.say("history.get")[0].items == ()

    def test_under_an_id_that_is_taken_is_refused_and_keeps_the_sound(self, talk):
        talk.say("item.create", item={"role": "user", "text": "Hi.", "id": "u1"})
        hear(talk, SPEECH)
        error = talk.say("input_audio.commit", item_id="u1")[0]
        assert (error.code, error.param) == ("invalid_field", "item_id")
        assert talk.say("input_audio.commit", item_id="u2")[0].duration_ms == 1600

    def test_of_too_many_at_once_is_refused_and_may_be_tried_again(self, talk):
        seq = 0
        for _ in range(4):
            seq = hear(talk, SPEECH[:FRAME], seq=seq)
            talk.say("input_audio.commit")
        hear(talk, SPEECH[:FRAME], seq=seq)
        error = talk.say("input_audio.commit")[0]
        assert (error.code, error.retryable) == ("rate_limited", True)
        talk.run()
        assert talk.say("input_audio.commit")[0].type == "input_audio.committed"

    def test_ends_what_can_be_cut_of_the_reply_before(self, talk):
        talk.start("r1", text="Hello there.", end=True)
        talk.run()
        item_id = talk.of("item.created")[-1].item.id
        hear(talk, SPEECH)
        talk.say("input_audio.commit")
        assert talk.say("item.truncate", item_id=item_id, audio_end_ms=80)[0].type == "error"


class TestAReply:
    def test_waits_for_the_sound_it_answers(self, talk):
        hear(talk, SPEECH)
        talk.say("input_audio.commit", text="Any ideas?")
        talk.start("r1", text="A walk.", end=True)
        assert talk.opens() == []
        talk.run()
        assert user_codes(talk.opens()[0].grid)[7:] == levels(SPEECH)  # after the voice's frames
        assert talk.of("response.done")[0].status == "completed"

    def test_that_waits_can_be_interrupted(self, talk):
        hear(talk, SPEECH)
        talk.say("input_audio.commit", text="Any ideas?")
        talk.start("r1", text="A walk.", end=True)
        assert talk.say("interrupt")[0].status == "cancelled"
        talk.run()
        assert talk.opens() == []
        talk.start("r2", text="A swim.", end=True)
        talk.run()
        assert [done.status for done in talk.of("response.done")] == ["cancelled", "completed"]

    def test_beside_the_conversation_does_not_wait(self, talk):
        hear(talk, SPEECH)
        talk.say("input_audio.commit")
        talk.start("r1", text="One moment.", end=True, context="none")
        assert len(talk.opens()) == 1

    def test_waits_no_longer_when_the_engine_fails(self, talk):
        hear(talk, SPEECH)
        talk.say("input_audio.commit", text="Any ideas?")
        talk.start("r1", text="A walk.", end=True)
        stream = next(c.stream for c in talk.commands if isinstance(c, Encode))
        talk.event(Failed("encode", str(stream), "engine_restarted: killed"))
        assert len(talk.opens()) == 1


class TestTheGrid:
    """Golden grids: what is committed is in the context as the model was trained to hear it."""

    def commit(self, talk, text: str, codes: np.ndarray) -> None:
        hear(talk, SPEECH[:FRAME])
        talk.say("input_audio.commit", text=text)
        stream = next(c.stream for c in talk.commands if isinstance(c, Encode))
        talk.event(Encoded(stream, 0, codes[:2].astype(np.uint16), False))
        talk.event(Encoded(stream, 2, codes[2:].astype(np.uint16), True))
        talk.start("r1")

    @pytest.mark.parametrize("name", USER_CASES)
    def test_of_sound_with_its_transcript_or_alone(self, new_talk, no_voices, grids, name):
        """`user_empty` is sound alone."""
        talk = new_talk(voices=no_voices)
        talk.say("session.start", layout="upstream_streaming")
        self.commit(talk, CASES[name]["text"], grids[f"{name}_codes"])
        expected = np.concatenate([grids["system"], grids[name]])
        np.testing.assert_array_equal(talk.opens()[0].grid, expected)

    def test_of_text_alone(self, new_talk, no_voices, grids):
        talk = new_talk(voices=no_voices)
        talk.say("session.start", layout="upstream_streaming")
        committed, created = talk.say(
            "input_audio.commit", text=CASES["text_only_turn"]["text"], item_id="u1"
        )
        assert (committed.item_id, committed.duration_ms) == ("u1", 0)
        assert (created.item.id, created.item.audio_ms) == ("u1", 0)
        talk.start("r1")
        np.testing.assert_array_equal(talk.opens()[0].grid, grids["text_only_turn"])


class TestClear:
    def test_forgets_the_sound(self, talk):
        seq = hear(talk, SPEECH)
        assert talk.say("input_audio.clear") == []
        assert any(isinstance(c, CancelEncode) for c in talk.commands)
        assert talk.say("input_audio.commit")[0].code == "bad_audio"
        hear(talk, SPEECH[:FRAME], seq=seq)
        assert talk.say("input_audio.commit")[0].duration_ms == 80
        talk.run()
        assert talk.of("item.created")[0].item.audio_ms == 80

    def test_of_nothing_is_no_error(self, talk):
        assert talk.say("input_audio.clear") == []

    def test_is_what_the_end_of_the_session_does(self, talk):
        seq = hear(talk, SPEECH)
        talk.say("input_audio.commit")
        hear(talk, SPEECH, seq=seq)
        opened = {c.stream for c in talk.commands if isinstance(c, Encode)}
        talk.say("session.close")
        assert len(opened) == 2
        assert {c.stream for c in talk.commands if isinstance(c, CancelEncode)} == opened


class TestAnotherRate:
    """`session.update` changes the rate between two utterances, and the codec never."""

    def update(self, talk, **audio):
        (answer,) = talk.say("session.update", input_audio=audio)
        return answer

    def test_holds_from_the_next_utterance_on(self, talk):
        seq = hear(talk, SPEECH)
        assert talk.say("input_audio.commit")[0].duration_ms == 1600
        updated = self.update(talk, sample_rate=8000)
        assert (updated.input_audio.codec, updated.input_audio.sample_rate) == ("pcm_s16le", 8000)
        seq = hear(talk, SPEECH[::3], seq=seq)
        assert talk.say("input_audio.commit")[0].duration_ms == 1600
        self.update(talk, codec="pcm_s16le", sample_rate=24_000)
        hear(talk, SPEECH, seq=seq)
        talk.say("input_audio.commit")
        talk.run()
        talk.start("r1")
        heard = np.array(user_codes(talk.opens()[0].grid)[-60:]).reshape(3, 20)
        assert heard[0].tolist() == heard[2].tolist() == levels(SPEECH)
        assert np.abs(heard[1] - heard[0])[1:-1].max() <= 0.02 * heard[0].max()

    def test_is_refused_in_the_midst_of_one(self, talk):
        seq = hear(talk, SPEECH)
        error = self.update(talk, sample_rate=8000)
        assert (error.code, error.param) == ("invalid_field", "input_audio.sample_rate")
        assert "24000 Hz has begun: commit or clear" in error.message
        assert self.update(talk, sample_rate=24_000).type == "session.updated"  # it is that
        assert talk.say("input_audio.commit")[0].duration_ms == 1600
        hear(talk, SPEECH, seq=seq)
        talk.say("input_audio.clear")
        assert self.update(talk, sample_rate=8000).input_audio.sample_rate == 8000

    def test_of_another_codec_is_refused_and_nothing_of_the_message_applies(self, talk):
        before = self.update(talk)
        (error,) = talk.say("session.update", stall_flush_ms=7, input_audio={"codec": "opus"})
        assert (error.code, error.param) == ("unsupported", "input_audio.codec")
        assert "stays pcm_s16le" in error.message
        assert self.update(talk).stall_flush_ms == before.stall_flush_ms != 7

    @pytest.mark.parametrize("rate_hz", [7999, 48_001, "8000"])
    def test_that_cannot_be_is_refused(self, talk, rate_hz):
        error = self.update(talk, sample_rate=rate_hz)
        assert (error.code, error.param) == ("invalid_field", "input_audio.sample_rate")


class TestBadInput:
    """The errors are documented, and the session goes on as if nothing had come."""

    @pytest.mark.parametrize(
        ("data", "code", "words"),
        [
            (frame(payload=b"\1\0\2"), "bad_audio", "3 bytes"),
            (frame(samples=7), "bad_audio", "holds 2 samples, but its header says 7"),
            (frame(kind=0x12), "bad_audio", "0x11; frame 0 is of type 0x12"),
            (frame(kind=0x01), "bad_audio", "type 0x01"),
            (frame(seq=3), "sequence_gap", "frame 0 is awaited, this is 3"),
            (frame(kind=0x1F), "bad_message", "0x1f"),
            (b"\x11\0\0", "bad_message", "16 bytes"),
        ],
    )
    def test_is_refused_and_the_next_good_frame_is_heard(self, talk, data, code, words):
        error = refused(talk, data)[0]
        assert error.code == code
        assert words in error.message
        assert talk.closed is None
        # A frame whose number was awaited counts, whatever was wrong with it.
        hear(talk, SPEECH, seq=1 if code == "bad_audio" else 0)
        talk.say("input_audio.commit")
        talk.run()
        assert talk.of("item.created")[0].item.audio_ms == 1600

    def test_gap_names_the_frame_awaited(self, talk):
        hear(talk, SPEECH[:960])
        error = refused(talk, frame(seq=9))[0]
        assert (error.code, error.expected, error.param) == ("sequence_gap", 2, "seq")

    def test_frames_that_came_before_are_ignored(self, talk):
        hear(talk, SPEECH)
        assert refused(talk, frame(seq=5)) == []
        assert talk.say("input_audio.commit")[0].duration_ms == 1600

    def test_a_flood_is_answered_once_until_something_good_comes(self, talk):
        for seq in range(100):
            refused(talk, frame(seq, payload=b"\1"))
        assert len(talk.of("error")) == 1
        hear(talk, SPEECH[:FRAME], seq=100)
        refused(talk, frame(104, payload=b"\1"))
        assert len(talk.of("error")) == 2
        assert talk.closed is None

    def test_more_than_an_item_may_have_is_dropped_and_said_once(self, new_talk):
        talk = new_talk(SessionConfig(limits=Limits(item_audio_s=1)))
        talk.say("session.start")
        seq = hear(talk, SPEECH)
        assert [error.code for error in talk.of("error")] == ["bad_audio"]
        assert "1 s of user audio" in talk.of("error")[0].message
        assert talk.say("input_audio.commit")[0].duration_ms == 1000
        hear(talk, SPEECH[:FRAME], seq=seq)
        assert talk.say("input_audio.commit")[0].duration_ms == 80

    @pytest.mark.parametrize(
        ("audio", "code", "param"),
        [
            ({"codec": "mp3"}, "unsupported_codec", "input_audio.codec"),
            ({"sample_rate": 7999}, "invalid_field", "input_audio.sample_rate"),
            ({"sample_rate": 96000}, "invalid_field", "input_audio.sample_rate"),
            ({"frame_ms": 20}, "invalid_field", "input_audio.frame_ms"),
        ],
    )
    def test_format_is_refused_at_the_start(self, new_talk, audio, code, param):
        error = new_talk().say("session.start", input_audio=audio)[0]
        assert (error.code, error.param) == (code, param)

    def test_a_packet_that_cannot_be_opus(self, new_talk):
        talk = new_talk()
        talk.say("session.start", input_audio={"codec": "opus"})
        for seq, (payload, flags) in enumerate(
            [(b"", Flags.NONE), (b"\xff", Flags.NONE), (b"\x05\x00ab", Flags.PACKED)]
        ):
            assert refused(talk, frame(2 * seq, payload, 0x12, flags=flags))[0].type == "error"
            assert refused(talk, frame(2 * seq + 1, b"\xf8\xff\xfe", 0x12)) == []
        assert talk.say("input_audio.commit")[0].duration_ms == 60

    def test_sound_that_the_decoder_refuses_is_reported_once(self, talk):
        hear(talk, SPEECH)
        stream = next(c.stream for c in talk.commands if isinstance(c, Encode))
        for _ in range(3):
            talk.carry_out(talk.session.input_damaged(stream, "a packet is corrupt"))
        talk.carry_out(talk.session.input_damaged(999, "nobody's"))
        assert [(e.code, e.message) for e in talk.of("error")] == [
            ("bad_audio", "a packet is corrupt")
        ]


@pytest.mark.parametrize("codec", get_args(Codec))
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=40),
            st.builds(
                lambda kind, flags, seq, samples, payload: AudioFrame(
                    kind, Flags(flags), 0, seq, 0, samples, 0, payload
                ).pack(),
                st.sampled_from([0x11, 0x12, 0x13, 0x14, 0x15, 0x01, 0x1F]),
                st.integers(0, 255),
                st.integers(0, 6),
                st.integers(0, 8),
                st.binary(max_size=8),
            ),
        ),
        max_size=30,
    )
)
@settings(max_examples=60, deadline=None)
def test_whatever_comes_is_heard_or_answered_in_the_documented_shape(new_talk, codec, hostile):
    talk = new_talk()
    talk.say("session.start", input_audio={"codec": codec})
    for data in hostile:
        talk.carry_out(talk.session.receive_audio(data, talk.now_ms))
    assert {error.code for error in talk.of("error")} <= {
        "bad_audio",
        "bad_message",
        "sequence_gap",
    }
    talk.say("input_audio.clear")
    if talk.closed is None:
        assert talk.say("input_audio.commit", text="Hello?")[0].type == "input_audio.committed"


class TestALostEncoding:
    def lose(self, talk, error: str) -> None:
        stream = [c.stream for c in talk.commands if isinstance(c, Encode)][-1]
        talk.event(Failed("encode", str(stream), error))

    def test_before_the_commit_is_told_and_what_follows_is_heard(self, talk):
        seq = hear(talk, SPEECH)
        self.lose(talk, "engine_restarted: killed")
        assert [error.code for error in talk.of("error")] == ["engine_restarted"]
        hear(talk, SPEECH[:FRAME], seq=seq)
        assert talk.say("input_audio.commit", text="Well?")[0].duration_ms == 80

    def test_after_the_commit_leaves_the_text(self, talk):
        hear(talk, SPEECH)
        talk.say("input_audio.commit", text="Well?", event_id="e")
        self.lose(talk, "boom")
        error = talk.of("error")[0]
        assert (error.code, error.reply_to) == ("internal", "e")
        assert "text alone" in error.message
        item = talk.of("item.created")[0].item
        assert (item.text, item.audio_ms) == ("Well?", 0)

    def test_without_text_drops_the_item(self, talk):
        hear(talk, SPEECH)
        talk.say("input_audio.commit")
        self.lose(talk, "boom")
        assert "dropped" in talk.of("error")[0].message
        assert talk.say("history.get")[0].items == ()

    def test_that_gave_no_codes_is_told(self, talk):
        hear(talk, SPEECH)
        talk.say("input_audio.commit", text="Well?")
        stream = next(c.stream for c in talk.commands if isinstance(c, Encode))
        talk.event(Encoded(stream, 0, np.zeros((0, 16), np.uint16), True))
        assert talk.of("error")[0].code == "bad_audio"
        assert talk.of("item.created")[0].item.text == "Well?"


def test_a_user_who_speaks_keeps_the_session_open(talk):
    talk.wait(599_000)
    hear(talk, SPEECH[:480])
    talk.wait(599_000)
    assert talk.closed is None
