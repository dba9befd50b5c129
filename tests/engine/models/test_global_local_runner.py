"""The batched runner of MOSS-TTS-Local-Transformer and MOSS-TTS-Nano: golden frames, solo = batch.

Where the released code shares state between the requests of a process, ours does not; each such
test says which state.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from engine.api import TextSampling
from engine.models.variants import VARIANTS
from kernels.philox import uniform
from tests.engine.models.global_local import GREEDY, Family, family, speak, start

CLOSE = {"atol": 2e-5, "rtol": 1e-4}
MOST_FRAMES = 24
CASES = {
    "local": ("plain_en", "clone_one_ref", "cont_peer_join", "plain_zh_lang"),
    "nano": ("plain_en", "clone_en", "cont_en", "clone_zh"),
}
PENALISED = {"local": ("plain_en_rep1p3", 1.3), "nano": ("plain_en_rep1p2", 1.2)}
DRAWN = {name: VARIANTS[name].sampling for name in CASES}


@pytest.fixture(scope="module", params=["local", "nano"])
def tiny(request: pytest.FixtureRequest) -> Family:
    return family(request.param)


@pytest.fixture
def lasting(tiny, monkeypatch) -> Family:
    """The tiny models stop after a few frames when drawn; these stop later."""
    stop_logits, more = tiny.model.stop_logits, {"local": 4.0, "nano": 0.5}[tiny.name]
    monkeypatch.setattr(
        tiny.model, "stop_logits", lambda y: stop_logits(y) + torch.tensor([more, 0.0])
    )
    return tiny


def greedy(tiny, case, sampling=GREEDY, n_vq=None):
    runner = tiny.runner()
    row = tiny.row(1, tiny.prompt(case), sampling)
    start(runner, row, n_vq)
    return speak(runner, [row], MOST_FRAMES)[0], row


def test_greedy_frames_hidden_states_and_logits(tiny):
    golden = tiny.vectors("greedy")
    for case in CASES[tiny.name]:
        runner = tiny.runner()
        row = tiny.row(1, tiny.prompt(case))
        start(runner, row)
        seen = Listening(runner)
        [frames] = speak(runner, [row], MOST_FRAMES)
        np.testing.assert_array_equal(frames, golden[f"{case}.frames"].numpy(), err_msg=case)
        assert len(frames) == tiny.info()["greedy"][case]["frames"]
        torch.testing.assert_close(
            torch.stack(seen.hidden), golden[f"{case}.global_hidden"], **CLOSE
        )
        torch.testing.assert_close(
            torch.stack(seen.stop_logits), golden[f"{case}.stop_logits"], **CLOSE
        )
        if f"{case}.audio_logits" in golden:
            logits = torch.stack(seen.audio_logits)[: len(frames)]
            torch.testing.assert_close(logits, golden[f"{case}.audio_logits"], **CLOSE)


class Listening:
    """Keeps what a runner's model sees and says in each frame of its only row."""

    def __init__(self, runner) -> None:
        self.hidden, self.stop_logits, self.audio_logits = [], [], []
        draw_frame, depth = runner.sampler.draw_frame, runner.model.depth

        def listening_draw(*args):
            decide, choose = draw_frame(*args)
            frame: list[torch.Tensor] = []

            def keep_stop(logits):
                self.stop_logits.append(logits[0])
                return decide(logits)

            def keep_logits(codebook, logits):
                frame.append(logits[0])
                if codebook + 1 == runner.columns - 1:
                    self.audio_logits.append(torch.stack(frame))
                return choose(codebook, logits)

            return keep_stop, keep_logits

        class Model:
            def __getattr__(proxy, name):
                return getattr(model, name)

            def depth(proxy, hidden, *args):
                self.hidden.append(hidden[0].clone())
                return depth(hidden, *args)

        model = runner.model
        runner.sampler.draw_frame = listening_draw
        runner.model = Model()


def test_fed_rows_are_the_frames_beside_the_continue_id(tiny):
    """No row is fed for the frame that stops, nor is an end-of-audio row."""
    if tiny.name == "nano":
        frames, row = greedy(tiny, "clone_en")
        fed = np.concatenate(row.grid)[len(tiny.prompt("clone_en")) :]
        want = np.insert(frames, 0, tiny.model.config.continue_id, axis=1)
    else:
        _, row = greedy(tiny, "clone_one_ref")
        fed = np.concatenate(row.grid)[len(tiny.prompt("clone_one_ref")) :]
        want = tiny.vectors("greedy")["clone_one_ref.returned_rows"].numpy()[1:]
    np.testing.assert_array_equal(fed, want[: len(fed)])
    assert len(fed) == len(want) == 11


def test_greedy_with_a_repetition_penalty(tiny):
    name, penalty = PENALISED[tiny.name]
    sampling = dataclasses.replace(GREEDY, repetition_penalty=penalty)
    frames, _ = greedy(tiny, "plain_en", sampling)
    want = tiny.vectors("greedy")[f"{name}.frames"].numpy()
    assert not np.array_equal(want, tiny.vectors("greedy")["plain_en.frames"][: len(want)])
    np.testing.assert_array_equal(frames, want)


def test_the_penalty_spares_the_codes_of_the_prompt(tiny):
    """Only what this row generated is penalised: the first frame is as without a penalty."""
    case = CASES[tiny.name][1]
    penalised = dataclasses.replace(GREEDY, repetition_penalty=50.0)
    np.testing.assert_array_equal(greedy(tiny, case)[0][0], greedy(tiny, case, penalised)[0][0])


def test_golden_batch_of_two(tiny):
    """Row 1 stops first; upstream goes on feeding it filler rows, ours leaves the batch."""
    golden = tiny.vectors("greedy")
    cases = CASES[tiny.name][:2]
    runner = tiny.runner()
    rows = [tiny.row(slot, tiny.prompt(case)) for slot, case in enumerate(cases, 1)]
    for row in rows:
        start(runner, row)
    frames = speak(runner, rows, MOST_FRAMES)
    for index, (case, got) in enumerate(zip(cases, frames, strict=True)):
        np.testing.assert_array_equal(got, golden[f"{case}.frames"].numpy())
        if tiny.name == "nano":
            raw = golden["batch.frames_raw"][index].numpy()
        else:
            raw = golden[f"batch.row{index}.returned_rows"].numpy()[1:, 1:]
        np.testing.assert_array_equal(got, raw[: len(got)])
        assert (raw[len(got) :] == tiny.model.config.audio_pad).all()
    assert [len(got) for got in frames] == [24, 11]


def test_nano_with_fewer_codebooks():
    tiny = family("nano")
    frames, row = greedy(tiny, "clone_nq8", n_vq=8)
    np.testing.assert_array_equal(frames, tiny.vectors("greedy")["clone_nq8.frames"].numpy())
    assert (np.concatenate(row.grid)[-1, 9:] == tiny.model.config.audio_pad).all()
    for wrong in (0, 17):
        with pytest.raises(ValueError, match=rf"n_vq is 1..16 for this model; got {wrong}"):
            tiny.runner().open(1, GREEDY, 0, wrong)


def requests(tiny):
    """Requests that differ in prompt, sampling, seed and length, in slots with holes."""
    one, two, three, four = CASES[tiny.name]
    drawn = DRAWN[tiny.name]
    hot = dataclasses.replace(drawn, temperature=1.2, top_k=0, repetition_penalty=1.4)
    return [
        tiny.row(1, tiny.prompt(one), drawn, seed=7),
        tiny.row(3, tiny.prompt(two), hot, seed=7),
        tiny.row(4, tiny.prompt(three)),
        tiny.row(6, tiny.prompt(four), hot, seed=2**63 + 5),
        tiny.row(7, tiny.prompt(one), drawn, seed=8),
    ]


def test_rows_in_one_batch_speak_as_if_alone(lasting):
    """Upstream draws all rows, and all requests, from one global stream of random numbers.

    There a seed holds only for a request that is alone; here it holds at any batch size, although
    rows leave the batch while others go on.
    """
    runner = lasting.runner(8, deterministic=True)
    together = requests(lasting)
    for row in together:
        start(runner, row)
    batch = speak(runner, together, MOST_FRAMES)
    assert min(map(len, batch)) < 12 < sorted(map(len, batch))[-2]
    for row, frames in zip(requests(lasting), batch, strict=True):
        alone = lasting.runner(8, deterministic=True)
        start(alone, row)
        np.testing.assert_array_equal(speak(alone, [row], MOST_FRAMES)[0], frames)
    assert not np.array_equal(batch[0][:2], batch[4][:2])  # the seed matters


def test_a_request_that_comes_in_between_changes_nothing(lasting):
    """Upstream Nano serialises requests: a second one resets the first one's random numbers."""
    drawn = DRAWN[lasting.name]
    _, case, late_case, _ = CASES[lasting.name]
    seed = {"local": 43, "nano": 2}[lasting.name]

    def first():
        return lasting.row(2, lasting.prompt(case), drawn, seed=seed)

    alone, again = lasting.runner(8, deterministic=True), first()
    start(alone, again)
    [want] = speak(alone, [again], 14)
    assert len(want) == 14
    row, late = first(), lasting.row(5, lasting.prompt(late_case), drawn, seed=seed)
    runner = lasting.runner(8, deterministic=True)
    start(runner, row)
    [before] = speak(runner, [row], 3)
    start(runner, late)
    between, other = speak(runner, [row, late], 6)
    runner.close(late.slot)
    [after] = speak(runner, [row], 5)
    np.testing.assert_array_equal(np.concatenate([before, between, after]), want)
    assert len(other)


def test_a_slot_forgets_who_was_in_it(lasting):
    """Penalty history, seed and number of codebooks are the row's, not the slot's."""
    runner = lasting.runner(8, deterministic=True)
    used = lasting.row(3, lasting.prompt(CASES[lasting.name][3]), DRAWN[lasting.name], seed=99)
    start(runner, used, n_vq=2)
    speak(runner, [used], 12)
    runner.close(3)
    row, again = requests(lasting)[1], requests(lasting)[1]
    start(runner, row)
    fresh = lasting.runner(8, deterministic=True)
    start(fresh, again)
    np.testing.assert_array_equal(
        speak(runner, [row], MOST_FRAMES)[0], speak(fresh, [again], MOST_FRAMES)[0]
    )


def test_a_response_has_at_least_one_frame(tiny):
    """Even where the first decision would be to stop: a text has a sound."""
    runner = tiny.runner()
    row = tiny.row(1, tiny.prompt("plain_en"))
    start(runner, row)
    slots = torch.tensor([1])
    stop = torch.tensor([[-50.0, 50.0]])
    first, later = torch.tensor([0]), torch.tensor([1])
    assert runner.sampler.draw_frame(slots, first, first)[0](stop).tolist() == [True]
    assert runner.sampler.draw_frame(slots, later, later)[0](stop).tolist() == [False]


def test_the_decision_is_drawn_at_its_own_temperature() -> None:
    runner = family("local").runner(2)
    logits = torch.tensor([0.4, -0.6]).expand(4000, 2)
    frames = torch.arange(1, 4001)
    slots = torch.ones(4000, dtype=torch.int64)
    cold = dataclasses.replace(DRAWN["local"], temperature=0.1)
    for sampling, text_sampling, temperature in (
        (DRAWN["local"], None, 1.0),
        (cold, None, 1.0),
        (cold, TextSampling(temperature=3.0), 3.0),
        (GREEDY, TextSampling(temperature=2.0), 2.0),
    ):
        runner.open(1, sampling, 11, text_sampling=text_sampling)
        decide, _ = runner.sampler.draw_frame(slots, frames, frames)
        share = decide(logits).float().mean().item()
        assert abs(share - (logits[0] / temperature).softmax(0)[0].item()) < 0.03
    for greedy_decision in (None, TextSampling(temperature=0.0)):
        runner.open(1, GREEDY if greedy_decision is None else cold, 11, None, greedy_decision)
        assert runner.sampler.draw_frame(slots, frames, frames)[0](logits).all()


def test_decision_and_codes_use_different_random_numbers(tiny):
    """Were they the same number, rows that nearly stopped would get codes of one kind."""
    places = torch.arange(tiny.model.config.n_vq + 1)
    numbers = uniform(torch.tensor(3), torch.tensor(5), places)
    assert len(numbers.unique()) == len(places)


@pytest.mark.parametrize("rows", [1, 3])
def test_warm_up_leaves_no_trace(tiny, rows):
    runner = tiny.runner()
    runner.warm_up(rows)
    row = tiny.row(1, tiny.prompt("plain_en"))
    start(runner, row)
    want = tiny.vectors("greedy")["plain_en.frames"][:4].numpy()
    np.testing.assert_array_equal(speak(runner, [row], 4)[0], want)
