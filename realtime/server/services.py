"""What every endpoint shares, built once from the configuration."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from engine.fake import FAKE_MODEL, FakeScript
from engine.host import build_engine
from engine.models.realtime_prompt import RealtimePrompt
from engine.models.realtime_speech import RealtimeSpeech
from realtime.protocol.frames import OPUS_CLOCK_HZ
from realtime.server.audio import OpusEncoder, OpusUnavailable
from realtime.server.bridge import EngineBridge, EngineError
from realtime.server.config import ConfigError, ServerConfig
from realtime.server.engine_process import EngineLink, EngineProcess, LocalEngine
from realtime.server.keys import ApiKeys, read_api_keys
from realtime.server.metrics import Metrics
from realtime.server.served_models import (
    Checkpoint,
    ServedModel,
    ServedModels,
    read_checkpoints,
)
from realtime.server.sessions import Sessions
from realtime.server.voice import CodecKey
from realtime.server.voice_store import VoiceStore, codec_key, open_voice_store
from realtime.session.settings import DEFAULT_CONFIG, SessionConfig


@dataclasses.dataclass(slots=True)
class Services:
    """Shared by all connections and requests; only the last fields change.

    `startup_error` is set when `started` is, if the engine did not come up.
    """

    config: ServerConfig
    keys: ApiKeys
    bridge: EngineBridge
    models: ServedModels
    metrics: Metrics
    session_config: SessionConfig
    audio_pool: ThreadPoolExecutor
    sessions: Sessions
    started: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)
    startup_error: str = ""
    draining: bool = False

    @property
    def talker(self) -> ServedModel:
        """The model that sessions speak with. Raises `ConfigError` if none holds dialogues."""
        if self.models.talker is None:
            names = ", ".join(model.name for model in self.models)
            raise ConfigError(f"{names} cannot hold a dialogue: load MOSS-TTS-Realtime too")
        return self.models.talker

    @property
    def prompt(self) -> RealtimePrompt:
        """Prompts of dialogues. Raises `ConfigError` as `talker` does."""
        speech = self.talker.speech
        assert isinstance(speech, RealtimeSpeech)
        return speech.prompt

    @property
    def voices(self) -> VoiceStore:
        """The voices as sessions and `/v1/voices` see them."""
        return (self.models.talker or self.models.first).voices

    async def start(self) -> None:
        """Wait for the engine and give every voice its codes."""
        try:
            await self.bridge.ready()
            for model in self.models:
                if "ref_audio" in model.speech.capabilities.takes:
                    await model.complete_voices()
        except EngineError as error:
            self.startup_error = str(error)
        self.started.set()

    def why_not_ready(self) -> str | None:
        """Return what keeps the server from taking new work, if anything does."""
        if self.draining:
            return "draining"
        if not self.started.is_set():
            return "warming up"
        if not self.bridge.up:
            return "restarting its engine"
        if self.bridge.progress_age_s() > self.config.stuck_after_s:
            return "stuck"
        return None


def build_services(config: ServerConfig, link: EngineLink | None = None) -> Services:
    """Build everything but start nothing.

    `link` replaces the engine process. Raises `engine.hub.CheckpointError` and `ConfigError`.
    """
    checkpoints = read_checkpoints(config)
    if link is None:
        link = EngineProcess(engine_settings(config, checkpoints), 2 * config.stuck_after_s)
    return _build(config, checkpoints, link)


def build_local_services(config: ServerConfig) -> Services:
    """Build the same with the engine on a thread of this process."""
    checkpoints = read_checkpoints(config)
    settings = engine_settings(config, checkpoints)
    link = LocalEngine(lambda publish: build_engine(settings, publish))
    return _build(config, checkpoints, link)


def _build(config: ServerConfig, checkpoints: Sequence[Checkpoint], link: EngineLink) -> Services:
    keys = read_api_keys(config)
    bridge = EngineBridge(link, config.restart_wait_s)
    sessions = Sessions(max_detached=config.max_sessions)
    return Services(
        config=config,
        keys=keys,
        bridge=bridge,
        models=_serve(config, checkpoints, bridge),
        metrics=Metrics(bridge, sessions),
        sessions=sessions,
        session_config=session_config(config),
        audio_pool=ThreadPoolExecutor(config.audio_threads, thread_name_prefix="audio"),
    )


def _serve(
    config: ServerConfig, checkpoints: Sequence[Checkpoint], bridge: EngineBridge
) -> ServedModels:
    """Models with the same codec and number of codebooks share their voices' codes."""
    stores: dict[CodecKey, VoiceStore] = {}
    models = []
    for checkpoint in checkpoints:
        key = codec_key(checkpoint.codec_dir, checkpoint.speech.n_vq)
        store = stores.setdefault(key, open_voice_store(config, key))
        models.append(ServedModel(checkpoint.name, checkpoint.speech, store, bridge))
    return ServedModels(models)


def engine_settings(config: ServerConfig, checkpoints: Sequence[Checkpoint]) -> dict[str, Any]:
    """Return the JSON configuration of `engine.host`. Raises `ConfigError`."""
    if config.fake:
        return {"fake": dataclasses.asdict(_fake_script(config, checkpoints))}
    return {
        "engines": [
            {
                "model_dir": str(checkpoint.model_dir),
                "codec_dir": str(checkpoint.codec_dir),
                "model_name": checkpoint.name,
                "variant": checkpoint.settings.variant,
                "threads": config.threads,
                "deterministic": config.deterministic,
                "warm_up": config.warm_up,
                **checkpoint.settings.engine,
            }
            for checkpoint in checkpoints
        ]
    }


def _fake_script(config: ServerConfig, checkpoints: Sequence[Checkpoint]) -> FakeScript:
    if len(checkpoints) > 1:
        raise ConfigError(f"--fake stands for one model, not {len(checkpoints)}")
    [checkpoint] = checkpoints
    model = dataclasses.replace(
        FAKE_MODEL,
        name=checkpoint.name,
        n_vq=checkpoint.speech.n_vq,
        capacity_rows=config.max_rows,
    )
    return FakeScript(
        model=model,
        max_queued_rows=config.max_queued_rows,
        text_is_fed=checkpoint.speech.capabilities.holds_dialogues,
    )


def session_config(config: ServerConfig) -> SessionConfig:
    """Return what holds for every session; without libopus, there is all but Opus."""
    common = SessionConfig(
        stall_flush_ms=config.stall_flush_ms,
        resume_ttl_s=config.resume_ttl_s,
        # The rest of the queue is for control messages.
        queued_sound_bytes=config.max_queued_bytes * 3 // 4,
    )
    try:
        pre_skip = OpusEncoder(OPUS_CLOCK_HZ).pre_skip
    except OpusUnavailable:
        codecs = tuple(codec for codec in DEFAULT_CONFIG.codecs if codec != "opus")
        return dataclasses.replace(common, codecs=codecs)
    return dataclasses.replace(common, opus_pre_skip=pre_skip)
