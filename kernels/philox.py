"""Philox4x32-10: a random number is a pure function of a seed and a position.

Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
"""

from __future__ import annotations

import torch
from torch import Tensor

_ROUNDS = 10
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_U32 = 0xFFFFFFFF


def uniform(seed: Tensor, frame: Tensor, codebook: Tensor) -> Tensor:
    """Draw one number in (0, 1) for each (seed, frame, codebook).

    The arguments are i64 of any shapes that broadcast; `seed` holds the bits of a u64, the others
    are in 0..2**32-1. Returns f32 of the broadcast shape: the top 23 bits of the first word of the
    block with key `seed` and counter (frame, codebook, 0, 0), centred so that neither 0 nor 1
    occurs. Identical on every device. About 80 small tensor operations whatever the shape: draw
    all codebooks of a frame in one call.
    """
    seed, frame, codebook = torch.broadcast_tensors(seed, frame, codebook)
    key = torch.stack((seed & _U32, (seed >> 32) & _U32), dim=-1)
    zero = torch.zeros_like(frame)
    counter = torch.stack((frame, codebook, zero, zero), dim=-1)
    word = philox4x32(counter, key)[..., 0]
    return ((word >> 9).to(torch.float32) + 0.5) * 2.0**-23


def philox4x32(counter: Tensor, key: Tensor) -> Tensor:
    """Return the random block, i64 [..., 4], of counter i64 [..., 4] and key i64 [..., 2].

    Every i64 holds one unsigned 32-bit word.
    """
    pair = torch.arange(2, device=counter.device)
    rounds = torch.arange(_ROUNDS, device=counter.device)[:, None]
    multipliers = _select(_MULTIPLIERS, pair)
    round_keys = (key[..., None, :] + rounds * _select(_KEY_STEPS, pair)) & _U32
    even, odd = counter[..., 0::2], counter[..., 1::2]
    for round_key in round_keys.unbind(-2):
        # i64 products wrap modulo 2**64 on every device; the masks drop the sign.
        product = (even * multipliers).flip(-1)
        even = ((product >> 32) & _U32) ^ odd ^ round_key
        odd = product & _U32
    return torch.stack((even, odd), dim=-1).flatten(-2)


def _select(constants: tuple[int, int], pair: Tensor) -> Tensor:
    # A constant computed on the device: torch.tensor would wait for a copy from the host.
    return constants[0] + pair * (constants[1] - constants[0])
