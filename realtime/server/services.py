"""What every endpoint shares, built once from the configuration."""

from __future__ import annotations

import asyncio
import dataclasses
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from engine import hub
from engine.models.realtime_prompt import RealtimePrompt
from realtime.protocol.frames import OPUS_CLOCK_HZ
from realtime.server.audio import OpusEncoder, OpusUnavailable
from realtime.server.bridge import EngineBridge, EngineError
from realtime.server.config import ServerConfig
from realtime.server.engine_process import EngineLink, EngineProcess
from realtime.server.keys import ApiKeys, read_api_keys
from realtime.server.metrics import Metrics
from realtime.server.sessions import Sessions
from realtime.server.voice_store import VoiceStore, encode_missing_voices, open_voice_store
from realtime.session.settings import DEFAULT_CONFIG, SessionConfig


@dataclasses.dataclass(slots=True)
class Services:
    """Shared by all connections and requests; only the last fields change.

    `startup_error` is set when `started` is, if the engine did not come up.
    """

    config: ServerConfig
    keys: ApiKeys
    bridge: EngineBridge
    prompt: RealtimePrompt
    voices: VoiceStore
    metrics: Metrics
    session_config: SessionConfig
    audio_pool: ThreadPoolExecutor
    sessions: Sessions
    started: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)
    startup_error: str = ""
    draining: bool = False

    async def start(self) -> None:
        """Wait for the engine and give every voice its codes."""
        try:
            await self.bridge.ready()
            await encode_missing_voices(self.voices, self.bridge)
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
    keys = read_api_keys(config)
    model_dir = hub.resolve(config.model)
    prompt = RealtimePrompt.from_checkpoint(model_dir)
    if link is None:
        link = EngineProcess(engine_settings(config, model_dir, prompt), config.stuck_after_s)
    bridge = EngineBridge(link)
    sessions = Sessions(max_detached=config.max_sessions)
    return Services(
        config=config,
        keys=keys,
        bridge=bridge,
        prompt=prompt,
        voices=open_voice_store(config, prompt.n_vq),
        metrics=Metrics(bridge, sessions),
        sessions=sessions,
        session_config=session_config(config),
        audio_pool=ThreadPoolExecutor(config.audio_threads, thread_name_prefix="audio"),
    )


def engine_settings(
    config: ServerConfig, model_dir: Path, prompt: RealtimePrompt
) -> dict[str, Any]:
    """Return the JSON configuration of `engine.host`."""
    if config.fake:
        from engine.fake import FAKE_MODEL, FakeScript

        model = dataclasses.replace(
            FAKE_MODEL, name=config.model_name, n_vq=prompt.n_vq, capacity_rows=config.max_rows
        )
        script = FakeScript(model=model, max_queued_rows=config.max_queued_rows)
        return {"fake": dataclasses.asdict(script)}
    return {
        "engine": {
            "model_dir": str(model_dir),
            "codec_dir": str(hub.resolve(config.codec)),
            "model_name": config.model_name,
            "device": config.device,
            "dtype": config.dtype,
            "threads": config.threads,
            "max_rows": config.max_rows,
            "max_queued_rows": config.max_queued_rows,
            "max_grid_rows": config.max_grid_rows,
            "deterministic": config.deterministic,
            "warm_up": config.warm_up,
        }
    }


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
