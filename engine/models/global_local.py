"""What MOSS-TTS-Local-Transformer and MOSS-TTS-Nano share: a backbone and a transformer per frame.

The backbone turns grid rows into hidden states. From one of them the local transformer decides
whether there is another frame, and draws its codes one after another. Output heads are the input
tables again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, embedding_bag, linear

from engine.models.depth import Choose, attend_so_far, embedding_table
from engine.models.gpt2 import GPT2Config, GPT2Stack
from engine.models.qwen3 import Attend, StackConfig

Decide = Callable[[Tensor], Tensor]
"""logits [N, 2] f32 of (continue, stop) -> bool [N], True where a frame follows."""


@dataclasses.dataclass(frozen=True, slots=True)
class GlobalLocalConfig:
    """`config.json` of either model."""

    n_vq: int
    codebook_size: int
    audio_pad: int  # the code that says "no sound here"; the one after the last real code
    text_vocabulary: int
    text_pad: int
    continue_id: int  # beside every frame; as a decision it means that a frame follows
    stop_id: int
    start_id: int  # the last of a prompt's text
    backbone: StackConfig | GPT2Config
    local: GPT2Config

    @classmethod
    def from_json(
        cls, config: dict[str, Any], backbone: StackConfig | GPT2Config, text_vocabulary: int
    ) -> GlobalLocalConfig:
        """Read what both models' files have; raises `ValueError` for what is not supported."""
        local = GPT2Config.from_json(
            config["gpt2_config"] | {"n_layer": config["local_transformer_layers"]}
        )
        if local.hidden_size != backbone.hidden_size:
            raise ValueError(
                f"gpt2_config.n_embd {local.hidden_size} must equal the backbone's "
                f"{backbone.hidden_size}: the model has no projection between them"
            )
        if not config.get("tie_word_embeddings", True):
            raise ValueError("tie_word_embeddings false is not supported: output heads are tied")
        return cls(
            n_vq=config["n_vq"],
            codebook_size=_codebook_size(config),
            audio_pad=_audio_pad(config),
            text_vocabulary=text_vocabulary,
            text_pad=config["pad_token_id"],
            continue_id=config.get(
                "audio_assistant_gen_slot_token_id", config["audio_assistant_slot_token_id"]
            ),
            stop_id=config["audio_end_token_id"],
            start_id=config["audio_start_token_id"],
            backbone=backbone,
            local=local,
        )

    @property
    def tied(self) -> frozenset[str]:
        """Names of tensors that a checkpoint may hold twice: the model reads the input tables."""
        heads = {f"audio_lm_heads.{codebook}.weight" for codebook in range(self.n_vq)}
        return frozenset(heads | {"text_lm_head.weight"})


class GlobalLocalModel(nn.Module):
    """Grid rows in, hidden states out; a hidden state in, the next frame out.

    A subclass owns the backbone, `text_embedding` and the stop logits. `decision_is_fed` says
    whether the decision takes a position of the local sequence, or code 0 is drawn at its own.
    """

    decision_is_fed: bool

    def __init__(self, config: GlobalLocalConfig) -> None:
        super().__init__()
        self.config = config
        self.local_transformer = GPT2Stack(config.local)
        self.audio_embeddings = nn.ModuleList(
            embedding_table(config.codebook_size, config.local.hidden_size)
            for _ in range(config.n_vq)
        )
        self.audio_table: Tensor | None = None
        self.audio_offsets: Tensor | None = None

    @property
    def text_embedding(self) -> nn.Embedding:
        """The table of text ids, [text_vocabulary, hidden_size]."""
        raise NotImplementedError

    def run_backbone(self, x: Tensor, rotation: Tensor, attend: Attend) -> Tensor:
        """Final-normed hidden states [N, hidden_size] of embedded rows."""
        raise NotImplementedError

    def stop_logits(self, y: Tensor) -> Tensor:
        """Logits [N, 2] of (continue, stop) from the first local hidden state."""
        raise NotImplementedError

    def backbone(self, grid: Tensor, rotation: Tensor, attend: Attend) -> Tensor:
        """Final-normed hidden states [N, hidden_size] of grid rows i64 [N, 1 + n_vq]."""
        return self.run_backbone(self.embed(grid), rotation, attend)

    def embed(self, grid: Tensor) -> Tensor:
        """Sum the embeddings of a grid's columns, `audio_pad` adding nothing.

        `grid` i64 [N, 1 + n_vq] -> [N, hidden_size]. Codes must be below the codebook size or
        `audio_pad`: whoever takes grids from outside checks that.
        """
        if self.audio_table is not None and self.audio_offsets is not None:
            audio = embedding_bag(grid[:, 1:] + self.audio_offsets, self.audio_table, mode="sum")
            return embedding(grid[:, 0], self.text_embedding.weight) + audio
        x = self.text_embedding(grid[:, 0])
        for table, codes in zip(self.audio_embeddings, grid[:, 1:].T, strict=True):
            is_pad = codes == self.config.audio_pad
            x = x + table(codes.masked_fill(is_pad, 0)).masked_fill(is_pad[:, None], 0)
        return x

    def depth(self, hidden: Tensor, decide: Decide, choose: Choose) -> tuple[Tensor, Tensor]:
        """Go through one frame after each hidden state [N, hidden_size].

        Returns whether there is one, bool [N], and its codes [N, n_vq] i64, which mean nothing
        where there is none: all rows of a batch take the same steps.
        """
        rows, config = hidden.shape[0], self.config.local
        positions = self.config.n_vq + self.decision_is_fed
        store = hidden.new_empty(
            config.layers, 2, rows, config.kv_heads, positions, config.head_dim
        )
        rotations = config.rotations(positions, like=hidden)

        def local(position: int, x: Tensor) -> Tensor:
            rotation = rotations[position : position + 1].expand(rows, -1, -1)
            return self.local_transformer(x, rotation, attend_so_far(store, position))

        y = local(0, hidden)
        speaks = decide(self.stop_logits(y).float())
        if self.decision_is_fed:
            ids = torch.where(speaks, self.config.continue_id, self.config.stop_id)
            y = local(1, self.text_embedding(ids))
        codes: list[Tensor] = []
        for codebook, table in enumerate(self.audio_embeddings):
            if codebook:
                before = self.audio_embeddings[codebook - 1]
                y = local(codebook + self.decision_is_fed, before(codes[-1]))
            codes.append(choose(codebook, linear(y, table.weight).float()))
        return speaks, torch.stack(codes, 1)

    def fuse(self) -> GlobalLocalModel:
        """Lay the audio tables side by side for serving; values and tensor names stay.

        Each is followed by a row of zeros, which is where `audio_pad` points.
        """
        tables, size = self.audio_embeddings, self.config.codebook_size
        joint = torch.cat([_with_pad_row(table.weight.detach()) for table in tables])
        for index, table in enumerate(tables):
            start = index * (size + 1)
            table.weight = nn.Parameter(joint[start : start + size], requires_grad=False)
        self.audio_table = joint
        self.audio_offsets = torch.arange(len(tables), device=joint.device) * (size + 1)
        return self


def _with_pad_row(table: Tensor) -> Tensor:
    return torch.cat([table, table.new_zeros(1, table.shape[1])])


def _codebook_size(config: dict[str, Any]) -> int:
    size: int = config["audio_vocab_size"]
    sizes: Iterable[int] = config.get("audio_codebook_sizes") or [size] * config["n_vq"]
    if list(sizes) != [size] * config["n_vq"]:
        raise ValueError(
            f"audio_codebook_sizes {list(sizes)} are not supported: all {config['n_vq']} must be "
            f"audio_vocab_size {size}"
        )
    return size


def _audio_pad(config: dict[str, Any]) -> int:
    pad: int = config.get("audio_pad_code", config["audio_pad_token_id"])
    if pad != config["audio_vocab_size"]:
        raise ValueError(
            f"the audio pad {pad} is not supported: it must follow the last code, "
            f"{config['audio_vocab_size'] - 1}"
        )
    return pad
