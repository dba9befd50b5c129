"""MOSS-TTS-Local-Transformer and MOSS-TTS-Nano with their codecs: golden frames, whole sound."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from engine import api
from engine.codec.codec import AudioCodec, load_codec
from engine.models.nano_prompt import NanoPrompt
from engine.models.variants import VARIANTS
from tests.engine.harness import PromptHarness
from tests.engine.models.global_local import DIRECTORIES, VECTORS, Family, family

CODECS = {
    "local": VECTORS / "codec" / "v2" / "tiny",
    "nano": VECTORS / "codec" / "nano" / "tiny",
}
STOPPING = {"local": ("plain_zh_lang", "clone_one_ref"), "nano": ("clone_en",)}
LASTING = {"local": "plain_en", "nano": "plain_en"}
CONTINUED = {"local": "cont_peer_join", "nano": "cont_en"}
REFERENCE = "codesA"  # what the prompts to be continued end with
FRAMES = 24  # of the golden replies, at most
CLOSE = {"atol": 2e-4, "rtol": 1e-4}  # as the codec's vectors


def engine_of(name: str, **changes) -> PromptHarness:
    return PromptHarness(DIRECTORIES[name] / "tiny", CODECS[name], **changes)


def whole(codec: AudioCodec, codes: np.ndarray) -> np.ndarray:
    """Sound [samples, channels] of codes [F, K], decoded at once."""
    sound = codec.decode(torch.from_numpy(codes.astype(np.int64)).T[:, None])
    return sound[0].T.numpy()


@pytest.fixture(scope="module", params=["local", "nano"])
def tiny(request) -> Family:
    return family(request.param)


@pytest.fixture(scope="module")
def codec(tiny) -> AudioCodec:
    return load_codec(CODECS[tiny.name])


@pytest.fixture(scope="module")
def shared(tiny) -> PromptHarness:
    return engine_of(tiny.name)


@pytest.fixture
def harness(shared):
    yield shared
    assert not any(shared.leftovers().values())


def test_what_it_says_of_itself(tiny, harness):
    info, variant = harness.engine.parts.info, VARIANTS[tiny.name]
    assert (info.variant, info.channels, info.samples_per_frame) == (tiny.name, 2, 96)
    assert (info.n_vq, info.codebook_size) == (
        tiny.model.config.n_vq,
        tiny.model.config.codebook_size,
    )
    assert (info.sampling_defaults, info.text_sampling_defaults) == (
        variant.sampling,
        variant.text_sampling,
    )


def test_replies_equal_the_golden_ones(tiny, harness):
    golden, cases = tiny.vectors("greedy"), STOPPING[tiny.name]
    rows = [harness.speak(tiny.prompt(case)) for case in cases]
    for case, log in zip(cases, harness.finish(*rows), strict=True):
        np.testing.assert_array_equal(log.codes, golden[f"{case}.frames"].numpy())
        assert log.pcm.shape == (96 * len(log.codes), 2)
        assert log.done.reason == "completed"


@pytest.mark.parametrize("ramp", [(1,), (1, 15), (3, 2), (7,)])
def test_sound_is_that_of_the_whole_reply_however_it_is_cut(tiny, codec, ramp):
    harness = engine_of(tiny.name, chunk_ramp_frames=ramp, deterministic=True)
    [log] = harness.finish(harness.speak(tiny.prompt(LASTING[tiny.name]), max_frames=FRAMES))
    assert len(log.codes) == FRAMES
    np.testing.assert_allclose(log.pcm, whole(codec, log.codes), **CLOSE)


@pytest.mark.parametrize(("name", "sizes"), [("local", [1, 15, 8]), ("nano", [1, 4, 15, 4])])
def test_chunks_have_the_sizes_that_suit_the_model(name, sizes):
    harness, tiny = engine_of(name, deterministic=True), family(name)
    [log] = harness.finish(harness.speak(tiny.prompt(LASTING[name]), max_frames=FRAMES))
    assert [len(event.codes) for event in log.of(api.Frames)] == sizes


def test_a_continuation_sounds_as_if_the_recording_had_gone_on(tiny, codec, harness):
    case, golden = CONTINUED[tiny.name], tiny.vectors("greedy")
    earlier = tiny.vectors("prompts")[REFERENCE].numpy().astype(np.uint16)
    prompt = tiny.prompt(case)
    np.testing.assert_array_equal(prompt[-len(earlier) :, 1:], earlier)
    [log] = harness.finish(harness.speak(prompt, decoder_codes=earlier, max_frames=FRAMES))
    np.testing.assert_array_equal(log.codes, golden[f"{case}.frames"].numpy())
    joined = whole(codec, np.concatenate([earlier, log.codes]))[96 * len(earlier) :]
    np.testing.assert_allclose(log.pcm, joined, **CLOSE)
    assert np.abs(log.pcm - whole(codec, log.codes)).max() > 0.1


@pytest.mark.slow
def test_a_batch_of_sixteen_speaks_as_if_each_were_alone(tiny):
    """Bit for bit: random numbers, penalty and codec state are the row's own."""
    prompts = [tiny.prompt(case) for case in (*STOPPING[tiny.name], LASTING[tiny.name])]
    requests = [
        {
            "grid": prompts[number % len(prompts)],
            "seed": 7 * number,
            "sampling": VARIANTS[tiny.name].sampling,
            "text_sampling": None,
            "max_frames": 8 + number % 5,
        }
        for number in range(16)
    ]
    harness = engine_of(
        tiny.name, deterministic=True, max_rows=16, max_queued_rows=16, codec_slots=16
    )
    batch = harness.finish(*[harness.speak(**request) for request in requests])
    assert len({log.codes.tobytes() for log in batch}) > 8
    for request, log in zip(requests, batch, strict=True):
        [alone] = harness.finish(harness.speak(**request))
        np.testing.assert_array_equal(alone.codes, log.codes)
        np.testing.assert_array_equal(alone.pcm, log.pcm)
    assert not any(harness.leftovers().values())


def test_seeds_differ(tiny, harness):
    sampling = VARIANTS[tiny.name].sampling
    rows = [
        harness.speak(tiny.prompt(LASTING[tiny.name]), seed=seed, sampling=sampling, max_frames=6)
        for seed in (1, 2)
    ]
    one, other = harness.finish(*rows)
    assert not np.array_equal(one.codes, other.codes)


@pytest.fixture(scope="module")
def nano():
    """It speaks with its first codebooks only, where asked to."""
    return engine_of("nano", deterministic=True)


def test_chunks_of_a_long_text_are_replies_of_their_own(nano):
    """At once or in turn: each draws, penalises and decodes from nothing; the reference is shared.

    The second reply of a prompt knows what the first has computed.
    """
    prompt = NanoPrompt.from_checkpoint(DIRECTORIES["nano"] / "tiny")
    reference = family("nano").vectors("prompts")[REFERENCE].numpy()
    text = "The rain has stopped at last. Shall we go out, now? It is late; we could wait a day."
    chunks = prompt.chunks(text, 20)
    assert len(chunks) > 2
    grids = [prompt.clone(chunk.text, reference) for chunk in chunks]
    how = {"sampling": VARIANTS["nano"].sampling, "text_sampling": None, "max_frames": 10}
    at_once = nano.finish(*[nano.speak(grid, seed=5, **how) for grid in grids])
    codec = load_codec(CODECS["nano"])
    for grid, log in zip(grids, at_once, strict=True):
        [in_turn] = nano.finish(nano.speak(grid, seed=5, **how))
        np.testing.assert_array_equal(in_turn.codes, log.codes)
        np.testing.assert_array_equal(in_turn.pcm, log.pcm)
        np.testing.assert_allclose(log.pcm, whole(codec, log.codes), **CLOSE)
        assert in_turn.done.counts.reused_grid_rows == (len(grid) - 1) // 16 * 16


def test_fewer_codebooks_in_frames_and_sound(nano):
    [log] = nano.finish(nano.speak(family("nano").prompt("clone_nq8"), n_vq=8, max_frames=FRAMES))
    golden = family("nano").vectors("greedy")["clone_nq8.frames"].numpy()
    np.testing.assert_array_equal(log.codes, golden[:, :8])
    codec = load_codec(CODECS["nano"])
    np.testing.assert_allclose(log.pcm, whole(codec, log.codes), **CLOSE)
    assert all(event.valid.all() for event in log.of(api.Frames))


def test_fewer_codebooks_beside_rows_that_have_all(nano):
    full = family("nano").prompt("plain_en")
    requests = [{"grid": family("nano").prompt("clone_nq8"), "n_vq": 8}, {"grid": full}]
    both = nano.finish(*[nano.speak(**r, max_frames=12) for r in requests])
    for request, log in zip(requests, both, strict=True):
        [alone] = nano.finish(nano.speak(**request, max_frames=12))
        np.testing.assert_array_equal(alone.codes, log.codes)
        np.testing.assert_array_equal(alone.pcm, log.pcm)
    assert not any(nano.leftovers().values())


def test_fewer_codebooks_of_a_recording_that_goes_on(nano):
    tiny = family("nano")
    grid = tiny.prompt("cont_en")
    grid[:, 9:] = tiny.model.config.audio_pad
    earlier = tiny.vectors("prompts")[REFERENCE].numpy()[:, :8].astype(np.uint16)
    [log] = nano.finish(nano.speak(grid, n_vq=8, decoder_codes=earlier, max_frames=6))
    joined = np.concatenate([earlier, log.codes])
    sound = whole(load_codec(CODECS["nano"]), joined)[96 * len(earlier) :]
    np.testing.assert_allclose(log.pcm, sound, **CLOSE)
