"""Text to ids and back, with control markers as plain text."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import Tokenizer

from engine.text.vocabulary import Vocabulary


class PlainTokenizer:
    """A checkpoint's tokenizer without its added tokens: no text can become a control token.

    `vocabulary` is what `IncrementalTokenizer` needs of it; `markers` are the added tokens.
    """

    def __init__(self, plain: Tokenizer, vocabulary: Vocabulary, markers: dict[str, int]) -> None:
        self.vocabulary = vocabulary
        self._plain = plain
        self.markers = markers

    @classmethod
    def from_file(cls, path: str | Path) -> PlainTokenizer:
        """Read a `tokenizer.json`.

        Raises `ValueError` unless it is a byte-level BPE that prepares text as Qwen's does.
        """
        settings = json.loads(Path(path).read_text(encoding="utf-8"))
        markers = {token["content"]: token["id"] for token in settings["added_tokens"]}
        settings["added_tokens"] = []
        try:
            vocabulary = Vocabulary.from_settings(settings)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
        return cls(Tokenizer.from_str(json.dumps(settings)), vocabulary, markers)

    def encode(self, text: str) -> list[int]:
        """Return the ids of a whole text; lone halves of surrogate pairs become U+FFFD."""
        ids: list[int] = self._plain.encode(join_surrogates(text), add_special_tokens=False).ids
        return ids

    def decode(self, ids: list[int]) -> str:
        """Return the text of ids that `encode` gave."""
        text: str = self._plain.decode(ids)
        return text

    def token_id(self, marker: str) -> int:
        """Return the id of an added token such as `<|im_start|>`."""
        if marker not in self.markers:
            raise ValueError(f"the tokenizer has no token {marker!r}")
        return self.markers[marker]


def join_surrogates(text: str) -> str:
    """Join the halves of UTF-16 surrogate pairs; a half without its partner becomes U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
