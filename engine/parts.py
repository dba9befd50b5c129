"""Load what an engine is made of, from its settings."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import torch

from engine.api import ModelInfo
from engine.cache.blocks import BlockPool
from engine.cache.kv import KVCache
from engine.checkpoint import CheckpointError
from engine.codec.codec import AudioCodec, load_codec
from engine.codec.config import CodecConfig
from engine.codec.dispatch import CodecStage
from engine.codec.reference import EncodeStage
from engine.codec.stream import DecoderStream, EncoderStream
from engine.config import EngineConfig
from engine.models.families import load_model
from engine.models.interface import Layout, Loaded, Runner
from engine.models.variants import Variant
from engine.scheduler import Scheduler
from engine.warm import WarmQueue


@dataclasses.dataclass(frozen=True, slots=True)
class Parts:
    """Everything that the loop drives."""

    info: ModelInfo
    layout: Layout
    runner: Runner
    cache: KVCache
    warm: WarmQueue
    codec: CodecStage
    encoder: EncodeStage
    scheduler: Scheduler


class Codecs:
    """The codecs in memory: models that speak through the same one share its weights."""

    def __init__(self) -> None:
        self._loaded: dict[tuple[Path, torch.device], AudioCodec] = {}

    def load(self, directory: Path, device: torch.device) -> AudioCodec:
        """The codec of a checkpoint directory, loaded once. Raises `CheckpointError`."""
        key = (directory.resolve(), device)
        if key not in self._loaded:
            self._loaded[key] = load_codec(directory, device=device)
        return self._loaded[key]


def load_parts(config: EngineConfig, codecs: Codecs) -> Parts:
    """Load model and codec; raises `CheckpointError` when they do not fit each other or us."""
    device = torch.device(_device(config.device))
    # Several threads share out a product's rows, and how they do depends on the batch.
    _limit_threads(1 if config.deterministic else config.threads)
    dtype = _dtype(config.dtype, device)
    model = load_model(Path(config.model_dir), device=device, dtype=dtype, variant=config.variant)
    codec = codecs.load(Path(config.codec_dir), device)
    info = _model_info(config, model, codec.config)
    warm_slot = config.max_rows + 1
    runner = model.new_runner(warm_slot + 1, info.max_grid_rows, config.deterministic)
    pool = BlockPool(
        model.backbone, config.cache_blocks, runner.dtype, device, config.host_cache_blocks
    )
    cache = KVCache(runner.working, pool)
    return Parts(
        info=info,
        layout=model.layout,
        runner=runner,
        cache=cache,
        warm=WarmQueue(runner, cache, warm_slot),
        codec=_codec_stage(config, codec, info, model.variant),
        encoder=_encode_stage(config, codec, info),
        scheduler=Scheduler(config.max_rows, config.max_queued_rows),
    )


def _model_info(config: EngineConfig, model: Loaded, codec: CodecConfig) -> ModelInfo:
    if codec.n_codebooks < model.n_vq:
        raise CheckpointError(
            f"the model speaks {model.n_vq} codebooks, the codec in {config.codec_dir} has only "
            f"{codec.n_codebooks}"
        )
    if codec.codebook_size < model.codebook_size:
        raise CheckpointError(
            f"the model speaks codes 0..{model.codebook_size - 1}, the codec in "
            f"{config.codec_dir} has only 0..{codec.codebook_size - 1}"
        )
    limits = (config.max_grid_rows or model.variant.max_grid_rows, model.backbone.max_positions)
    return ModelInfo(
        name=config.model_name,
        rate_hz=codec.sample_rate,
        channels=codec.channels,
        samples_per_frame=codec.samples_per_frame,
        n_vq=model.n_vq,
        codebook_size=model.codebook_size,
        max_grid_rows=min(limit for limit in limits if limit),
        capacity_rows=config.max_rows,
        sampling_defaults=model.sampling_defaults,
        text_sampling_defaults=model.variant.text_sampling,
        variant=model.variant.name,
    )


def _encode_stage(config: EngineConfig, codec: AudioCodec, info: ModelInfo) -> EncodeStage:
    return EncodeStage(
        EncoderStream(codec, config.encode_slots, n_codebooks=info.n_vq),
        config.encode_slots,
        samples_per_frame=info.samples_per_frame,
        n_vq=info.n_vq,
        deterministic=config.deterministic,
    )


def _codec_stage(
    config: EngineConfig, codec: AudioCodec, info: ModelInfo, variant: Variant
) -> CodecStage:
    slots = max(config.codec_slots, config.max_rows)
    ramp_frames = config.chunk_ramp_frames or variant.chunk_ramp_frames
    stream = DecoderStream(
        codec,
        slots,
        max_chunk_frames=max(ramp_frames),
        rollback_frames=variant.rollback_frames,
        n_codebooks=info.n_vq,
        semantics=config.codec_semantics,
    )
    return CodecStage(
        stream,
        slots,
        codebook_size=info.codebook_size,
        rate_hz=info.rate_hz,
        ramp_frames=ramp_frames,
        deterministic=config.deterministic,
    )


def _device(name: str) -> str:
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return name


def _dtype(name: str, device: torch.device) -> torch.dtype:
    if name == "auto":
        # Many CPUs multiply bfloat16 far slower than float32.
        name = "bfloat16" if device.type == "cuda" else "float32"
    dtype: torch.dtype = getattr(torch, name)
    return dtype


def _limit_threads(threads: int) -> None:
    """Leave a core to the server: waiting workers would take it from the event loop."""
    torch.set_num_threads(threads or max(1, (os.cpu_count() or 2) - 1))
