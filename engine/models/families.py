"""The model families, by the `model_type` of a checkpoint's config.json: how each is loaded."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from engine.api import I32Grid, Sampling
from engine.checkpoint import CheckpointError, read_json
from engine.models.delay import load_delay
from engine.models.delay_pattern import DelayFormat, prompt_problem
from engine.models.delay_runner import DelayRunner
from engine.models.global_local import GlobalLocalConfig, GlobalLocalModel
from engine.models.global_local_runner import GlobalLocalRunner
from engine.models.interface import Loaded
from engine.models.local import SAMPLING as LOCAL_SAMPLING
from engine.models.local import load_local
from engine.models.nano import SAMPLING as NANO_SAMPLING
from engine.models.nano import load_nano
from engine.models.realtime import load_realtime
from engine.models.realtime_prompt import RealtimePrompt
from engine.models.runner import RealtimeRunner
from engine.replies import Drawn, PromptLayout
from engine.segments import TextLayout

REALTIME_SAMPLING = Sampling()
DELAY_SAMPLING = Sampling(
    temperature=1.7, top_p=0.8, top_k=25, repetition_penalty=1.0, repetition_window=0
)


def load_model(
    model_dir: Path, *, device: torch.device, dtype: torch.dtype | None = None
) -> Loaded:
    """Load a checkpoint of any family. Raises `CheckpointError`."""
    model_type = read_json(model_dir, "config.json").get("model_type")
    if model_type not in _LOADERS:
        raise CheckpointError(
            f"{model_dir} holds a {model_type!r}; known model types: {', '.join(sorted(_LOADERS))}"
        )
    return _LOADERS[model_type](model_dir, device, dtype)


def _load_realtime(model_dir: Path, device: torch.device, dtype: torch.dtype | None) -> Loaded:
    model = load_realtime(model_dir, device=device, dtype=dtype)
    config, prompt = model.config, RealtimePrompt.from_checkpoint(model_dir)
    return Loaded(
        n_vq=config.n_vq,
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
        sampling_defaults=_sampling_defaults(model_dir, REALTIME_SAMPLING),
        new_runner=lambda slots, positions, deterministic: RealtimeRunner(
            model, slots, positions, deterministic=deterministic
        ),
    )


@dataclasses.dataclass(frozen=True, slots=True)
class DelayLayout(PromptLayout):
    """Prompts of the delay-pattern models."""

    form: DelayFormat = dataclasses.field(kw_only=True)

    def cannot_open(self, grid: I32Grid) -> str | None:
        """What makes a fitting grid no prompt, if anything does."""
        return prompt_problem(grid, self.form)

    def drawn(self, value: Drawn) -> Drawn:
        """The runner itself says what it drew."""
        return value


def _load_delay(model_dir: Path, device: torch.device, dtype: torch.dtype | None) -> Loaded:
    model = load_delay(model_dir, device=device, dtype=dtype)
    form = model.config.form
    return Loaded(
        n_vq=form.n_vq,
        backbone=model.config.backbone,
        layout=DelayLayout(
            columns=form.columns,
            text_vocabulary=form.text_vocabulary,
            audio_vocabulary=form.audio_pad + 1,
            form=form,
        ),
        sampling_defaults=_sampling_defaults(model_dir, DELAY_SAMPLING),
        new_runner=lambda slots, positions, deterministic: DelayRunner(
            model, slots, positions, deterministic=deterministic
        ),
    )


@dataclasses.dataclass(frozen=True, slots=True)
class GlobalLocalLayout(PromptLayout):
    """Prompts of the models with a transformer per frame: a draw is a frame, or the end."""

    config: GlobalLocalConfig = dataclasses.field(kw_only=True)

    def cannot_open(self, grid: I32Grid) -> str | None:
        """What makes a fitting grid no prompt, if anything does."""
        ends = (self.config.start_id, self.config.continue_id)
        if not len(grid) or grid[-1, 0] not in ends:
            return f"a prompt ends with the start of sound or a frame of the reply, {ends}"
        return None

    def drawn(self, value: NDArray[np.int64]) -> Drawn:
        """Codes [n_vq] as the runner drew them; all pad where the reply is over."""
        ends = bool((value == self.config.audio_pad).all())
        return Drawn(frame=None if ends else value, ends=ends)


def _load_local(model_dir: Path, device: torch.device, dtype: torch.dtype | None) -> Loaded:
    model = load_local(model_dir, device=device, dtype=dtype)
    return _global_local(model, _sampling_defaults(model_dir, LOCAL_SAMPLING))


def _load_nano(model_dir: Path, device: torch.device, dtype: torch.dtype | None) -> Loaded:
    model = load_nano(model_dir, device=device, dtype=dtype)
    return _global_local(model, _sampling_defaults(model_dir, NANO_SAMPLING))


def _global_local(model: GlobalLocalModel, sampling: Sampling) -> Loaded:
    config = model.config
    return Loaded(
        n_vq=config.n_vq,
        backbone=config.backbone,
        layout=GlobalLocalLayout(
            columns=1 + config.n_vq,
            text_vocabulary=config.text_vocabulary,
            audio_vocabulary=config.audio_pad + 1,
            config=config,
        ),
        sampling_defaults=sampling,
        new_runner=lambda slots, positions, deterministic: GlobalLocalRunner(
            model, slots, positions, deterministic=deterministic
        ),
    )


_LOADERS: dict[str, Callable[[Path, torch.device, torch.dtype | None], Loaded]] = {
    "moss_tts_realtime": _load_realtime,
    "moss_tts_delay": _load_delay,
    "moss_tts_local": _load_local,
    "moss_tts_nano": _load_nano,
}


def _sampling_defaults(model_dir: Path, defaults: Sampling) -> Sampling:
    """What generation_config.json says, over the family's own values."""
    if not (model_dir / "generation_config.json").is_file():
        return defaults
    given = read_json(model_dir, "generation_config.json")
    names = [field.name for field in dataclasses.fields(Sampling)]
    return dataclasses.replace(defaults, **{name: given[name] for name in names if name in given})
