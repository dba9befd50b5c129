"""Text to ids and back, with control markers as plain text."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import Tokenizer


class PlainTokenizer:
    """A checkpoint's tokenizer without its added tokens: no text can become a control token."""

    def __init__(self, plain: Tokenizer, markers: dict[str, int]) -> None:
        self._plain = plain
        self._markers = markers

    @classmethod
    def from_file(cls, path: str | Path) -> PlainTokenizer:
        """Read a `tokenizer.json`."""
        settings = json.loads(Path(path).read_text(encoding="utf-8"))
        markers = {token["content"]: token["id"] for token in settings["added_tokens"]}
        settings["added_tokens"] = []
        return cls(Tokenizer.from_str(json.dumps(settings)), markers)

    def encode(self, text: str) -> list[int]:
        """Return the ids of a whole text."""
        ids: list[int] = self._plain.encode(text, add_special_tokens=False).ids
        return ids

    def decode(self, ids: list[int]) -> str:
        """Return the text of ids that `encode` gave."""
        text: str = self._plain.decode(ids)
        return text

    def token_id(self, marker: str) -> int:
        """Return the id of an added token such as `<|im_start|>`."""
        if marker not in self._markers:
            raise ValueError(f"the tokenizer has no token {marker!r}")
        return self._markers[marker]
