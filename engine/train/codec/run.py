"""Train the codec for so many minutes, from nothing or from an earlier one."""

from __future__ import annotations

import dataclasses
import logging
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from engine.codec.attention import WholeSequence
from engine.codec.codec import AudioCodec
from engine.train.codec.crops import Crops, CropSource
from engine.train.codec.losses import Spectral
from engine.train.codec.phonemes import CodeReader, Listener
from engine.train.codec.quantizing import initialise, quantize, revive
from engine.train.codec.shape import codec_json, continued_codec, new_codec, save_codec
from engine.train.corpus.teacher import LABEL_SAMPLES
from engine.train.journal import Journal
from engine.train.memory import keep_freed_memory
from engine.train.optimizers import Optimizers, fastest_dtype

log = logging.getLogger(__name__)

LABELS_PER_FRAME = 4  # that a frame's codes must tell, one each 20 ms
READ_BOOKS = 2  # the first code, and the first two together, must say which phonemes
MAX_NORM = 5.0
REVIVE_EVERY_STEPS = 250
REVIVE_UNTIL = 0.75
UNQUANTIZED_UNTIL = 0.1  # of a run from nothing: first learn to see and to speak at all


@dataclasses.dataclass(frozen=True, slots=True)
class CodecRecipe:
    """What a run is; the defaults made the shipped codec."""

    codebooks: int = 4
    codebook_size: int = 1024
    kept: tuple[tuple[int, float], ...] = ((1, 0.15), (2, 0.25), (3, 0.15), (4, 0.45))
    fixed_from: float = 0.55  # of the work: codes stay what they are, only the decoder learns on
    crops: int = 8
    crop_frames: int = 30  # a multiple of 5, which is 32 labels of the teacher
    rate: float = 1e-3
    decay_from: float = 0.45
    read_weight: float = 0.3
    hear_weight: float = 0.15
    seed: int = 0


class CodecTraining:
    """The codec, its helpers that are dropped afterwards, and one step over all of them."""

    def __init__(self, recipe: CodecRecipe, codec: AudioCodec, fresh: bool) -> None:
        self.recipe, self.codec, self._fresh = recipe, codec, fresh
        config = codec.config
        self._spectral = Spectral(config.sample_rate)
        self.readers = nn.ModuleList(
            CodeReader(config.rvq_dim, LABELS_PER_FRAME) for _ in range(READ_BOOKS)
        )
        self.listener = Listener(config.sample_rate)
        self._uses = torch.zeros(recipe.codebooks, recipe.codebook_size, dtype=torch.int64)
        coding = nn.ModuleList([codec.encoder, codec.quantizer, self.readers])
        self._coding, self._decoding = (
            Optimizers(*_split(part, stack), recipe.rate, recipe.decay_from)
            for part, stack in ((coding, codec.encoder), (codec.decoder, codec.decoder))
        )
        self._listening = torch.optim.AdamW(self.listener.parameters(), lr=1e-3)

    def step(self, crops: Crops, step: int, share: float, dtype: torch.dtype) -> dict[str, float]:
        """One update of everything that still learns; returns the losses."""
        if share < self.recipe.fixed_from:
            return self._learn_both(crops, step, share, dtype)
        return self._learn_to_decode(crops, share, dtype)

    def _learn_to_decode(self, crops: Crops, share: float, dtype: torch.dtype) -> dict[str, float]:
        with torch.no_grad():
            latents = self._encode(crops.sound, dtype)
            keep = torch.full((len(latents),), self.recipe.codebooks)
            decoded_from = quantize(self.codec.quantizer, latents, keep).latents
        loss, figures = self._judged(self._decode(decoded_from, dtype), crops)
        loss.backward()
        norm = self._decoding.step(share, MAX_NORM)
        figures["heard"] = self._teach_listener(crops)
        return {name: float(value.detach()) for name, value in figures.items()} | {"norm": norm}

    def _learn_both(
        self, crops: Crops, step: int, share: float, dtype: torch.dtype
    ) -> dict[str, float]:
        draws = np.random.default_rng((self.recipe.seed, step, 1))
        books, odds = zip(*self.recipe.kept, strict=True)
        keep = torch.from_numpy(draws.choice(books, size=len(crops.sound), p=odds))
        figures = {}
        latents = self._encode(crops.sound, dtype)
        if self._fresh and share < UNQUANTIZED_UNTIL:
            quantizer = self.codec.quantizer
            decoded_from = quantizer.output_proj(quantizer.input_proj(latents))
            loss = latents.new_zeros(())
        else:
            labels = self._frame_labels(crops)
            if self._fresh:
                initialise(self.codec.quantizer, latents.detach())
                self._fresh = False
            quantized = quantize(self.codec.quantizer, latents, keep)
            decoded_from, loss = quantized.latents, quantized.loss
            figures["commit"] = quantized.loss
            for book, reader in enumerate(self.readers):
                read = reader(sum(quantized.entries[: book + 1]), labels)
                loss = loss + self.recipe.read_weight * read
                figures[f"read{book + 1}"] = read
            self._count(quantized.codes, latents.detach(), step, share)
        far, how_far = self._judged(self._decode(decoded_from, dtype), crops)
        (loss + far).backward()
        norm = self._coding.step(share / self.recipe.fixed_from, MAX_NORM)
        self._decoding.step(share, MAX_NORM)
        figures |= how_far | {"heard": self._teach_listener(crops)}
        return {name: float(value.detach()) for name, value in figures.items()} | {"norm": norm}

    def _judged(self, made: Tensor, crops: Crops) -> tuple[Tensor, dict[str, Tensor]]:
        wanted = crops.sound[:, 0]
        spectral = self._spectral(made, wanted)
        unclear, distance = self.listener.judges(made, wanted, crops.labels)
        loss = spectral + self.recipe.hear_weight * (unclear + distance)
        return loss, {"spectral": spectral, "unclear": unclear, "distance": distance}

    def _encode(self, sound: Tensor, dtype: torch.dtype) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
            stack = self.codec.encoder
            return stack(self.codec.interleave(sound), self._attentions(stack, sound)).float()

    def _decode(self, latents: Tensor, dtype: torch.dtype) -> Tensor:
        frames = latents.shape[1] * self.codec.config.samples_per_frame
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
            stack = self.codec.decoder
            stream = stack(latents, self._attentions(stack, latents.new_empty(1, 1, frames)))
        return stream.float()[..., 0]

    def _frame_labels(self, crops: Crops) -> Tensor:
        """The phonemes in the middle of each quarter of each frame, i64 [B, 4 F]."""
        quarter = self.codec.config.samples_per_frame // LABELS_PER_FRAME
        middles = torch.arange(quarter // 2, crops.sound.shape[-1], quarter)
        return crops.labels[:, middles // LABEL_SAMPLES]

    def _attentions(self, stack: Any, sound: Tensor) -> list[WholeSequence]:
        frames = sound.shape[-1] // self.codec.config.samples_per_frame
        return [
            WholeSequence(config, frames * config.tokens_per_frame, sound.device)
            for config in stack.transformers
        ]

    def _teach_listener(self, crops: Crops) -> Tensor:
        self._listening.zero_grad(set_to_none=True)  # of what it said about decoded sound
        heard = self.listener.hears(crops.sound[:, 0], crops.labels)
        heard.backward()
        self._listening.step()
        self._listening.zero_grad(set_to_none=True)
        return heard

    def _count(self, codes: Tensor, latents: Tensor, step: int, share: float) -> None:
        for uses, used in zip(self._uses, codes, strict=True):
            uses += torch.bincount(used.flatten(), minlength=len(uses))
        if step % REVIVE_EVERY_STEPS == REVIVE_EVERY_STEPS - 1:
            if share < REVIVE_UNTIL:
                log.info("%d dead codes", revive(self.codec.quantizer, latents, self._uses))
            self._uses.zero_()

    def state_dict(self) -> dict[str, Any]:
        """Everything that a killed run needs to go on."""
        return {
            "codec": self.codec.state_dict(),
            "readers": self.readers.state_dict(),
            "listener": self.listener.state_dict(),
            "coding": self._coding.state_dict(),
            "decoding": self._decoding.state_dict(),
            "listening": self._listening.state_dict(),
            "fresh": self._fresh,
        }

    def forget_gradients(self) -> None:
        """Clear what a trial left."""
        self._coding.forget_gradients()
        self._decoding.forget_gradients()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state_dict`."""
        self.codec.load_state_dict(state["codec"])
        self.readers.load_state_dict(state["readers"])
        self.listener.load_state_dict(state["listener"])
        self._coding.load_state_dict(state["coding"])
        self._decoding.load_state_dict(state["decoding"])
        self._listening.load_state_dict(state["listening"])
        self._fresh = state["fresh"]


def _split(part: nn.Module, stack: nn.Module) -> tuple[list[Tensor], list[Tensor]]:
    """The hidden matrices of `stack`, and all other weights of `part`."""
    matrices = [weight for weight in stack.parameters() if weight.ndim == 2]
    hidden = {id(weight) for weight in matrices}
    return matrices, [weight for weight in part.parameters() if id(weight) not in hidden]


def train_codec(
    corpus: Path, directory: Path, minutes: float, recipe: CodecRecipe, start: Path | None
) -> None:
    """Train for `minutes` in all and write `directory/codec`; goes on where a run was killed.

    `start` is the checkpoint of a codec to continue, or None to begin from nothing.
    """
    torch.manual_seed(recipe.seed)
    keep_freed_memory()
    journal = Journal(directory, "codec")
    config = codec_json(recipe.codebooks, recipe.codebook_size)
    codec = continued_codec(start, config) if start else new_codec(config)
    training = CodecTraining(recipe, codec, fresh=start is None)
    samples = recipe.crop_frames * codec.config.samples_per_frame
    source = CropSource(corpus, samples, recipe.seed)
    step, spent_s = 0, 0.0
    if saved := journal.state():
        training.load_state_dict(saved["training"])
        step, spent_s = saved["step"], saved["spent_s"]
        journal.resume_at(spent_s / (minutes * 60))
    probe = source.draw(0, recipe.crops)
    dtype = fastest_dtype(lambda dtype: training._encode(probe.sound, dtype).sum().backward())
    training.forget_gradients()
    log.info("computing in %s", dtype)
    means: dict[str, float] = {}
    began_s = time.monotonic() - spent_s
    while (spent_s := time.monotonic() - began_s) < minutes * 60:
        share = spent_s / (minutes * 60)
        figures = training.step(source.draw(step, recipe.crops), step, share, dtype)
        for name, value in figures.items():
            means[name] = 0.97 * means.get(name, value) + 0.03 * value
        step += 1
        rate = step * recipe.crops * samples / codec.config.sample_rate / spent_s if spent_s else 0
        journal.progress(share, steps=step, times_real_time=rate, **means)
        if journal.save_due():
            journal.save({"training": training.state_dict(), "step": step, "spent_s": spent_s})
            save_codec(codec, config, directory / "codec")
    journal.progress(1.0, steps=step, **means)
    journal.save({"training": training.state_dict(), "step": step, "spent_s": spent_s})
    save_codec(codec, config, directory / "codec")
    journal.plot()
