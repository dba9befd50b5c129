"""Items: what is taken in, what the model sees of it, what is dropped when there is too much."""

from __future__ import annotations

import base64
import dataclasses

import numpy as np
import pytest

from engine.api import Warm
from engine.fake import FAKE_MODEL, FakeScript
from realtime.protocol.limits import Limits
from realtime.session.settings import SessionConfig

MODEL = dataclasses.replace(FAKE_MODEL, n_vq=16)


def b64(codes: np.ndarray) -> str:
    return base64.b64encode(codes.astype("<u2").tobytes()).decode()


def user(talk, text=None, codes=None, **fields):
    item = {"role": "user"}
    if text is not None:
        item["text"] = text
    if codes is not None:
        item["audio"] = {"codes": b64(codes)}
    return talk.say("item.create", item=item | fields.pop("item", {}), **fields)


def reply(talk, response_id, text="Fine, thanks.", **fields):
    talk.say("response.start", response_id=response_id, text=text, end=True, **fields)
    talk.run()


def context(talk, response_id="probe"):
    """The grid the next response opens with."""
    talk.say("response.start", response_id=response_id)
    grid = talk.opens()[-1].grid
    talk.say("response.cancel", response_id=response_id)
    return grid


def items(talk, **fields):
    return talk.say("history.get", **fields)[0].items


CODES = np.arange(9 * 16).reshape(9, 16) % 1024


def test_an_item_is_answered_and_kept(talk):
    created = user(talk, "Hello?", CODES, event_id="e", item={"id": "u1"})[0]
    assert (created.type, created.reply_to) == ("item.created", "e")
    assert (created.item.id, created.item.role, created.item.text) == ("u1", "user", "Hello?")
    assert (created.item.audio_ms, created.item.in_context) == (720, True)
    assert created.item.audio is None
    assert items(talk)[0] == created.item
    kept = items(talk, audio=True)[0].audio.codes
    assert (np.frombuffer(kept, "<u2").reshape(9, 16) == CODES).all()


def test_a_user_item_warms_the_next_context(talk):
    user(talk, "Hello?", CODES)
    warm = talk.commands[-1]
    assert isinstance(warm, Warm)
    assert (warm.grid == context(talk)).all()


@pytest.mark.parametrize(
    ("item", "code", "param"),
    [
        ({"role": "system", "text": "be nice"}, "unsupported", "item.role"),
        ({"role": "user"}, "invalid_field", "item"),
        ({"role": "user", "text": "  "}, "invalid_field", "item"),
        ({"role": "user", "text": "x" * 8001}, "text_too_long", "item.text"),
        ({"role": "user", "audio": {"codes": b64(CODES)[:-4]}}, "bad_audio", "item.audio.codes"),
        ({"role": "user", "audio": {"codes": b64(CODES + 1000)}}, "bad_audio", "item.audio.codes"),
        ({"role": "user", "audio": {"stream": 5}}, "invalid_field", "item.audio.codes"),
        ({"role": "user", "id": "u1", "text": "again"}, "invalid_field", "item.id"),
        (
            {"role": "user", "audio": {"codes": b64(np.zeros((751, 16)))}},
            "bad_audio",
            "item.audio.codes",
        ),
    ],
)
def test_an_item_that_is_refused_changes_nothing(talk, item, code, param):
    user(talk, "first", item={"id": "u1"})
    error = talk.say("item.create", item=item)[0]
    assert (error.code, error.param) == (code, param)
    assert [i.id for i in items(talk)] == ["u1"]


def test_after_puts_an_item_between(talk):
    for name in "ac":
        user(talk, name, item={"id": name})
    user(talk, "b", item={"id": "b"}, after="a")
    assert [i.id for i in items(talk)] == ["a", "b", "c"]
    assert user(talk, "x", after="nope")[0].code == "unknown_item"


def test_text_only_user_items_are_included_or_skipped(new_talk):
    rows = {}
    for choice in ("include", "skip"):
        talk = new_talk()
        talk.say("session.start", text_only_user=choice)
        bare = len(context(talk))
        user(talk, "Hello?")
        rows[choice] = len(context(talk, "again")) - bare
    assert rows["skip"] == 0
    assert rows["include"] > 0


def test_sound_without_text_is_in_the_grid(talk):
    user(talk, codes=CODES)
    grid = context(talk)
    assert (grid[:, 1:] == CODES[0]).all(axis=1).any()
    assert items(talk)[0].text == ""


def test_assistant_items_without_sound_stay_out_of_the_grid(talk):
    before = context(talk)
    talk.say("item.create", item={"role": "assistant", "text": "I said nothing aloud."})
    assert (context(talk, "again") == before).all()
    assert items(talk)[0].text == "I said nothing aloud."


def test_history_of_the_start_is_in_context(new_talk):
    talk, other = new_talk(), new_talk()
    turns = [
        {"role": "user", "text": "Hello?", "audio": {"codes": b64(CODES)}},
        {"role": "assistant", "text": "Hi there.", "audio": {"codes": b64(CODES[:5])}},
    ]
    talk.say("session.start", history=turns)
    other.say("session.start")
    for turn in turns:
        other.say("item.create", item=turn)
    assert (context(talk) == context(other)).all()
    assert (talk.opens()[0].decoder_codes == CODES[:5]).all()
    assert items(talk) == items(other)


def test_a_reply_stands_where_it_began(talk):
    user(talk, "one", item={"id": "one"})
    talk.say("response.start", response_id="r1", text="Fine.", end=True)
    user(talk, "two", item={"id": "two"})
    talk.run()
    assert [i.role for i in items(talk)] == ["user", "assistant", "user"]
    assert items(talk)[2].id == "two"


def test_a_reply_to_nothing_stands_first(talk):
    talk.say("response.start", response_id="r1", text="Fine.", end=True)
    user(talk, "two")
    talk.run()
    assert [i.role for i in items(talk)] == ["assistant", "user"]


# --- voices


def test_another_voice_starts_a_new_context(talk):
    user(talk, "one", CODES)
    reply(talk, "r1")
    user(talk, "two", CODES)
    messages = talk.say("session.update", voice="male")
    assert [m.type for m in messages] == ["session.updated", "warning"]
    assert messages[1].code == "context_restarted"
    assert [i.in_context for i in items(talk)] == [False, False, True]
    reply(talk, "r2")
    assert [i.in_context for i in items(talk)] == [False, False, True, True]
    assert len(talk.opens()[-1].decoder_codes) == 0
    assert (talk.opens()[-1].grid[:, 1] == 1025).sum() == 1


def test_the_same_voice_changes_nothing(talk):
    user(talk, "one", CODES)
    reply(talk, "r1")
    assert [m.type for m in talk.say("session.update", voice="v-alto")] == ["session.updated"]
    assert all(i.in_context for i in items(talk))


def test_a_running_response_keeps_its_voice(talk):
    talk.say("response.start", response_id="r1", text="Fine.", end=True)
    talk.say("session.update", voice="male")
    talk.run()
    assert items(talk)[0].in_context is False
    reply(talk, "r2")
    assert [i.in_context for i in items(talk)] == [False, True]


def test_a_voice_for_one_response(talk):
    reply(talk, "r1")
    talk.say("response.start", response_id="r2", text="Fine.", end=True, voice="male")
    assert talk.of("warning")[-1].code == "context_restarted"
    talk.run()
    reply(talk, "r3")
    assert [i.in_context for i in items(talk)] == [False, False, True]
    other = talk.say("response.start", response_id="r4", voice="male", context="none")
    assert [m.type for m in other] == ["response.started"]
    assert talk.say("response.start", response_id="r5", voice="nobody")[0].code == "voice_not_found"


def test_without_voices_the_prompt_has_none(new_talk, no_voices):
    talk = new_talk(voices=no_voices)
    assert talk.say("session.start")[0].voice is None
    assert (context(talk)[:, 1:] == 1024).all()


# --- limits


def test_at_the_context_limit_the_oldest_turns_go(new_talk):
    script = FakeScript(model=dataclasses.replace(MODEL, max_grid_rows=600))
    talk = new_talk(script=script)
    talk.say("session.start")
    for turn in range(12):
        user(talk, f"turn {turn}", CODES)
        reply(talk, f"r{turn}")
        assert len(talk.opens()[-1].grid) <= 600 * 0.875
    warnings = talk.of("warning")
    assert {w.code for w in warnings} == {"history_trimmed"}
    assert 2 <= len(warnings) < 11  # not every turn: down to 75 % at once
    kept = items(talk)
    gone = {deleted.item_id for deleted in talk.of("item.deleted")}
    assert gone == {made.item.id for made in talk.of("item.created")} - {i.id for i in kept}
    assert kept[0].role == "user"
    assert kept[-2].text == "turn 11"
    assert all(i.in_context for i in kept)


def test_what_is_warmed_has_been_trimmed_already(new_talk):
    """Else the prefix that a full context is opened with would be new to the engine."""
    script = FakeScript(model=dataclasses.replace(MODEL, max_grid_rows=600))
    talk = new_talk(script=script)
    talk.say("session.start")
    for turn in range(12):
        user(talk, f"turn {turn}", CODES)
        warmed = [c for c in talk.commands if isinstance(c, Warm)][-1]
        reply(talk, f"r{turn}")
        np.testing.assert_array_equal(talk.opens()[-1].grid, warmed.grid)


def test_a_context_that_never_fits_still_opens(new_talk):
    talk = new_talk(script=FakeScript(model=dataclasses.replace(MODEL, max_grid_rows=200)))
    talk.say("session.start")
    user(talk, "x" * 2000)
    assert len(context(talk)) < 200
    assert items(talk) == ()


def test_the_history_is_bounded(new_talk):
    limits = Limits(history_items=6, history_audio_s=3)
    talk = new_talk(SessionConfig(limits=limits))
    talk.say("session.start")
    for turn in range(5):
        user(talk, f"turn {turn}")
        talk.say("item.create", item={"role": "assistant", "text": "ok"})
    assert items(talk)[0].text == "turn 2"
    assert len(items(talk)) == 6
    for _ in range(5):
        user(talk, codes=CODES)
    assert sum(i.audio_ms for i in items(talk)) <= 3000


def test_a_reply_keeps_its_place_when_the_one_before_it_is_cut_to_nothing(talk):
    for text in ("Question one.", "Question two."):
        talk.say("item.create", item={"role": "user", "text": text})
    talk.start("a", text="This is answer A.", end=True)
    talk.run()
    first_reply = talk.of("item.created")[-1].item.id
    talk.start("b", text="And this is answer B.", end=True)
    talk.say("item.truncate", item_id=first_reply, audio_end_ms=0)
    talk.run()
    [history] = talk.say("history.get")
    texts = [item.text for item in history.items]
    assert texts == ["Question one.", "Question two.", "And this is answer B."]


def test_an_id_announced_for_a_reply_cannot_be_taken(talk):
    item_id = talk.start("a", text="This is answer A.", end=True)[0].item_id
    error = talk.say("item.create", item={"role": "user", "text": "Mine.", "id": item_id})[0]
    assert (error.code, error.param) == ("invalid_field", "item.id")
    assert item_id in error.message
    talk.run()
    [history] = talk.say("history.get")
    assert [item.id for item in history.items] == [item_id]
