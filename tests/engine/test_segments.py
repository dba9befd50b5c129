"""Which text enters the grid, segment by segment."""

import numpy as np
import pytest

from engine.segments import Segments, TextLayout

LAYOUT = TextLayout(
    prefill_ids=4,
    pad_id=99,
    audio_pad=1024,
    audio_bos=1025,
    audio_eos=1026,
    columns=3,
    text_vocabulary=640,
    audio_vocabulary=1027,
)
PREFIX = np.full((2, 3), 7, np.int32)


@pytest.fixture
def text():
    return Segments(LAYOUT)


def test_waits_for_enough_ids_then_opens_once(text):
    text.feed((1, 2, 3))
    assert text.opening_rows() is None
    text.feed((4, 5))
    rows = text.opening_rows()
    assert rows[:, 0].tolist() == [1, 2, 3, 4]
    assert rows[:, 1].tolist() == [1024, 1024, 1024, 1025]
    assert text.opening_rows() is None
    assert (text.consumed, text.take_id()) == (4, 5)


def test_short_text_opens_when_it_is_over(text):
    text.feed((1,))
    assert text.opening_rows() is None
    text.end()
    assert text.opening_rows().tolist() == [[1, 1025, 1024]]


def test_pads_only_after_the_text_is_over(text):
    text.feed((1, 2, 3, 4))
    text.opening_rows()
    assert not text.can_step
    text.feed((5,))
    assert text.can_step
    assert text.take_id() == 5
    assert not text.can_step
    text.end()
    assert [text.take_id() for _ in range(3)] == [99, 99, 99]
    assert text.total_consumed == 5


def test_flush_pads_and_the_next_id_opens_a_segment_after_its_prefix(text):
    text.feed((1, 2))
    text.flush(PREFIX)
    assert text.opening_rows()[:, 0].tolist() == [1, 2]
    text.feed((8, 9))
    text.end()
    assert text.take_id() == 99
    assert text.close() == "eos"
    assert not text.is_finished
    assert text.advance()
    assert text.opening_rows()[:, 0].tolist() == [7, 7, 8, 9]
    text.close()
    assert text.is_finished


def test_an_early_end_drops_what_still_belongs_to_the_segment(text):
    text.feed((1, 2, 3, 4, 5, 6))
    text.opening_rows()
    text.close()
    text.feed((7,))
    assert not text.can_step
    assert not text.advance()
    assert not text.is_finished
    text.flush(PREFIX)
    text.feed((8,))
    text.end()
    assert text.advance()
    assert text.opening_rows()[:, 0].tolist() == [7, 7, 8]


def test_end_after_an_early_end_finishes(text):
    text.feed((1, 2, 3, 4))
    text.opening_rows()
    text.close()
    assert not text.is_finished
    text.end()
    assert text.is_finished


def test_no_text_at_all_is_finished(text):
    text.end()
    assert text.is_finished


def test_an_empty_flush_is_an_empty_segment(text):
    text.flush(PREFIX)
    assert text.is_empty
    assert text.close() == "flush"
    assert text.advance()
    text.end()
    assert text.is_finished


def test_text_after_the_end_is_ignored(text):
    text.end()
    text.flush(PREFIX)
    assert text.is_finished
