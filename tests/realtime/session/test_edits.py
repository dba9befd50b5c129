"""The history is changed from outside: what goes, what stays, and what the model sees then."""

from __future__ import annotations

import base64

import numpy as np
import pytest

from engine.api import Warm

TEXT = "Nice, welcome to Paris! There is a lot to see."


def converse(talk) -> list[str]:
    """Two turns; returns the ids of their four items."""
    ids = []
    for turn in range(2):
        item = {"role": "user", "text": f"Question {turn}?"}
        ids.append(talk.say("item.create", item=item)[0].item.id)
        talk.start(f"r{turn}", text=f"{TEXT} {turn}", end=True)
        talk.run()
        ids.append(talk.of("item.created")[-1].item.id)
    return ids


def items(talk):
    return talk.say("history.get")[0].items


def test_news_of_an_item_says_where_it_is(talk):
    ids = converse(talk)
    assert [made.after for made in talk.of("item.created")] == [None, *ids[:-1]]
    item = {"role": "user", "text": "In between."}
    (made,) = talk.say("item.create", item=item, after=ids[1])
    assert made.after == ids[1]


def test_a_deleted_item_leaves_the_history_and_the_context(talk):
    ids = converse(talk)
    (deleted,) = talk.say("item.delete", item_id=ids[0], event_id="d")
    assert (deleted.type, deleted.item_id, deleted.reply_to) == ("item.deleted", ids[0], "d")
    assert [item.id for item in items(talk)] == ids[1:]
    warm = talk.commands[-1]
    assert isinstance(warm, Warm)
    talk.start("next", text="So.", end=True)
    np.testing.assert_array_equal(talk.opens()[-1].grid, warm.grid)


def test_a_context_without_an_item_is_that_of_a_session_that_never_had_it(talk, new_talk):
    ids = converse(talk)
    for item_id in ids[:2]:
        talk.say("item.delete", item_id=item_id)
    talk.start("next", text="So.", end=True)
    kept = talk.say("history.get", audio=True)[0].items
    other = new_talk()
    other.say("session.start")
    for item in kept:
        fields = {"role": item.role, "text": item.text}
        if item.audio:
            fields["audio"] = {"codes": base64_of(item.audio.codes)}
        other.say("item.create", item=fields)
    other.start("next", text="So.", end=True)
    np.testing.assert_array_equal(talk.opens()[-1].grid, other.opens()[-1].grid)


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


def test_what_cannot_be_deleted(talk):
    (error,) = talk.say("item.delete", item_id="nope")
    assert (error.code, error.param) == ("unknown_item", "item_id")
    started = talk.start(text=TEXT, end=True)[0]
    talk.step(3)
    (error,) = talk.say("item.delete", item_id=started.item_id)
    assert (error.code, "still being spoken" in error.message) == ("unknown_item", True)


def test_a_deleted_item_cannot_be_cut_any_more(talk):
    ids = converse(talk)
    talk.say("item.delete", item_id=ids[3])
    assert talk.say("interrupt", played={"response_id": "r1", "ms": 500}) == []
    assert talk.say("item.truncate", item_id=ids[3], audio_end_ms=5)[0].code == "unknown_item"


def test_a_cleared_history_is_empty_and_its_context_fresh(talk):
    fresh = talk.commands[-1]
    converse(talk)
    (left,) = talk.say("history.clear", event_id="c")
    assert (left.type, left.items, left.reply_to) == ("history", (), "c")
    np.testing.assert_array_equal(talk.commands[-1].grid, fresh.grid)
    talk.start("next", text="So.", end=True)
    talk.run()
    assert [item.text for item in items(talk)] == ["So."]


def test_clearing_while_speaking_leaves_only_what_is_being_said(talk):
    converse(talk)
    talk.start("next", text=TEXT, end=True)
    talk.step(3)
    talk.say("history.clear")
    talk.run()
    assert [item.text for item in items(talk)] == [TEXT]
    assert talk.of("item.created")[-1].after is None


@pytest.mark.parametrize("kind", ["item.delete", "history.clear", "history.export"])
def test_edits_need_a_session(new_talk, kind):
    talk = new_talk()
    fields = {"item_id": "x"} if kind == "item.delete" else {}
    assert talk.say(kind, **fields)[0].code == "not_started"
