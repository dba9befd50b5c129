"""The quantizer in training: what it keeps, how it starts, what becomes of unused codes."""

from __future__ import annotations

import pytest
import torch

from engine.codec.quantizer import Quantizer
from engine.train.codec.quantizing import initialise, nearest, quantize, revive
from engine.train.codec.shape import new_codec
from tests.engine.train.codec.small import BOOKS, SIZE, small_config

ALL = torch.full((3,), BOOKS)


@pytest.fixture
def quantizer() -> Quantizer:
    torch.manual_seed(0)
    return new_codec(small_config()).quantizer


@pytest.fixture
def latents() -> torch.Tensor:
    return torch.randn(3, 40, 256, generator=torch.Generator().manual_seed(1))


def test_it_gives_the_codes_that_serve_and_what_they_stand_for(quantizer, latents) -> None:
    made = quantize(quantizer, latents, ALL)
    with torch.no_grad():
        quantizer.prepare()
        served = quantizer.encode(latents, BOOKS)
        assert torch.equal(made.codes, served.permute(2, 0, 1))
        torch.testing.assert_close(made.latents, quantizer.decode(served))


def test_a_stream_of_few_codes_is_what_those_codes_say(quantizer, latents) -> None:
    keep = torch.tensor([1, 2, BOOKS])
    made = quantize(quantizer, latents, keep)
    with torch.no_grad():
        quantizer.prepare()
        codes = made.codes.permute(1, 2, 0)
        for stream, count in enumerate(keep.tolist()):
            wanted = quantizer.decode(codes[stream : stream + 1, :, :count])
            torch.testing.assert_close(made.latents[stream : stream + 1], wanted)
    full = quantize(quantizer, latents, ALL)
    assert not torch.allclose(made.latents[0], full.latents[0])


def test_the_encoder_learns_through_the_codes_that_are_kept(quantizer, latents) -> None:
    latents.requires_grad_(True)
    made = quantize(quantizer, latents, torch.tensor([0, 1, BOOKS]))
    made.latents.square().sum().backward()
    reached = latents.grad.flatten(1).norm(dim=1)
    assert reached[0] == 0
    assert (reached[1:] > 0).all()


def test_the_loss_draws_entries_and_outputs_to_each_other(quantizer, latents) -> None:
    first = quantize(quantizer, latents, ALL).loss
    first.backward()
    books = [book.codebook.weight for book in quantizer.quantizers]
    assert all(book.grad.norm() > 0 for book in books)
    with torch.no_grad():
        for book in books:
            book -= 0.1 * book.grad
    assert quantize(quantizer, latents, ALL).loss < first


def test_it_starts_with_entries_from_the_data_and_a_way_back(quantizer, latents) -> None:
    def error() -> float:
        with torch.no_grad():
            wanted = quantizer.input_proj(latents)
            made = sum(quantize(quantizer, latents, ALL).entries)
            return float((wanted - made).square().mean() / wanted.square().mean())

    before = error()
    initialise(quantizer, latents)
    assert error() < min(1, before)
    book = quantizer.quantizers[0]
    with torch.no_grad():
        outputs = book.in_proj(quantizer.input_proj(latents)).flatten(0, 1)
    gaps = (book.codebook.weight[:, None] - outputs).abs().amax(-1)
    assert gaps.min(1).values.max() == 0


def test_a_code_that_is_hardly_used_becomes_an_output_of_the_encoder(quantizer, latents) -> None:
    before = [book.codebook.weight.detach().clone() for book in quantizer.quantizers]
    uses = torch.full((BOOKS, SIZE), 2)
    uses[0, 3], uses[0, 5], uses[2, 7] = 0, 1, 0
    assert revive(quantizer, latents, uses) == 3
    for index, book in enumerate(quantizer.quantizers):
        changed = (book.codebook.weight != before[index]).any(1).nonzero().flatten().tolist()
        assert changed == {0: [3, 5], 2: [7]}.get(index, [])
    book = quantizer.quantizers[0]
    with torch.no_grad():
        found = nearest(book, book.in_proj(quantizer.input_proj(latents)))
    assert {3, 5} <= set(found.flatten().tolist())
