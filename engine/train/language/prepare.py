"""What comes before the language model: the corpus as codes, a tokenizer, the model's settings."""

from __future__ import annotations

import logging
from pathlib import Path

from tokenizers import Tokenizer

from engine.hub import read_json
from engine.train.corpus.shards import read_corpus
from engine.train.corpus.teacher import Teacher
from engine.train.language.codes import read_codes
from engine.train.language.shape import write_settings
from engine.train.language.spoken import Spoken, spoken
from engine.train.language.vocabulary import token_phonemes, train_tokenizer, write_phonemes

log = logging.getLogger(__name__)


def prepare_settings(corpus: Path, codec_dir: Path, settings: Path, codebooks: int) -> None:
    """Train the tokenizer and write all of a checkpoint but its weights, once."""
    if (settings / "phonemes.json").is_file():
        return
    settings.mkdir(parents=True, exist_ok=True)
    texts = (utterance.text for utterance in read_corpus(corpus))
    tokenizer = train_tokenizer(texts, settings / "tokenizer.json")
    size = read_json(codec_dir, "config.json")["quantizer_kwargs"]["codebook_size"]
    write_settings(settings, tokenizer, codebooks, size)
    write_phonemes(token_phonemes(tokenizer, Teacher()), settings / "phonemes.json")


def load_utterances(
    corpus: Path, codes: Path, settings: Path, excluded: frozenset[str]
) -> list[Spoken]:
    """Every encoded utterance whose normalised text is not in `excluded`."""
    tokenizer = Tokenizer.from_file(str(settings / "tokenizer.json"))
    codebooks = read_json(settings, "config.json")["rvq"]
    utterances = list(spoken(read_codes(corpus, codes, codebooks), tokenizer, excluded))
    known = sum(bool((one.tokens >= 0).any()) for one in utterances)
    log.info("%d utterances, word times of %d", len(utterances), known)
    return utterances
