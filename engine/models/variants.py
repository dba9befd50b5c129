"""The models of the MOSS-TTS family as data: which one a checkpoint is, and what suits it.

Loads no torch, so that the server can ask before an engine runs. Values are those published with
each model.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, get_args

from engine.api import Sampling, TextSampling
from engine.hub import CheckpointError, read_json

VariantName = Literal["realtime", "tts", "ttsd", "sound_effect", "voice_generator", "local", "nano"]


@dataclasses.dataclass(frozen=True, slots=True)
class Variant:
    """One model of the family."""

    name: VariantName
    model_type: str  # of config.json
    sampling: Sampling
    text_sampling: TextSampling | None = None  # None: it draws no text
    chunk_ramp_frames: tuple[int, ...] = (1, 4, 15)
    max_grid_rows: int = 8192  # 0: as many as its config allows
    fewer_codebooks: bool = False  # it can speak with only its first ones
    rollback_frames: int = 0
    """How far back a decoder can be set without decoding anything again. Only dialogues need that,
    after a barge-in; memory for it is set aside for each row."""


_STEADY_TEXT: Final = TextSampling(temperature=1.0, top_p=1.0, top_k=50)

VARIANTS: Final[Mapping[str, Variant]] = MappingProxyType(
    {
        variant.name: variant
        for variant in (
            Variant(
                "realtime",
                "moss_tts_realtime",
                Sampling(),
                max_grid_rows=4096,
                rollback_frames=50,  # 4 s
            ),
            Variant(
                "tts",
                "moss_tts_delay",
                Sampling(1.7, 0.8, 25, repetition_penalty=1.0, repetition_window=0),
                TextSampling(1.5, 1.0, 50),
            ),
            Variant(
                "ttsd",
                "moss_tts_delay",
                Sampling(1.1, 0.9, 50, repetition_penalty=1.1, repetition_window=0),
                TextSampling(1.1, 0.9, 50),
                max_grid_rows=0,  # an hour of dialogue is 45,000 rows
            ),
            Variant(
                "sound_effect",
                "moss_tts_delay",
                Sampling(1.5, 0.6, 50, repetition_penalty=1.2, repetition_window=0),
                TextSampling(1.5, 1.0, 50),
            ),
            Variant(
                "voice_generator",
                "moss_tts_delay",
                Sampling(1.5, 0.6, 50, repetition_penalty=1.1, repetition_window=0),
                TextSampling(1.5, 1.0, 50),
            ),
            Variant(
                "local",
                "moss_tts_local",
                Sampling(1.7, 0.8, 25, repetition_penalty=1.0, repetition_window=0),
                _STEADY_TEXT,
                chunk_ramp_frames=(1, 15),
            ),
            # Its own configuration says greedy, which never ends; these are its applications'.
            Variant(
                "nano",
                "moss_tts_nano",
                Sampling(0.8, 0.95, 25, repetition_penalty=1.2, repetition_window=0),
                _STEADY_TEXT,
                fewer_codebooks=True,
            ),
        )
    }
)


def variant_of(model_dir: str | Path, stated: str = "auto") -> Variant:
    """Which model a checkpoint directory holds. Raises `CheckpointError`.

    The delay-pattern models differ in nothing that their files state: there the name under which
    a checkpoint is published decides, as directory or hub id, unless `stated` does.
    """
    model_dir = Path(model_dir)
    config = read_json(model_dir, "config.json")
    model_type = config.get("model_type")
    fitting = [v for v in VARIANTS.values() if v.model_type == model_type]
    if not fitting:
        known = ", ".join(sorted({variant.model_type for variant in VARIANTS.values()}))
        raise CheckpointError(f"{model_dir} holds a {model_type!r}; known model types: {known}")
    if stated != "auto":
        return _stated(stated, fitting, model_dir)
    plain, *special = fitting
    published = _published_name(model_dir, config)
    return next((v for v in special if v.name.replace("_", "") in published), plain)


def _stated(name: str, fitting: list[Variant], model_dir: Path) -> Variant:
    if name not in VARIANTS:
        raise CheckpointError(
            f"no model variant {name!r}; known: auto, {', '.join(get_args(VariantName))}"
        )
    if VARIANTS[name] not in fitting:
        raise CheckpointError(
            f"{model_dir} holds no {name!r}; it may be: {', '.join(v.name for v in fitting)}"
        )
    return VARIANTS[name]


def _published_name(model_dir: Path, config: Mapping[str, Any]) -> str:
    """What the checkpoint is called, in small letters and without separators."""
    path = model_dir.resolve()
    # The hub's cache has models--OWNER--NAME/snapshots/REVISION.
    folder = path.parents[1].name if path.parent.name == "snapshots" else path.name
    names = f"{config.get('_name_or_path', '')} {folder}"
    return names.lower().replace("-", "").replace("_", "")
