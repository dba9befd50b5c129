"""The mirror follows the server's history, and knows what another session has to be given."""

from __future__ import annotations

from realtime.protocol.messages import (
    History,
    HistoryCapsule,
    Item,
    ItemCreated,
    ItemDeleted,
    ItemTruncated,
    Pong,
)
from realtime.sdk.mirror import HistoryMirror, Seed


def item(name: str, text: str | None = None) -> Item:
    return Item(id=name, role="user", text=name.upper() if text is None else text, audio_ms=80)


def mirror_of(*names: str) -> HistoryMirror:
    mirror = HistoryMirror()
    before = None
    for name in names:
        mirror.apply(ItemCreated(item=item(name), after=before))
        before = name
    return mirror


def names(mirror: HistoryMirror) -> list[str]:
    return [i.id for i in mirror.items]


def truncated(name: str) -> ItemTruncated:
    return ItemTruncated(
        item_id=name, audio_end_ms=80, text="cut", exact=False, heard_source="client"
    )


def test_items_are_put_where_they_belong():
    mirror = mirror_of("a", "b")
    mirror.apply(ItemCreated(item=item("c"), after="a"))
    mirror.apply(ItemCreated(item=item("d")))
    mirror.apply(ItemCreated(item=item("e"), after="nobody"))
    assert names(mirror) == ["d", "a", "c", "b", "e"]


def test_items_change_and_go():
    mirror = mirror_of("a", "b", "c")
    mirror.apply(truncated("b"))
    mirror.apply(ItemDeleted(item_id="a"))
    mirror.apply(ItemDeleted(item_id="nobody"))
    assert [(i.id, i.text, i.exact) for i in mirror.items] == [
        ("b", "cut", False),
        ("c", "C", True),
    ]


def test_an_item_that_gets_its_sound_stays_where_it_is():
    mirror = mirror_of("a", "b")
    mirror.apply(ItemCreated(item=item("a", "with sound")))
    assert [(i.id, i.text) for i in mirror.items] == [("a", "with sound"), ("b", "B")]


def test_the_servers_history_wins():
    mirror = mirror_of("a", "b")
    assert mirror.apply(History(items=(item("x"),)))
    assert not mirror.apply(Pong(t=1, server_t=1))
    assert names(mirror) == ["x"]


def test_without_a_capsule_the_texts_are_the_seed():
    mirror = mirror_of("a", "b")
    mirror.apply(ItemCreated(item=item("c", ""), after="b"))  # sound alone
    seed = mirror.seed()
    assert seed.capsule is None
    assert [(new.id, new.text) for new in seed.history] == [("a", "A"), ("b", "B")]


def test_a_capsule_carries_what_was_there_and_text_what_came_later():
    mirror = mirror_of("a", "b")
    assert not mirror.is_carried
    mirror.apply(HistoryCapsule(data=b"capsule"))
    assert mirror.is_carried
    assert mirror.seed() == Seed(b"capsule")
    mirror.apply(ItemCreated(item=item("c"), after="b"))
    seed = mirror.seed()
    assert (seed.capsule, [new.id for new in seed.history]) == (b"capsule", ["c"])
    mirror.apply(truncated("c"))
    assert (mirror.seed().capsule, mirror.seed().history[0].text) == (b"capsule", "cut")


def test_a_history_that_begins_as_the_capsule_leaves_it_true():
    mirror = mirror_of("a", "b")
    mirror.apply(HistoryCapsule(data=b"capsule"))
    mirror.apply(History(items=(item("a"), item("b"), item("c"))))
    assert mirror.seed().capsule == b"capsule"
    assert [new.id for new in mirror.seed().history] == ["c"]


def test_a_capsule_that_is_no_longer_true_is_not_used():
    for news in (
        truncated("b"),
        ItemDeleted(item_id="a"),
        ItemCreated(item=item("c"), after="a"),
        ItemCreated(item=item("c")),
        History(items=(item("a"), item("b", "other"))),
        History(items=(item("b"),)),
    ):
        mirror = mirror_of("a", "b")
        mirror.apply(HistoryCapsule(data=b"capsule"))
        mirror.apply(news)
        assert mirror.seed().capsule is None, news
        assert len(mirror.seed().history) == len(mirror.items)
