"""The estimate of words heard: a prefix of the text that grows with time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from realtime.session.heard import SpeechRate, heard_text, total_units

TEXTS = st.text(
    st.sampled_from("ab eiou,.!? \n9-'\u00e9\u0301\u4f60\u597d\u3002\ud55c\u0e01\U0001f44b\u0416")
) | st.text(max_size=40)
TIMES = st.floats(0, 60_000)
RATES = st.floats(20, 500)


@given(TEXTS, TIMES, TIMES, RATES)
def test_it_is_a_prefix_that_grows(text, one_ms, other_ms, syllable_ms):
    early, late = (heard_text(text, t, syllable_ms) for t in sorted((one_ms, other_ms)))
    assert text.startswith(late)
    assert late.startswith(early)


@given(TEXTS, RATES)
def test_nothing_is_heard_at_first_and_all_at_last(text, syllable_ms):
    assert heard_text(text, 0, syllable_ms) == ""
    all_ms = total_units(text) * syllable_ms * (1 + 1e-9)
    assert heard_text(text, all_ms, syllable_ms) == text.rstrip()


@given(TEXTS, TIMES, RATES)
def test_words_are_not_cut(text, heard_ms, syllable_ms):
    heard = heard_text(text, heard_ms, syllable_ms)
    rest = text[len(heard) :]
    cuts_a_word = bool(heard) and bool(rest) and heard[-1].isascii() and rest[0].isascii()
    assert not (cuts_a_word and heard[-1].isalnum() and rest[0].isalnum())


@pytest.mark.parametrize(
    ("text", "heard_ms", "heard"),
    [
        ("Nice, welcome to Paris!", 199, ""),
        ("Nice, welcome to Paris!", 400, "Nice,"),
        ("Nice, welcome to Paris!", 1250, "Nice, welcome"),
        ("\u4f60\u597d\uff0c\u4e16\u754c\u3002", 450, "\u4f60\u597d\uff0c"),
        ("\u4f60\u597d\uff0c\u4e16\u754c\u3002", 850, "\u4f60\u597d\uff0c\u4e16"),
        ("\uc548\ub155 \ud558\uc138\uc694", 450, "\uc548\ub155"),
    ],
)
def test_examples(text, heard_ms, heard):
    assert heard_text(text, heard_ms, 200) == heard


def test_pauses_count():
    assert total_units("one. two") > total_units("one, two") > total_units("one two")


def test_the_rate_is_learned():
    rate = SpeechRate()
    for _ in range(30):
        rate.learn("one two three four", 1600)
    assert rate.syllable_ms == pytest.approx(1600 / total_units("one two three four"), rel=1e-3)
    learned = rate.syllable_ms
    rate.learn("", 500)
    rate.learn("one", 0)
    assert rate.syllable_ms == learned
