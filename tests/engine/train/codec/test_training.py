"""Steps of the codec's training, its checkpoints, and runs that are killed."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from engine.codec.codec import AudioCodec, load_codec
from engine.train.codec.crops import CropSource
from engine.train.codec.run import CodecTraining
from engine.train.codec.shape import continued_codec, new_codec, save_codec
from tests.engine.train.codec.small import BOOKS, RECIPE, noise, small_config, write_corpus

EARLY, LATE = 0.2, 0.6  # before and after the codes are fixed


def training(fresh: bool = False) -> CodecTraining:
    torch.manual_seed(0)
    return CodecTraining(RECIPE, new_codec(small_config()), fresh)


def steps(it: CodecTraining, numbers: range, share: float) -> list[dict[str, float]]:
    return [it.step(noise(number), number, share, torch.float32) for number in numbers]


def copied(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in module.state_dict().items()}


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one.keys() | other.keys())


@pytest.mark.parametrize(("fresh", "share"), [(True, 0.0), (True, EARLY), (False, LATE)])
def test_losses_are_finite_and_the_decoder_learns(fresh: bool, share: float) -> None:
    it = training(fresh)
    before = copied(it.codec.decoder)
    [figures] = steps(it, range(1), share)
    assert all(np.isfinite(value) for value in figures.values()), figures
    assert {"spectral", "unclear", "distance", "heard", "norm"} <= figures.keys()
    assert ("commit" in figures) == (share == EARLY)
    assert not same(before, copied(it.codec.decoder))


def test_from_a_share_on_the_codes_stay_what_they_are(tmp_path: Path) -> None:
    it = training()
    sound = noise(9).sound

    def codes() -> torch.Tensor:
        save_codec(it.codec, small_config(), tmp_path / "codec")
        return load_codec(tmp_path / "codec").encode(sound)[0]

    steps(it, range(2), EARLY)
    encoder, quantizer, decoder = map(
        copied, (it.codec.encoder, it.codec.quantizer, it.codec.decoder)
    )
    before = codes()
    steps(it, range(2, 4), LATE)
    assert torch.equal(codes(), before)
    assert same(encoder, copied(it.codec.encoder))
    assert same(quantizer, copied(it.codec.quantizer))
    assert not same(decoder, copied(it.codec.decoder))


def test_before_it_everything_learns() -> None:
    it = training()
    parts = (it.codec.encoder, it.codec.quantizer, it.codec.decoder, it.readers, it.listener)
    before = [copied(part) for part in parts]
    steps(it, range(1), EARLY)
    assert [same(old, copied(part)) for old, part in zip(before, parts, strict=True)] == [False] * 5


def test_it_learns_what_it_hears_again_and_again() -> None:
    it = training()
    crops = noise(3)
    losses = [it.step(crops, number, EARLY, torch.float32) for number in range(25)]
    for name in ("spectral", "read1", "heard"):
        assert losses[-1][name] < losses[0][name], name


def test_a_run_that_goes_on_equals_one_that_was_never_stopped(tmp_path: Path) -> None:
    whole = training(fresh=True)
    steps(whole, range(2), EARLY)
    torch.save(whole.state_dict(), tmp_path / "state.pt")
    resumed = training(fresh=True)
    resumed.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    for share, numbers in ((EARLY, range(2, 4)), (LATE, range(4, 6))):
        assert steps(whole, numbers, share) == steps(resumed, numbers, share)
    assert same(copied(whole.codec), copied(resumed.codec))


def trained_codec() -> AudioCodec:
    it = training()
    steps(it, range(1), EARLY)
    return it.codec


def test_a_saved_codec_serves_and_can_be_continued(tmp_path: Path) -> None:
    codec = trained_codec()
    save_codec(codec, small_config(), tmp_path / "codec")
    assert sorted(path.name for path in (tmp_path / "codec").iterdir()) == [
        "config.json",
        "model.safetensors",
    ]
    continued = continued_codec(tmp_path / "codec", small_config())
    served = load_codec(tmp_path / "codec")
    assert same(copied(continued), copied(served))
    assert all(parameter.requires_grad for parameter in continued.parameters())
    for name, value in codec.state_dict().items():  # but for what bfloat16 rounds
        torch.testing.assert_close(continued.state_dict()[name], value, rtol=2e-2, atol=1e-4)


def test_a_codec_can_be_continued_with_fewer_codebooks(tmp_path: Path) -> None:
    save_codec(trained_codec(), small_config(), tmp_path / "codec")
    config = small_config()
    config["quantizer_kwargs"] = config["quantizer_kwargs"] | {"num_quantizers": 2}
    fewer, all_of_it = continued_codec(tmp_path / "codec", config), load_codec(tmp_path / "codec")
    sound = noise(5).sound
    with torch.no_grad():
        fewer.quantizer.prepare()
    assert torch.equal(fewer.encode(sound)[0], all_of_it.encode(sound)[0][:2])
    assert all_of_it.config.n_codebooks == BOOKS > 2


def test_a_draw_of_crops_has_its_number(tmp_path: Path) -> None:
    write_corpus(tmp_path / "corpus")
    source, other = (CropSource(tmp_path / "corpus", 9600, seed=3) for _ in range(2))
    one, two = source.draw(7, 4), source.draw(8, 4)
    assert torch.equal(one.sound, other.draw(7, 4).sound)
    assert not torch.equal(one.sound, two.sound)
    assert one.sound.shape == (4, 1, 9600)
    assert one.labels.shape == (4, 32)


def test_a_corpus_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no complete shard: build the corpus first"):
        CropSource(tmp_path, 9600, seed=0)


def test_the_recipe_fits_itself() -> None:
    assert max(books for books, _ in RECIPE.kept) == RECIPE.codebooks == BOOKS
    assert sum(share for _, share in RECIPE.kept) == pytest.approx(1)
    assert dataclasses.replace(RECIPE).crop_frames % 5 == 0
