"""Prompts of MOSS-TTS-Local-Transformer-v1.5. Loads no torch, so that the server can build them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from engine.api import I32Grid
from engine.hub import CheckpointError, read_json
from engine.models.slot_prompt import FIELDS, NONE, SlotGrids
from engine.text.plain import PlainTokenizer

# Han, kana and full-width marks: scripts that put no space between sentences.
_UNSPACED = re.compile("[\u3000-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uffef]")
_HAN = re.compile("[\u3400-\u9fff]")
_FRAMES_PER_CHARACTER = {
    "zh": 3.098411951313033,
    "en": 0.8673376262755219,
    "fr": 0.9,
    "ja": 2.2,
    "ko": 1.8,
}
_LANGUAGES = {
    **{"chinese": "zh", "cmn": "zh", "yue": "zh", "cantonese": "zh", "english": "en"},
    **{"french": "fr", "japanese": "ja", "korean": "ko"},
}


@dataclass(frozen=True, slots=True)
class Fields:
    """What a request may say beside its text; blank is unsaid.

    `tokens` is the wanted length in frames. `language` is an English name such as "Chinese",
    passed on as it is; "Auto" is unsaid.
    """

    instruction: str | None = None
    tokens: int | None = None
    quality: str | None = None
    sound_event: str | None = None
    ambient_sound: str | None = None
    language: str | None = None

    def __post_init__(self) -> None:
        if self.tokens is not None and self.tokens < 1:
            raise ValueError(
                f"tokens is the wanted length in frames, at least 1; got {self.tokens}"
            )

    def render(self) -> str:
        """The fields as the model was trained to read them."""
        values = dataclasses.asdict(self)
        if (self.language or "").strip().casefold() == "auto":
            values["language"] = None
        return FIELDS.format(
            **{
                name: NONE if value is None else str(value).strip() or NONE
                for name, value in values.items()
            }
        )


@dataclass(frozen=True, slots=True)
class LocalPrompt:
    """Builds grids. Whatever texts and fields contain is plain text, never a control token.

    A prompt has references or a recording to go on from, never both: upstream takes both and
    ignores the references. Raises `ValueError` for codes that do not fit the model.
    """

    tokenizer: PlainTokenizer
    grids: SlotGrids

    @classmethod
    def from_checkpoint(cls, model_dir: str | Path) -> LocalPrompt:
        """Read config.json and tokenizer.json. Raises `CheckpointError`."""
        model_dir = Path(model_dir)
        vocabulary = model_dir / "tokenizer.json"
        if not vocabulary.is_file():
            raise CheckpointError(f"{model_dir} has no tokenizer.json")
        tokenizer = PlainTokenizer.from_file(vocabulary)
        config = read_json(model_dir, "config.json")
        return cls(tokenizer, SlotGrids.from_settings(config, tokenizer.encode, model_dir))

    def plain(self, text: str, fields: Fields = Fields()) -> I32Grid:
        """The model's own choice of voice."""
        return self.grids.plain(*self._ids(text, fields))

    def clone(
        self,
        text: str,
        references: Sequence[NDArray[Any]],
        fields: Fields = Fields(),
    ) -> I32Grid:
        """The voice of `references`, each codes [T, n_vq]: what was said in them is not known."""
        return self.grids.clone(references, *self._ids(text, fields))

    def continuation(
        self,
        text: str,
        codes: NDArray[Any],
        fields: Fields = Fields(),
    ) -> I32Grid:
        """Go on after `codes` [T, n_vq]; `text` is all of it: see `join_transcript`."""
        return self.grids.continuation(codes, *self._ids(text, fields))

    def _ids(self, text: str, fields: Fields) -> tuple[list[int], list[int]]:
        return self.tokenizer.encode(fields.render()), self.tokenizer.encode(text)


def join_transcript(transcript: str, text: str) -> str:
    """What a recording says, then what shall follow: one running text, as in training."""
    transcript = transcript.strip()
    if not transcript:
        return text
    unspaced = _UNSPACED.match(transcript[-1]) or _UNSPACED.match(text[:1])
    return transcript + ("" if unspaced or text[:1].isspace() else " ") + text


def frames_of(duration_s: float, frame_ms: float) -> int:
    """The field `tokens` of a duration. Raises `ValueError` unless it is at least one frame."""
    frames = round(duration_s * 1000 / frame_ms)
    if frames < 1:
        raise ValueError(f"a duration is at least one frame of {frame_ms:g} ms; got {duration_s} s")
    return frames


def estimated_frames(text: str, language: str | None = None) -> int:
    """The field `tokens` of a text that shall be spoken at an ordinary pace.

    Rates per character are those of the model's demonstration. A language without a rate of its
    own counts as Chinese if the text has Han characters, else as English.
    """
    name = (language or "").strip().casefold()
    code = _LANGUAGES.get(name, name)
    if code not in _FRAMES_PER_CHARACTER:
        code = "zh" if _HAN.search(text) else "en"
    return max(1, round(len(text) * _FRAMES_PER_CHARACTER[code]))
