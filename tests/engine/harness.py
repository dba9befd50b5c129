"""Drive a real engine tick by tick, and collect what each row was given."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import torch
from safetensors.torch import save_file

from engine import api
from engine.codec.codec import AudioCodec
from engine.codec.config import CodecConfig
from engine.config import EngineConfig
from engine.engine import Engine
from engine.hub import DEFAULT_CODEC_DIR, DEFAULT_MODEL_DIR, read_json
from engine.models.realtime_prompt import RealtimePrompt

SHIPPED = EngineConfig(
    model_dir=str(DEFAULT_MODEL_DIR),
    codec_dir=str(DEFAULT_CODEC_DIR),
    threads=1,
    max_rows=4,
    max_queued_rows=4,
    max_grid_rows=1024,
    cache_blocks=128,
    codec_slots=8,
    warm_up=False,
)
GREEDY = api.Sampling(temperature=0.0, repetition_penalty=1.1, repetition_window=50)
ALWAYS_BEST = api.Sampling(temperature=0.0, repetition_penalty=1.0, repetition_window=0)
N_VQ: int = read_json(DEFAULT_MODEL_DIR, "config.json")["rvq"]
NO_CODES = np.zeros((0, N_VQ), np.uint16)


@dataclasses.dataclass
class Log:
    """Everything that one row was told."""

    events: list[api.Event] = dataclasses.field(default_factory=list)

    def of(self, kind):
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def done(self):
        [done] = self.of(api.Done)
        assert self.events[-1] is done
        return done

    @property
    def codes(self):
        frames = self.of(api.Frames)
        starts = np.cumsum([0] + [len(event.codes) for event in frames[:-1]])
        assert [event.first_frame for event in frames] == starts.tolist()[: len(frames)]
        return np.concatenate([event.codes for event in frames])

    @property
    def pcm(self):
        return np.concatenate([event.pcm for event in self.of(api.Frames)])


class Harness:
    """An engine without a thread of its own."""

    def __init__(self, config: EngineConfig = SHIPPED, **changes) -> None:
        self.rows: dict[int, Log] = {}
        self.others: list[api.Event] = []
        self.engine = Engine(dataclasses.replace(config, **changes), self._take)
        self.prompt = RealtimePrompt.from_checkpoint(config.model_dir)
        self.next_row = 1

    def _take(self, event: api.Event) -> None:
        if hasattr(event, "row"):
            self.rows.setdefault(event.row, Log()).events.append(event)
        else:
            self.others.append(event)

    def context(self, voice=None):
        header = self.prompt.assistant_header(first=True, layout="training")
        return np.concatenate([self.prompt.system(voice), header])

    def open(self, text=None, grid=None, **changes) -> int:
        """Open a row; with `text`, feed all of it and end."""
        row, self.next_row = self.next_row, self.next_row + 1
        fields = {
            "row": row,
            "model": self.engine.parts.info.name,
            "grid": self.context() if grid is None else grid,
            "decoder_codes": NO_CODES,
            "generated": NO_CODES,
            "seed": row,
            "sampling": GREEDY,
            "lane": "live",
            "prebuffer_ms": 0,
            "max_ahead_ms": 10**7,
            "max_frames": 500,
        }
        self.engine.submit(api.Open(**{**fields, **changes}))
        if text is not None:
            self.send(api.Feed(row, tuple(self.prompt.tokenizer.encode(text))), api.End(row))
        return row

    def send(self, *commands: api.Command) -> None:
        for command in commands:
            self.engine.submit(command)

    def tick(self, times=1) -> None:
        for _ in range(times):
            self.engine.tick()

    def finish(self, *rows: int, most_ticks=3000) -> list[Log]:
        """Tick until these rows are done."""
        for _ in range(most_ticks):
            if all(row in self.rows and self._is_over(row) for row in rows):
                return [self.rows[row] for row in rows]
            self.engine.tick()
        raise AssertionError(f"rows {rows} did not end in {most_ticks} ticks")

    def _is_over(self, row: int) -> bool:
        return isinstance(self.rows[row].events[-1], api.Done | api.Refused)

    def leftovers(self) -> dict[str, int]:
        """What the engine still holds; all zero when nothing runs and nothing is pinned."""
        parts = self.engine.parts
        return {
            "rows": len(parts.scheduler.rows),
            "placed": len(parts.scheduler.placed),
            "taken_slots": parts.scheduler.max_rows - parts.scheduler.free,
            "block_references": parts.cache.pool.referenced,
            "codec_slots": parts.codec.used,
            "encode_streams": parts.encoder.open,
            "samplers": parts.runner.sampler.open_slots,
        }


class PromptHarness(Harness):
    """An engine of a model that takes whole prompts."""

    def __init__(self, model_dir, codec_dir, **changes) -> None:
        self.rows, self.others, self.next_row = {}, [], 1
        config = dataclasses.replace(
            SHIPPED, model_dir=str(model_dir), codec_dir=str(codec_dir), max_grid_rows=512
        )
        self.engine = Engine(dataclasses.replace(config, **changes), self._take)

    def speak(self, grid, **changes) -> int:
        """Open a row for a prompt; greedy unless said otherwise."""
        n_vq = changes.get("n_vq") or self.engine.parts.info.n_vq
        fields = {
            "sampling": ALWAYS_BEST,
            "text_sampling": api.TextSampling(temperature=0.0),
            "decoder_codes": np.zeros((0, n_vq), np.uint16),
            "generated": np.zeros((0, n_vq), np.uint16),
        }
        return self.open(grid=grid.astype(np.int32), **{**fields, **changes})


def write_random_codec(directory, *, n_codebooks=16, seed=0, shaped_like=DEFAULT_CODEC_DIR) -> str:
    """A codec checkpoint of the released format with random weights: small, 1024 codes a book."""
    config = read_json(shaped_like, "config.json")
    config["quantizer_kwargs"] |= {"num_quantizers": n_codebooks, "codebook_size": 1024}
    torch.manual_seed(seed)
    codec = AudioCodec(CodecConfig.from_json(config))
    for name, parameter in codec.named_parameters():
        is_gain = name.endswith("norm1.weight") or name.endswith("norm2.weight")
        torch.nn.init.normal_(parameter, mean=float(is_gain), std=0.05)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config))
    save_file(
        {k: v.contiguous() for k, v in codec.state_dict().items()}, directory / "model.safetensors"
    )
    return str(directory)
