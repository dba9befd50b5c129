"""The tokenizer of the small voice: common words are one token, and each token has phonemes.

Spelling to sound is the hardest thing for a small model and is known to the teacher: so a token's
embedding is trained as its own row plus rows of the phonemes in it, and stored as their sum.
"""

from __future__ import annotations

import json
import re
import string
from collections.abc import Iterable, Iterator
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.trainers import BpeTrainer

from engine.train.corpus.teacher import Teacher

SIZE = 18_000
MAX_PHONEMES = 14
COMMON_WORDS = 11_000
CAPITALISED_WORDS = 5_000

# The pre-tokenization of the Qwen tokenizers.
_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SYSTEM = "You are a speech engine."
_ADDED = (
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|audio_pad|>", "<|text_pad|>"),
    *("system\n", "user\n", "assistant\n", "context\n", SYSTEM),
    "The assistant section should be synthesized using the following voice timbre:",
)

# What a letter alone usually says: the teacher would name the letter.
_SOUNDS = "æbkdɛfɡhɪʤklmnɑpkɹstʌvwkiz"  # noqa: RUF001
_LETTERS = dict(zip(string.ascii_lowercase, _SOUNDS, strict=True))


def train_tokenizer(texts: Iterable[str], path: Path) -> Tokenizer:
    """Train on `texts` and the common words of the language, and write `path`."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = BpeTrainer(
        vocab_size=SIZE,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        min_frequency=2,
        show_progress=False,
    )
    tokenizer.train_from_iterator(_material(texts), trainer)
    tokenizer.add_special_tokens(
        [AddedToken(token, normalized=False, special=True) for token in _ADDED]
    )
    tokenizer.save(str(path))
    return tokenizer


def _material(texts: Iterable[str]) -> Iterator[str]:
    import wordfreq

    yield from texts
    common = [
        word
        for word in wordfreq.top_n_list("en", COMMON_WORDS + 2000)
        if re.fullmatch(r"[a-z]+", word)
    ][:COMMON_WORDS]
    for rank, word in enumerate(common):
        # Often enough that every merge inside a common word is made.
        yield from [f" {word}"] * (4 + 3000 // (rank + 20))
        if rank < CAPITALISED_WORDS:
            yield from [word.capitalize(), f" {word.capitalize()}"] * 3


def token_phonemes(tokenizer: Tokenizer, teacher: Teacher) -> list[list[int]]:
    """For each token the teacher's phoneme ids, at most 14; none for what is not letters."""
    return [
        _phonemes(tokenizer.id_to_token(token), teacher)
        for token in range(tokenizer.get_vocab_size())
    ]


def _phonemes(token: str, teacher: Teacher) -> list[int]:
    begins_word = token.startswith("Ġ") or token[:1].isupper()
    word = token.replace("Ġ", "")
    if token in _ADDED or not re.fullmatch(r"'?[A-Za-z]+", word):
        return []
    if len(word.strip("'")) == 1 and not (begins_word and word.lower() in "ai"):
        return teacher.phoneme_ids(_LETTERS[word.strip("'").lower()])
    try:
        said = teacher.phonemes(word if word == "I" else word.lower())
    except (IndexError, KeyError, ValueError):
        return []
    return [phoneme for sentence in said for phoneme in sentence][:MAX_PHONEMES]


def write_phonemes(phonemes: list[list[int]], path: Path) -> None:
    """Write as JSON, beside the tokenizer: training needs it, serving does not."""
    path.write_text(json.dumps(phonemes), encoding="utf-8")
