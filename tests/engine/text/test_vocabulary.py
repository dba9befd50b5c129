"""Which token may follow which, against merging their bytes."""

from __future__ import annotations

import json
import random

from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers.models import BPE

from engine.text.vocabulary import Vocabulary
from tests.engine.text.conftest import TINY, awkward_settings, byte_characters


def made_of(merges: list[str]) -> tuple[BPE, Vocabulary]:
    """Build the library's model and ours of the bytes and merges such as `"a bc"`."""
    pairs = [tuple(merge.split()) for merge in merges]
    tokens = [*byte_characters().values(), *map("".join, pairs)]
    vocab = {token: i for i, token in enumerate(tokens)}
    file = json.loads(TINY.read_text())
    file["model"] |= {"vocab": vocab, "merges": pairs}
    return BPE(vocab=vocab, merges=pairs), Vocabulary.from_settings(file)


def check_pair(model: BPE, vocabulary: Vocabulary, left: str, right: str) -> None:
    ids = [model.token_to_id(left), model.token_to_id(right)]
    merged = [token.id for token in model.tokenize(left + right)]
    assert vocabulary.may_follow(*ids) == (merged == ids), (left, right)


def test_every_pair_of_equal_letters() -> None:
    """Overlapping equal pairs merge from the left."""
    model, vocabulary = made_of(["a a", "aa a", "aa aa", "aaaa aa", "aaaa aaaa"])
    runs = ["a" * n for n in (1, 2, 3, 4, 6, 8)]
    for left in runs:
        for right in runs:
            check_pair(model, vocabulary, left, right)


def test_a_token_that_its_own_bytes_do_not_give_follows_nothing() -> None:
    model, vocabulary = made_of(["b c", "a b", "ab c"])
    assert [token.value for token in model.tokenize("abc")] == ["a", "bc"]
    unreachable = model.token_to_id("abc")
    assert not vocabulary.may_follow(None, unreachable)
    assert not vocabulary.may_follow(model.token_to_id("x"), unreachable)
    assert vocabulary.may_follow(model.token_to_id("a"), model.token_to_id("bc"))


@settings(deadline=None)
@given(
    dice=st.randoms(use_true_random=False),
    letters=st.sampled_from(["ab", "abc"]),
    merges=st.integers(1, 25),
)
def test_pairs_of_made_up_vocabularies(dice: random.Random, letters: str, merges: int) -> None:
    tokens, rules = list(letters), []
    for _ in range(merges):
        left, right = dice.choice(tokens), dice.choice(tokens)
        if left + right not in tokens:
            tokens.append(left + right)
            rules.append(f"{left} {right}")
    model, vocabulary = made_of(rules)
    for left in tokens:
        alone = [token.value for token in model.tokenize(left)] == [left]
        assert vocabulary.may_follow(None, model.token_to_id(left)) == alone
        for right in tokens:
            check_reachable_pair(model, vocabulary, left, right)


def check_reachable_pair(model: BPE, vocabulary: Vocabulary, left: str, right: str) -> None:
    """A token that no text gives is never asked about as the one before."""
    if vocabulary.may_follow(None, model.token_to_id(left)):
        check_pair(model, vocabulary, left, right)


def test_pairs_of_a_trained_vocabulary() -> None:
    model_settings = awkward_settings()["model"]
    pairs = [tuple(merge) for merge in model_settings["merges"]]
    model, vocabulary = made_of([" ".join(pair) for pair in pairs])
    tokens = list(map("".join, pairs))
    dice = random.Random(2)
    for _ in range(20_000):
        check_reachable_pair(model, vocabulary, dice.choice(tokens), dice.choice(tokens))
