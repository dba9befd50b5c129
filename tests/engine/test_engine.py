"""Rows through their whole life, on the shipped voice."""

import numpy as np
import pytest
import torch

from engine import api
from tests.engine.harness import GREEDY, N_VQ, Harness

pytestmark = pytest.mark.slow

TEXT = "That sounds like a wonderful idea, and I would like to hear more of it."
DRAWN = api.Sampling(temperature=0.8, top_p=0.9, top_k=40)


def ids_of(harness, text=TEXT):
    return tuple(harness.prompt.tokenizer.encode(text))


def test_one_done_after_everything_else(harness):
    [log] = harness.finish(harness.open(TEXT))
    kinds = [type(event).__name__ for event in log.events]
    assert kinds == [*["Frames"] * (len(kinds) - 2), "Segment", "Done"]
    [segment] = log.of(api.Segment)
    assert segment.end_frame == len(log.codes) == log.done.counts.frames
    assert log.pcm.shape == (1920 * len(log.codes), 1)
    assert segment.text_ids_consumed == log.done.counts.text_ids


def test_chunks_ramp_up(harness):
    [log] = harness.finish(harness.open(TEXT, max_ahead_ms=10**7))
    sizes = [len(event.codes) for event in log.of(api.Frames)]
    assert sizes[0] == 1
    assert max(sizes) <= 15


@pytest.mark.parametrize("piece", [1, 5])
def test_text_in_pieces_gives_the_same_speech(harness, piece):
    [whole] = harness.finish(harness.open(TEXT))
    row = harness.open()
    ids = ids_of(harness)
    for start in range(0, len(ids), piece):
        harness.send(api.Feed(row, ids[start : start + piece]))
        harness.tick(2)
    harness.send(api.End(row))
    [pieces] = harness.finish(row)
    np.testing.assert_array_equal(pieces.codes, whole.codes)
    np.testing.assert_allclose(pieces.pcm, whole.pcm, rtol=0, atol=1e-4)


def test_a_starved_row_parks_and_what_it_has_is_heard(harness):
    row = harness.open()
    ids = ids_of(harness, TEXT + " " + TEXT)
    harness.send(api.Feed(row, ids[:14]))
    harness.tick(30)
    log = harness.rows[row]
    assert log.of(api.Parked)[-1].why == "text"
    assert len(log.codes) == 3, "twelve ids give the first frame, each further id one more"
    harness.send(api.Feed(row, ids[14:16]))
    harness.tick(10)
    assert log.of(api.Resumed)[-1].why == "text"
    assert len(log.codes) == 5
    harness.send(api.Cancel(row))
    harness.finish(row)
    assert log.done.reason == "cancelled"
    assert log.done.counts.starved_ms > 0


def test_flow_parks_a_row_until_its_listener_has_heard_more(harness):
    row = harness.open(TEXT, max_ahead_ms=800)
    harness.tick(40)
    log = harness.rows[row]
    assert len(log.codes) == 10
    assert log.of(api.Parked)[-1].why == "flow"
    harness.send(api.Played(row, 1920, 0))
    harness.tick(5)
    assert len(log.codes) == 10, "one frame of room does not wake the row"
    harness.send(api.Played(row, 3 * 1920, 0))
    harness.tick(5)
    assert len(log.codes) == 13
    harness.send(api.Played(row, 10**9, 0))
    harness.finish(row)
    assert log.done.reason == "completed"
    assert log.done.counts.flow_paused_ms > 0


def test_flush_speaks_a_segment_and_text_goes_on_in_the_next(harness):
    row = harness.open()
    prefix = harness.prompt.next_prefix("training")
    harness.send(api.Feed(row, ids_of(harness, "Yes.")), api.Flush(row, prefix))
    harness.tick(60)
    log = harness.rows[row]
    [first] = log.of(api.Segment)
    assert (first.index, first.end_frame) == (0, len(log.codes))
    assert first.end_frame > 0
    harness.send(api.Feed(row, ids_of(harness, "Thank you.")), api.End(row))
    harness.finish(row)
    first, second = log.of(api.Segment)
    assert second.index == 1
    assert second.end_frame == len(log.codes) > first.end_frame
    assert log.done.counts.text_ids == first.text_ids_consumed + second.text_ids_consumed


def test_a_segment_is_the_turn_that_a_fresh_row_would_speak(harness):
    """The second segment continues the grid exactly as if the first were history."""
    prompt = harness.prompt
    prefix = prompt.next_prefix("training")
    row = harness.open()
    first_ids, second_ids = ids_of(harness, "Yes."), ids_of(harness, "Thank you.")
    harness.send(api.Feed(row, first_ids), api.Flush(row, prefix))
    harness.send(api.Feed(row, second_ids), api.End(row))
    [log] = harness.finish(row)
    cut = log.of(api.Segment)[0].end_frame
    turn = prompt.assistant_turn(first_ids, log.codes[:cut], "training")
    header = prompt.assistant_header(first=False, layout="training")
    grid = np.concatenate([harness.context(), turn, header])
    [again] = harness.finish(harness.open("Thank you.", grid=grid, decoder_codes=log.codes[:cut]))
    np.testing.assert_array_equal(again.codes, log.codes[cut:])
    np.testing.assert_allclose(again.pcm, log.pcm[1920 * cut :], rtol=0, atol=1e-4)


def test_no_text_completes_with_nothing(harness):
    row = harness.open()
    harness.send(api.End(row))
    [log] = harness.finish(row)
    assert [type(event) for event in log.events] == [api.Done]
    assert log.done.reason == "completed"


@pytest.mark.parametrize("ticks", [0, 1, 2, 5, 20])
def test_cancel_in_any_phase(harness, ticks):
    row = harness.open(TEXT)
    harness.tick(ticks)
    steps = harness.engine.parts.runner.steps_run
    harness.send(api.Cancel(row), api.Cancel(row))
    harness.tick()
    assert harness.rows[row].done.reason == "cancelled"
    assert harness.engine.parts.runner.steps_run == steps
    harness.tick(3)
    assert isinstance(harness.rows[row].events[-1], api.Done)


def test_commands_for_rows_that_are_not_there_are_ignored(harness):
    prefix = harness.prompt.next_prefix("training")
    harness.send(api.Feed(999, (1,)), api.Flush(999, prefix), api.End(999), api.Cancel(999))
    harness.send(api.Played(999, 5, 0), api.Sent(999, 5, 0), api.CancelEncode(999))
    harness.tick()
    assert 999 not in harness.rows


def test_rows_wait_in_order_and_one_too_many_is_refused(harness):
    rows = [harness.open(TEXT) for _ in range(8)]
    extra = harness.open(TEXT)
    harness.tick()
    [refused] = harness.rows[extra].events
    assert (refused.code, refused.retry_after_ms > 0) == ("overloaded", True)
    logs = harness.finish(*rows)
    assert {log.done.reason for log in logs} == {"completed"}
    assert all(np.array_equal(log.codes, logs[0].codes) for log in logs)


def test_a_context_too_long_is_refused_with_the_figures(harness):
    grid = np.tile(harness.context(), (200, 1))
    row = harness.open(TEXT, grid=grid)
    harness.tick()
    [refused] = harness.rows[row].events
    assert refused.code == "context"
    assert str(len(grid)) in refused.message
    assert "1024" in refused.message


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [(0, 10_011, "10011"), (0, -1, "-1"), (3, 1027, "1027"), (8, -5, "-5")],
)
def test_a_grid_that_the_model_cannot_read_is_refused(harness, column, value, said):
    grid = harness.context().copy()
    grid[2, column] = value
    row = harness.open(TEXT, grid=grid)
    harness.send(api.Warm("bad", harness.engine.parts.info.name, grid, 10))
    harness.tick(2)
    [refused] = harness.rows[row].events
    assert refused.code == "bad_grid"
    failed = [event for event in harness.others if isinstance(event, api.Failed)][-1]
    assert failed.what == "warm"
    assert said in refused.message
    assert said in failed.error


def test_columns_that_do_not_fit_are_refused(harness):
    narrow = harness.open(TEXT, grid=harness.context()[:, :5])
    codes = harness.open(TEXT, decoder_codes=np.zeros((2, 16), np.uint16))
    harness.tick()
    assert "9 columns" in harness.rows[narrow].events[0].message
    assert "[2, 16]" in harness.rows[codes].events[0].message


def test_a_text_id_outside_the_vocabulary_ends_its_row_alone(harness):
    good, bad = harness.open(TEXT), harness.open()
    harness.send(api.Feed(bad, (5, 10_011)))
    [log] = harness.finish(bad)
    assert log.done.reason == "failed"
    assert "10011" in log.done.error
    [log] = harness.finish(good)
    assert log.done.reason == "completed"


@pytest.mark.parametrize("text", ["OK", "a", "?", "...", "\N{GRINNING FACE}"])
def test_the_shortest_text_is_spoken_whatever_is_drawn(harness, text):
    """The model likes to end some of these before they begin."""
    defaults = harness.engine.parts.info.sampling_defaults
    rows = [harness.open(text, seed=seed, sampling=defaults, max_frames=3) for seed in range(8)]
    assert all(len(log.pcm) for log in harness.finish(*rows))


def test_speech_in_bfloat16():
    """Another dtype runs through the same code; its draws may differ."""
    harness = Harness(dtype="bfloat16", max_rows=2)
    [log] = harness.finish(harness.open(TEXT, max_frames=12))
    assert len(log.codes) > 0
    assert np.isfinite(log.pcm).all()
    assert not any(harness.leftovers().values())


def test_speech_without_end_is_cut_by_the_audio_budget(harness):
    """Noise at a high temperature does not end by itself."""
    noise = api.Sampling(temperature=50.0, top_p=1.0, top_k=0)
    [log] = harness.finish(harness.open("Yes. " * 4, sampling=noise))
    assert log.done.reason == "max_audio"
    assert log.of(api.Segment)[-1].reason == "budget"
    budget_ms = 600 * log.done.counts.text_ids + 3000
    assert budget_ms <= 80 * log.done.counts.frames <= budget_ms + 80


def test_max_frames_caps_a_response(harness):
    [log] = harness.finish(harness.open(TEXT, max_frames=7))
    assert (log.done.reason, len(log.codes)) == ("max_audio", 7)


def test_a_known_context_is_not_prefilled_again(harness):
    voice = np.random.default_rng(5).integers(0, 1024, (40, N_VQ)).astype(np.uint16)
    grid = harness.context(voice)
    [first] = harness.finish(harness.open(TEXT, grid=grid))
    [second] = harness.finish(harness.open(TEXT, grid=grid))
    assert first.done.counts.reused_grid_rows < 16
    assert second.done.counts.reused_grid_rows >= len(grid) - 16
    np.testing.assert_array_equal(first.codes, second.codes)


def test_the_next_turn_reuses_the_reply(harness):
    [log] = harness.finish(harness.open(TEXT))
    turn = harness.prompt.assistant_turn(ids_of(harness), log.codes, "training")
    header = harness.prompt.assistant_header(first=False, layout="training")
    grid = np.concatenate([harness.context(), turn, header])
    [again] = harness.finish(harness.open(TEXT, grid=grid, decoder_codes=log.codes))
    rows_before_the_end = len(harness.context()) + len(ids_of(harness)[:12]) + len(log.codes)
    assert again.done.counts.reused_grid_rows >= rows_before_the_end - 32


def test_warm_prefills_a_context_in_the_background(harness):
    voice = np.random.default_rng(6).integers(0, 1024, (60, N_VQ)).astype(np.uint16)
    grid = harness.context(voice)
    harness.send(api.Warm("session", harness.engine.parts.info.name, grid, pin_s=100))
    harness.tick(3)
    [log] = harness.finish(harness.open(TEXT, grid=grid))
    assert log.done.counts.reused_grid_rows == len(grid) // 16 * 16


def test_the_codec_goes_on_after_the_heard_frames(harness):
    """Continuing after a cut reply equals decoding kept and new frames as one sound."""
    [log] = harness.finish(harness.open(TEXT))
    kept = log.codes[:20]
    [cut] = harness.finish(harness.open("Yes.", decoder_codes=kept))
    fresh = Harness()
    [replayed] = fresh.finish(fresh.open("Yes.", decoder_codes=kept))
    np.testing.assert_array_equal(cut.codes, replayed.codes)
    np.testing.assert_allclose(cut.pcm, replayed.pcm, rtol=0, atol=1e-4)
    [alone] = harness.finish(harness.open("Yes."))
    assert np.abs(alone.pcm[:1920] - cut.pcm[:1920]).max() > 1e-3


def test_the_seed_decides_the_draws(harness):
    logs = harness.finish(
        *(harness.open(TEXT, sampling=DRAWN, seed=seed) for seed in (1, 1, 2)),
    )
    np.testing.assert_array_equal(logs[0].codes, logs[1].codes)
    assert not np.array_equal(logs[0].codes[:10], logs[2].codes[:10])


def test_encode_gives_the_codes_of_the_whole_clip_in_any_pieces(harness):
    rng = np.random.default_rng(0)
    pcm = (0.1 * rng.standard_normal(1920 * 30 + 700)).astype(np.float32)
    name = harness.engine.parts.info.name
    results = []
    for stream, piece in ((1, len(pcm)), (2, 1000)):
        for start in range(0, len(pcm), piece):
            end = start + piece >= len(pcm)
            part = pcm[start : start + piece]
            harness.send(api.Encode(stream, name, part, end, "keep"))
            harness.tick()
        harness.tick(6)
        parts = [e for e in harness.others if isinstance(e, api.Encoded) and e.stream == stream]
        assert [event.end for event in parts] == [False] * (len(parts) - 1) + [True]
        results.append(np.concatenate([event.codes for event in parts]))
    assert results[0].shape == (30, N_VQ)
    np.testing.assert_array_equal(results[0], results[1])


def encoded_at(harness, ticks):
    """In which of the next ticks an utterance of so many pieces was worked on."""
    pcm = np.zeros(1920 * 6 * ticks, np.float32)
    harness.send(api.Encode(1, harness.engine.parts.info.name, pcm, False, "keep"))
    found = []
    for tick in range(ticks):
        before = len(harness.others)
        harness.tick()
        if any(isinstance(event, api.Encoded) for event in harness.others[before:]):
            found.append(tick)
    harness.send(api.CancelEncode(1))
    harness.tick()
    return found


def test_encoding_gives_way_to_sound_that_is_due_but_not_for_ever(harness, monkeypatch):
    row = harness.open(TEXT)
    harness.tick(3)
    codec = harness.engine.parts.codec
    monkeypatch.setattr(codec, "least_lead_ms", lambda: 0.0)
    assert np.diff(encoded_at(harness, 12)).tolist() == [4, 4]
    monkeypatch.setattr(codec, "least_lead_ms", lambda: 1e6)
    assert encoded_at(harness, 5) == [0, 1, 2, 3, 4]
    harness.finish(row)


def test_an_idle_engine_encodes_at_once(harness):
    assert encoded_at(harness, 3) == [0, 1, 2]


def test_a_failure_ends_only_the_rows_it_touched(harness, monkeypatch):
    good = harness.open(TEXT)
    harness.tick(10)
    runner = harness.engine.parts.runner
    prefill = runner.prefill

    def broken(slot, start, rows):
        raise RuntimeError("no memory")

    monkeypatch.setattr(runner, "prefill", broken)
    bad = harness.open(TEXT)
    harness.tick(2)
    monkeypatch.setattr(runner, "prefill", prefill)
    logs = harness.finish(good, bad)
    assert [log.done.reason for log in logs] == ["completed", "failed"]
    assert "no memory" in logs[1].done.error


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        MemoryError(),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 byte"),
    ],
)
def test_out_of_memory_ends_the_engine(error):
    """What is left of the process cannot be trusted; the next one goes on with its rows."""
    harness = Harness(max_rows=2)
    row = harness.open(TEXT)
    harness.tick(5)

    def broken(rows):
        raise error

    harness.engine.parts.runner.step = broken
    with pytest.raises(type(error)):
        harness.tick(3)
    assert not harness.rows[row].of(api.Done)


def test_stop_drains(tmp_path):
    harness = Harness(max_rows=2)
    row = harness.open(TEXT, sampling=GREEDY)
    harness.send(api.Stop(drain_s=60))
    late = harness.open(TEXT)
    harness.tick()
    assert not harness.engine.is_stopped, "a row still speaks"
    harness.finish(row)
    assert harness.rows[row].done.reason == "completed"
    [refused] = harness.rows[late].events
    assert refused.code == "draining"
    assert harness.engine.is_stopped
    assert not any(harness.leftovers().values())
