"""What is left of speech after the codec: sound to codes, the first of them back to sound."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.codec.codec import AudioCodec
from engine.train.evaluation.speech import Said, at_rate


def encode(codec: AudioCodec, said: Said, codebooks: int | None = None) -> NDArray[np.uint16]:
    """Return the codes of a sound, u16 [frames, codebooks]; its end is filled to a whole frame."""
    codes, _ = codec.encode(_clip(codec, said), n_codebooks=codebooks)
    return codes[:, 0].T.cpu().numpy().astype(np.uint16)


def resynthesised(
    codec: AudioCodec, said: Sequence[Said], codebooks: Sequence[int]
) -> dict[int, list[Said]]:
    """Return what the first K codebooks keep of each sound, for each K of `codebooks`."""
    kept: dict[int, list[Said]] = {count: [] for count in codebooks}
    for one in said:
        codes, _ = codec.encode(_clip(codec, one))
        for count in codebooks:
            sound = codec.decode(codes[:count])[0].mean(0).cpu().numpy()
            kept[count].append(Said(one.line, sound, codec.config.sample_rate))
    return kept


def _clip(codec: AudioCodec, said: Said) -> Tensor:
    """The sound as the codec takes it, [1, channels, whole frames]."""
    mono = torch.from_numpy(at_rate(said, codec.config.sample_rate).astype(np.float32))
    filled = torch.nn.functional.pad(mono, (0, -len(mono) % codec.config.samples_per_frame))
    return filled.expand(1, codec.config.channels, -1)
