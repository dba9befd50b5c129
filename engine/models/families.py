"""The model families, by the `model_type` of a checkpoint's config.json: how each is loaded."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from engine.api import I32Grid, Sampling
from engine.checkpoint import read_json
from engine.models.delay import load_delay
from engine.models.delay_pattern import DelayFormat, prompt_problem
from engine.models.delay_runner import DelayRunner
from engine.models.global_local import GlobalLocalConfig, GlobalLocalModel
from engine.models.global_local_runner import GlobalLocalRunner
from engine.models.interface import Loaded
from engine.models.local import load_local
from engine.models.nano import load_nano
from engine.models.realtime import load_realtime
from engine.models.realtime_prompt import RealtimePrompt
from engine.models.runner import RealtimeRunner
from engine.models.variants import Variant, variant_of
from engine.replies import Drawn, PromptLayout
from engine.segments import TextLayout


def load_model(
    model_dir: Path,
    *,
    device: torch.device,
    dtype: torch.dtype | None = None,
    variant: str = "auto",
) -> Loaded:
    """Load a checkpoint of any family; `variant` as for `variant_of`. Raises `CheckpointError`."""
    found = variant_of(model_dir, variant)
    return _LOADERS[found.model_type](found, model_dir, device, dtype)


def _load_realtime(
    variant: Variant, model_dir: Path, device: torch.device, dtype: torch.dtype | None
) -> Loaded:
    model = load_realtime(model_dir, device=device, dtype=dtype)
    config, prompt = model.config, RealtimePrompt.from_checkpoint(model_dir)
    return Loaded(
        variant=variant,
        n_vq=config.n_vq,
        codebook_size=prompt.audio_pad,
        backbone=config.backbone,
        layout=TextLayout(
            prefill_ids=prompt.prefill_text_len,
            pad_id=prompt.text_pad,
            audio_pad=prompt.audio_pad,
            audio_bos=prompt.audio_pad + 1,
            audio_eos=config.audio_eos,
            columns=1 + config.n_vq,
            text_vocabulary=config.text_vocabulary,
            audio_vocabulary=config.audio_vocabulary,
        ),
        sampling_defaults=_sampling_defaults(model_dir, variant),
        new_runner=lambda slots, positions, deterministic: RealtimeRunner(
            model, slots, positions, deterministic=deterministic
        ),
    )


@dataclasses.dataclass(frozen=True, slots=True)
class DelayLayout(PromptLayout):
    """Prompts of the delay-pattern models."""

    form: DelayFormat = dataclasses.field(kw_only=True)

    def cannot_open(self, grid: I32Grid, n_vq: int) -> str | None:
        """What makes a fitting grid no prompt, if anything does."""
        return prompt_problem(grid, self.form)

    def drawn(self, value: Drawn) -> Drawn:
        """The runner itself says what it drew."""
        return value


def _load_delay(
    variant: Variant, model_dir: Path, device: torch.device, dtype: torch.dtype | None
) -> Loaded:
    model = load_delay(model_dir, device=device, dtype=dtype)
    form = model.config.form
    return Loaded(
        variant=variant,
        n_vq=form.n_vq,
        codebook_size=form.audio_pad,
        backbone=model.config.backbone,
        layout=DelayLayout(
            columns=form.columns,
            text_vocabulary=form.text_vocabulary,
            audio_vocabulary=form.audio_pad + 1,
            form=form,
        ),
        sampling_defaults=_sampling_defaults(model_dir, variant),
        new_runner=lambda slots, positions, deterministic: DelayRunner(
            model,
            slots,
            positions,
            deterministic=deterministic,
            text_sampling=variant.text_sampling,
        ),
    )


@dataclasses.dataclass(frozen=True, slots=True)
class GlobalLocalLayout(PromptLayout):
    """Prompts of the models with a transformer per frame: a draw is a frame, or the end."""

    config: GlobalLocalConfig = dataclasses.field(kw_only=True)
    fewer_codebooks: bool = dataclasses.field(kw_only=True)

    @property
    def least_n_vq(self) -> int:
        """Fewest codebooks that the model can speak with."""
        return 1 if self.fewer_codebooks else self.config.n_vq

    def cannot_open(self, grid: I32Grid, n_vq: int) -> str | None:
        """What makes a fitting grid no prompt, if anything does."""
        ends = (self.config.start_id, self.config.continue_id)
        if not len(grid) or grid[-1, 0] not in ends:
            return f"a prompt ends with the start of sound or a frame of the reply, {ends}"
        has_code = grid[:, 1:] != self.config.audio_pad
        spoken = np.arange(self.config.n_vq) < n_vq
        unfit = (has_code != (has_code.any(1, keepdims=True) & spoken)).any(1)
        if unfit.any():
            row = int(unfit.argmax())
            books = np.flatnonzero(has_code[row]).tolist()
            return f"grid row {row} has codes of codebooks {books}; a frame has the first {n_vq}"
        return None

    def drawn(self, value: NDArray[np.int64]) -> Drawn:
        """Codes [n_vq] as the runner drew them; all pad where the reply is over."""
        ends = bool((value == self.config.audio_pad).all())
        return Drawn(frame=None if ends else value, ends=ends)


def _load_global_local(
    variant: Variant, model_dir: Path, device: torch.device, dtype: torch.dtype | None
) -> Loaded:
    load = load_nano if variant.name == "nano" else load_local
    model: GlobalLocalModel = load(model_dir, device=device, dtype=dtype)
    config = model.config
    return Loaded(
        variant=variant,
        n_vq=config.n_vq,
        codebook_size=config.codebook_size,
        backbone=config.backbone,
        layout=GlobalLocalLayout(
            columns=1 + config.n_vq,
            text_vocabulary=config.text_vocabulary,
            audio_vocabulary=config.audio_pad + 1,
            config=config,
            fewer_codebooks=variant.fewer_codebooks,
        ),
        sampling_defaults=_sampling_defaults(model_dir, variant),
        new_runner=lambda slots, positions, deterministic: GlobalLocalRunner(
            model, slots, positions, deterministic=deterministic
        ),
    )


_Load = Callable[[Variant, Path, torch.device, torch.dtype | None], Loaded]
_LOADERS: dict[str, _Load] = {
    "moss_tts_realtime": _load_realtime,
    "moss_tts_delay": _load_delay,
    "moss_tts_local": _load_global_local,
    "moss_tts_nano": _load_global_local,
}


def _sampling_defaults(model_dir: Path, variant: Variant) -> Sampling:
    """What generation_config.json says, over the model's published values."""
    defaults = variant.sampling
    if not (model_dir / "generation_config.json").is_file():
        return defaults
    given = read_json(model_dir, "generation_config.json")
    names = [field.name for field in dataclasses.fields(Sampling)]
    return dataclasses.replace(defaults, **{name: given[name] for name in names if name in given})
