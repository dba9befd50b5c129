"""A response goes on in another engine, after the frames that the first one had made."""

import dataclasses

import numpy as np
import pytest

from engine import api
from engine.codec import dispatch
from tests.engine.harness import N_VQ, SHIPPED, Harness

pytestmark = pytest.mark.slow

TEXT = "That sounds like a wonderful idea, and I would like to hear more of it."
PENALISED = api.Sampling(
    temperature=0.8, top_p=0.9, top_k=40, repetition_penalty=1.6, repetition_window=0
)


@pytest.fixture(scope="module", params=[False, True], ids=["tolerant", "deterministic"])
def engines(request):
    """The engine that dies, and the next one, which has none of its caches."""
    config = dataclasses.replace(SHIPPED, deterministic=request.param)
    return Harness(config), Harness(config)


def ids_of(harness, text=TEXT):
    return tuple(harness.prompt.tokenizer.encode(text))


def assert_same_sound(harness, pcm, expected):
    if harness.engine._config.deterministic:
        assert pcm.tobytes() == expected.tobytes()
    else:
        np.testing.assert_allclose(pcm, expected, rtol=0, atol=1e-4)


def codes_of(log):
    return np.concatenate([event.codes for event in log.of(api.Frames)])


def published(log, chunks):
    """The first chunks: what a server has when the engine dies after them."""
    sizes = tuple(len(event.codes) for event in log.of(api.Frames)[:chunks])
    return {"generated": log.codes[: sum(sizes)], "chunk_frames": sizes}


@pytest.mark.parametrize("chunks", [0, 1, 2, 3])
def test_the_rest_is_as_if_nothing_had_happened(engines, chunks):
    first, second = engines
    earlier = np.random.default_rng(8).integers(0, 1024, (21, N_VQ)).astype(np.uint16)
    asked = {"sampling": PENALISED, "seed": 11, "decoder_codes": earlier}
    [whole] = first.finish(first.open(TEXT, **asked))
    made = published(whole, chunks)
    first_frame = len(made["generated"])
    [rest] = second.finish(second.open(TEXT, **made, **asked))
    assert rest.of(api.Frames)[0].first_frame == first_frame
    np.testing.assert_array_equal(codes_of(rest), whole.codes[first_frame:])
    assert_same_sound(first, rest.pcm, whole.pcm[1920 * first_frame :])
    assert rest.of(api.Segment) == whole.of(api.Segment)
    assert not any(event.discontinuity for event in rest.of(api.Frames))
    assert not any(second.leftovers().values())


@pytest.mark.parametrize("engines", [False], indirect=True)
def test_what_was_drawn_before_counts_against_repetition(engines):
    """Negative control: without the first frames in the penalty history the rest is another.

    An engine with `deterministic` draws them again.
    """
    first, second = engines
    asked = {"sampling": PENALISED, "seed": 11}
    [whole] = first.finish(first.open(TEXT, **asked))
    runner = second.engine.parts.runner
    recall, runner.recall = runner.recall, lambda slot, codes: None
    row = second.open(TEXT, generated=whole.codes[:20], **asked)
    second.tick(3)
    runner.recall = recall
    [rest] = second.finish(row)
    codes = codes_of(rest)
    common = min(len(codes), len(whole.codes) - 20)
    assert not np.array_equal(codes[:common], whole.codes[20 : 20 + common])


def test_a_row_that_starved_starves_again_and_goes_on(engines):
    first, second = engines
    ids = ids_of(first)
    [whole] = first.finish(first.open(TEXT))
    row = second.open(generated=whole.codes[:3])
    second.send(api.Feed(row, ids[:14]))
    second.tick(10)
    assert [event.why for event in second.rows[row].of(api.Parked)] == ["text"]
    second.send(api.Feed(row, ids[14:]), api.End(row))
    [rest] = second.finish(row)
    codes = codes_of(rest)
    np.testing.assert_array_equal(codes, whole.codes[3:])


def test_it_goes_on_in_a_later_segment(engines):
    """Segments that are over are turns of the context; their ids are not fed again."""
    first, second = engines
    prompt = first.prompt
    prefix = prompt.next_prefix("training")
    spoken, speaking = ids_of(first, "Yes."), ids_of(first, TEXT)
    row = first.open(sampling=PENALISED)
    first.send(api.Feed(row, spoken), api.Flush(row, prefix))
    first.send(api.Feed(row, speaking), api.End(row))
    [whole] = first.finish(row)
    end = whole.of(api.Segment)[0].end_frame
    turn = prompt.assistant_turn(spoken, whole.codes[:end], "training")
    header = prompt.assistant_header(first=False, layout="training")
    grid = np.concatenate([first.context(), turn, header])
    ends = np.cumsum([len(event.codes) for event in whole.of(api.Frames)])
    chunks = int(np.searchsorted(ends, end)) + 1
    for more in (0, 1, 2):
        made = published(whole, chunks + more)
        frames = len(made["generated"])
        again = {"grid": grid, "segment_frame": end, "sampling": PENALISED, "seed": row}
        [rest] = second.finish(second.open(TEXT, **made, **again))
        np.testing.assert_array_equal(codes_of(rest), whole.codes[frames:])
        assert_same_sound(first, rest.pcm, whole.pcm[1920 * frames :])
        [segment] = rest.of(api.Segment)
        assert segment.end_frame == whole.of(api.Segment)[1].end_frame


def test_kept_frames_that_are_not_replayed_are_flagged(engines, monkeypatch):
    _, second = engines
    monkeypatch.setattr(dispatch, "REPLAY_FRAMES", 10)
    codes = np.random.default_rng(9).integers(0, 1024, (11, N_VQ)).astype(np.uint16)
    [rest] = second.finish(second.open(TEXT, generated=codes, max_frames=30))
    flags = [event.discontinuity for event in rest.of(api.Frames)]
    # With `deterministic` all of them are replayed, however many they are.
    is_cut = not second.engine._config.deterministic
    assert flags == [is_cut] + [False] * (len(flags) - 1)


@pytest.mark.parametrize(
    ("made", "segment_frame", "said"),
    [
        (np.zeros((2, N_VQ + 1), np.uint16), 0, f"[2, {N_VQ + 1}]"),
        (np.full((2, N_VQ), 1027, np.uint16), 0, "1027"),
        (np.zeros((2, N_VQ), np.uint16), 3, "segment_frame is 3"),
    ],
)
def test_frames_that_cannot_be_are_refused(harness, made, segment_frame, said):
    row = harness.open(TEXT, generated=made, segment_frame=segment_frame)
    harness.tick()
    [refused] = harness.rows[row].events
    assert refused.code == "bad_grid"
    assert said in refused.message
