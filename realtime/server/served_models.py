"""The models that a server has loaded, by the names that requests use."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

from engine import hub
from engine.api import F32Samples, ModelInfo, U16Codes
from engine.models.realtime_speech import RealtimeSpeech
from engine.models.speech_models import load_speech_model
from engine.models.utterances import SpeechModel
from realtime.server.bridge import EngineBridge, EngineError
from realtime.server.config import ConfigError, ServerConfig
from realtime.server.errors import ApiError
from realtime.server.profiles import ModelSettings, models_to_load
from realtime.server.voice_store import VoiceStore


@dataclasses.dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model as it lies on disk, without its weights. `codec_dir` None: the fake engine's."""

    name: str
    settings: ModelSettings
    model_dir: Path
    codec_dir: Path | None
    speech: SpeechModel


def read_checkpoints(config: ServerConfig) -> list[Checkpoint]:
    """Find and read what the settings ask for. Raises `CheckpointError` and `ConfigError`."""
    found: dict[str, Checkpoint] = {}
    for settings in models_to_load(config):
        model_dir = hub.resolve(settings.model)
        speech = load_speech_model(model_dir, settings.variant)
        name = settings.name or speech.capabilities.default_name
        if name in found:
            raise ConfigError(f"two models are called {name!r}; give each a --model-name")
        codec_dir = None if config.fake else hub.resolve(settings.codec)
        found[name] = Checkpoint(name, settings, model_dir, codec_dir, speech)
    return list(found.values())


@dataclasses.dataclass(frozen=True, slots=True)
class ServedModel:
    """A loaded model, the voices encoded for it, and the engine that runs it."""

    name: str
    speech: SpeechModel
    voices: VoiceStore
    bridge: EngineBridge

    @property
    def info(self) -> ModelInfo | None:
        """What the engine says of it; None until it is ready."""
        return next((info for info in self.bridge.models if info.name == self.name), None)

    @property
    def ready_info(self) -> ModelInfo:
        """What the engine says of it, which must be ready."""
        if self.info is None:
            raise EngineError(f"the engine has not loaded {self.name!r}")
        return self.info

    async def encode(self, pcm: F32Samples, *, keep_loudness: bool = False) -> U16Codes:
        """Encode a recording, f32 mono `[samples]` at the model's rate, to codes u16 `[F, n_vq]`.

        Its loudness is set as that of the model's references unless it is kept. Raises
        `EngineError`.
        """
        loudness = "keep" if keep_loudness else self.speech.capabilities.loudness
        return await self.bridge.encode(pcm, loudness, self.name)

    async def complete_voices(self) -> None:
        """Make the codes of voices that were stored for another model or codec."""
        await self.voices.encode_missing(self.encode, self.ready_info.rate_hz)


class ServedModels:
    """All of a server's models; the first one is meant where a request names none."""

    def __init__(self, models: Sequence[ServedModel]) -> None:
        """There must be at least one."""
        self._models = {model.name: model for model in models}
        self.first = models[0]

    def __iter__(self) -> Iterator[ServedModel]:
        return iter(self._models.values())

    def has(self, name: str) -> bool:
        """Whether there is a model of that name."""
        return name in self._models

    def find(self, name: str) -> ServedModel:
        """The model of that name. Raises `ApiError` 404, which lists what there is."""
        if name in self._models:
            return self._models[name]
        known = ", ".join(self._models)
        message = f"there is no model {name[:80]!r}; there are: {known}"
        raise ApiError(404, "model_not_found", message, param="model")

    @property
    def talker(self) -> ServedModel | None:
        """The model that sessions speak with, if one can hold a dialogue."""
        return next((m for m in self if isinstance(m.speech, RealtimeSpeech)), None)
