"""Philox4x32-10 against its published known answers, and the uniforms drawn from it."""

import pytest
import torch

from kernels.philox import philox4x32, uniform

KNOWN_ANSWERS = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000",
     "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff",
     "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0",
     "d16cfe09 94fdcceb 5001e420 24126ea1"),
]  # fmt: skip


def words(text):
    return torch.tensor([int(word, 16) for word in text.split()])


@pytest.mark.parametrize(("counter", "key", "block"), KNOWN_ANSWERS)
def test_published_known_answers(counter, key, block):
    assert philox4x32(words(counter), words(key)).tolist() == words(block).tolist()


def test_known_answers_in_one_batch():
    counters, keys, blocks = (
        torch.stack([words(text) for text in column]) for column in zip(*KNOWN_ANSWERS, strict=True)
    )
    assert torch.equal(philox4x32(counters.view(3, 1, 4), keys.view(3, 1, 2)).view(3, 4), blocks)


def test_uniform_is_the_block_of_seed_and_position():
    seed = torch.tensor(-2)  # the bits of 2**64 - 2
    block = philox4x32(torch.tensor([5, 3, 0, 0]), torch.tensor([0xFFFFFFFE, 0xFFFFFFFF]))
    drawn = uniform(seed, torch.tensor(5), torch.tensor(3))
    assert drawn.dtype == torch.float32
    assert drawn.item() == ((block[0].item() >> 9) + 0.5) / 2**23


def test_uniform_does_not_depend_on_the_shape_of_the_batch():
    seed = torch.tensor([11, -(2**63), 2**62 + 12345])
    frame = torch.tensor([0, 70_000, 3])
    codebook = torch.arange(16)
    batch = uniform(seed[:, None], frame[:, None], codebook)
    assert batch.shape == (3, 16)
    for i in range(3):
        for j in range(16):
            assert batch[i, j] == uniform(seed[i], frame[i], codebook[j])


def test_uniform_never_reaches_zero_or_one():
    smallest, largest = (
        ((torch.tensor(word) >> 9).to(torch.float32) + 0.5) * 2.0**-23 for word in (0, 2**32 - 1)
    )
    assert smallest > 0
    assert largest < 1


def test_uniform_is_flat_and_uncorrelated():
    drawn = uniform(torch.tensor(42), torch.arange(4096)[:, None], torch.arange(16))
    counts = torch.histc(drawn, bins=64, min=0, max=1)
    expected = drawn.numel() / 64
    chi_square = ((counts - expected) ** 2 / expected).sum().item()
    assert chi_square < 104  # 63 degrees of freedom, p = 0.001
    centred = drawn - 0.5
    bound = 4 / 12 / drawn.numel() ** 0.5
    assert (centred[1:] * centred[:-1]).mean().abs() < bound  # next frame
    assert (centred[:, 1:] * centred[:, :-1]).mean().abs() < bound  # next codebook
    other = uniform(torch.tensor(43), torch.arange(4096)[:, None], torch.arange(16)) - 0.5
    assert (centred * other).mean().abs() < bound  # next seed


def test_uniform_compiles_to_one_graph():
    compiled = torch.compile(uniform, fullgraph=True, backend="eager")
    arguments = torch.tensor([[1], [2]]), torch.tensor([[7], [9]]), torch.arange(8)
    assert torch.equal(compiled(*arguments), uniform(*arguments))
