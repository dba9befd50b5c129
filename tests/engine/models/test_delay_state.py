"""The state machine and the draws of delay-pattern replies, on given logits."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from engine.api import Sampling, TextSampling
from engine.models.delay_pattern import DelayFormat
from engine.models.delay_sampler import DelaySampler
from engine.models.delay_state import DelayState
from kernels.sampling import SamplingParams, distribution, penalise

DELAY = Path(__file__).parents[2] / "vectors" / "delay"
MACHINE = json.loads((DELAY / "state_machine.json").read_text())
SAMPLING = json.loads((DELAY / "sampling.json").read_text())["cases"]
GREEDY = [name for name in MACHINE["cases"] if name != "batch2_sampled"]
COUPLED = "batch2_greedy_penalty"
TIED, CONSTANT = 1, 3  # rows of sampling.safetensors
FORM = DelayFormat(
    n_vq=4,
    audio_pad=12,
    text_vocabulary=24,
    pad=0,
    im_start=1,
    im_end=2,
    audio_start=3,
    audio_end=4,
    user_slot=5,
    gen_slot=6,
    delay_slot=7,
)


@pytest.fixture(scope="module")
def golden():
    return load_file(DELAY / "state_machine.safetensors")


@pytest.fixture(scope="module")
def filters():
    return load_file(DELAY / "sampling.safetensors")


class Machine:
    """State and sampler of some prompts, stepped with given logits."""

    def __init__(self, prompts, sampling, text):
        self.slots = torch.arange(1, len(prompts) + 1)
        self.state = DelayState(8, FORM, torch.device("cpu"))
        self.sampler = DelaySampler(8, FORM, torch.device("cpu"))
        for slot, prompt in enumerate(prompts, 1):
            self.state.open(slot, prompt.numpy())
            self.sampler.open(slot, sampling, text, 11 * slot, prompt.numpy())
        self.positions = torch.full((len(prompts),), prompts.shape[1])
        self.step = torch.zeros(len(prompts), dtype=torch.int64)

    def draw(self, text_logits, audio_logits):
        audio = audio_logits.clone()
        audio[..., -1] = float("-inf")
        self.rules = self.state.constraints(self.slots)
        rows = self.sampler.draw(
            self.slots, self.step, self.positions, (text_logits, audio), self.rules
        )
        self.state.advance(self.slots, rows[:, 0])
        self.step, self.positions = self.step + 1, self.positions + 1
        return rows

    def traces(self, name):
        return [self.state.trace(int(slot))[name] for slot in self.slots]


def greedy(penalty=1.0):
    sampling = Sampling(temperature=0.0, repetition_penalty=penalty, repetition_window=0)
    return sampling, TextSampling(temperature=0.0)


@pytest.mark.parametrize("name", [name for name in GREEDY if name != COUPLED])
def test_golden_rows_and_traces(name, golden):
    machine = Machine(golden[f"{name}.prompt"], *greedy())
    for step in range(MACHINE["cases"][name]["steps"]):
        delayed = [-1 if d is None else d for d in machine.traces("delayed")]
        assert machine.traces("opened") == golden[f"{name}.trace.audio_lengths"][step].tolist()
        assert delayed == golden[f"{name}.trace.delayed_lengths"][step].tolist()
        rows = machine.draw(
            golden[f"{name}.text_logits"][step], golden[f"{name}.audio_logits"][step]
        )
        assert torch.equal(rows, golden[f"{name}.new_rows"][:, step])
        rules = machine.rules
        free = golden[f"{name}.trace.sampling_text_mask"][step].bool()
        assert torch.equal(rules.forced < 0, free)
        drawn = golden[f"{name}.trace.sampling_audio_mask"][step].bool()
        assert torch.equal(rules.active, drawn)
        in_sound = golden[f"{name}.trace.is_audio_after_text"][step].tolist()
        assert machine.traces("in_sound") == in_sound
        stopped = golden[f"{name}.trace.is_stopping_after_text"][step].tolist()
        assert machine.traces("stopped") == stopped


def step_alone(name, golden, row, penalty):
    machine = Machine(golden[f"{name}.prompt"][row : row + 1], *greedy(penalty))
    return torch.stack(
        [
            machine.draw(
                golden[f"{name}.text_logits"][step, row : row + 1],
                golden[f"{name}.audio_logits"][step, row : row + 1],
            )[0]
            for step in range(MACHINE["cases"][name]["steps"])
        ]
    )


def test_the_penalty_of_a_row_knows_only_that_row(golden):
    """Upstream penalises what any row of the batch has said, so its rows depend on each other."""
    machine = Machine(golden[f"{COUPLED}.prompt"], *greedy(1.4))
    logits = zip(golden[f"{COUPLED}.text_logits"], golden[f"{COUPLED}.audio_logits"], strict=True)
    together = torch.stack([machine.draw(*step) for step in logits], dim=1)
    for row in range(2):
        assert torch.equal(together[row], step_alone(COUPLED, golden, row, 1.4))
    assert not torch.equal(together, golden[f"{COUPLED}.new_rows"])
    assert torch.equal(together[..., 0], golden[f"{COUPLED}.new_rows"][..., 0])


def test_the_steps_of_a_row_count_from_its_own_start(golden):
    """Upstream counts for the batch, so a row that joined later could end before its first sound.

    The rule forbids im_end in the first steps, here to a row that joins at the other's step 9.
    """
    machine = Machine(golden["batch2_desync.prompt"], *greedy())
    for step in range(9):
        machine.draw(
            golden["batch2_desync.text_logits"][step], golden["batch2_desync.audio_logits"][step]
        )
    machine.state.open(2, golden["batch2_desync.prompt"][1].numpy())
    rules = machine.state.constraints(machine.slots)
    assert rules.banned[:, FORM.im_end].tolist() == [False, True]


def sampled_calls():
    return [call for call in MACHINE["cases"]["batch2_sampled"]["calls"] if call["rows"]]


@pytest.mark.parametrize("call", sampled_calls(), ids=lambda call: str(call["index"]))
def test_golden_probabilities_of_a_sampled_run(call, golden):
    name = f"batch2_sampled.call{call['index']:03d}"
    logits = golden[f"{name}.logits_in"]
    is_text = call["kind"] == "text"
    recent = torch.zeros_like(logits, dtype=torch.bool)
    recent[:, call["penalised_token_set"] or []] = True
    rows = len(logits)
    params = SamplingParams(
        temperature=torch.ones(rows),  # already applied
        top_p=torch.full((rows,), 0.9 if is_text else 0.8),
        top_k=torch.full((rows,), 6 if is_text else 5),
        penalty=torch.full((rows,), 1.0 if is_text else 1.2),
    )
    got = distribution(logits, recent, params, inclusive=True)
    torch.testing.assert_close(got, golden[f"{name}.probs"], atol=1e-5, rtol=0)


def test_masks_and_history_of_a_sampled_run(golden):
    """The rules give each golden call its rows and masked ids, the history its penalised codes."""
    name = "batch2_sampled"
    prompts, new = golden[f"{name}.prompt"], golden[f"{name}.new_rows"]
    sampling = Sampling(temperature=1.7, top_p=0.8, top_k=5, repetition_penalty=1.2)
    machine = Machine(prompts, dataclasses.replace(sampling, repetition_window=0), TextSampling())
    calls = {(call["step"], call["kind"]): call for call in sampled_calls()}
    for step in range(new.shape[1]):
        rules = machine.state.constraints(machine.slots)
        masks = {
            "text": rules.forced < 0,
            "audio_ch0": rules.active[:, 0],
            "audio_rest": rules.active[:, 1:],
        }
        for kind, mask in masks.items():
            assert calls.get((step, kind), {"rows": 0})["rows"] == int(mask.sum())
        if (call := calls.get((step, "text"))) is not None:
            given = golden[f"{name}.call{call['index']:03d}.logits_in"]
            assert torch.equal(given == float("-inf"), rules.banned[masks["text"]])
        for group, kind in enumerate(("audio_ch0", "audio_rest")):
            if (call := calls.get((step, kind))) is not None:
                seen = (machine.sampler.last_seen[machine.slots, group] >= 0).any(0)
                assert seen.nonzero().flatten().tolist() == call["penalised_token_set"]
        machine.sampler._record(machine.slots, machine.positions, new[:, step, 1:])
        machine.state.advance(machine.slots, new[:, step, 0])
        machine.positions = machine.positions + 1


BOUNDED = [(case, True) for case in SAMPLING if case["top_k"]]


@pytest.mark.parametrize(("case", "bounded"), [(case, False) for case in SAMPLING] + BOUNDED)
def test_golden_filters(case, bounded, filters):
    logits = filters["logits"]
    rows = len(logits)
    params = SamplingParams(
        temperature=torch.full((rows,), case["temperature"]),
        top_p=torch.full((rows,), case["top_p"]),
        top_k=torch.full((rows,), case["top_k"]),
        penalty=torch.ones(rows),
    )
    recent = torch.zeros_like(logits, dtype=torch.bool)
    bound = case["top_k"] if bounded else None
    got = distribution(logits, recent, params, bound, inclusive=True)
    want = filters[case["name"]].clone()
    assert (got > 0).sum(1).tolist() == (want > 0).sum(1).tolist()
    for row in (TIED, CONSTANT):
        got[row], want[row] = got[row].sort().values, want[row].sort().values
    torch.testing.assert_close(got, want, atol=1e-5, rtol=0)


def test_golden_penalties(filters):
    logits, previous = filters["logits"], filters["penalty2d.prev"]
    recent = torch.zeros_like(logits, dtype=torch.bool)
    recent[:, previous.flatten()] = True
    got = penalise(logits, recent, torch.full((len(logits),), 1.3))
    torch.testing.assert_close(got, filters["penalty2d.out_1.3"])
    logits = filters["penalty3d.logits"]
    recent = torch.zeros_like(logits, dtype=torch.bool)
    for channel in range(3):
        recent[:, channel, filters["penalty3d.prev"][:, :, channel].flatten()] = True
    flat = [tensor.reshape(6, 40) for tensor in (logits, recent)]
    got = penalise(*flat, torch.full((6,), 1.2)).view_as(logits)
    torch.testing.assert_close(got, filters["penalty3d.out_1.2"])


def test_the_codes_of_the_prompt_are_history(golden):
    prompt = golden["continuation_gen_tail.prompt"][0].numpy()
    sampler = DelaySampler(2, FORM, torch.device("cpu"))
    sampler.open(1, Sampling(), TextSampling(), 0, prompt)
    for group, columns in enumerate((prompt[:, 1:2], prompt[:, 2:])):
        for code in range(13):
            rows = np.flatnonzero((columns == code).any(axis=1))
            assert sampler.last_seen[1, group, code] == (rows[-1] if len(rows) else -1)


@pytest.mark.parametrize(("window", "expected"), [(0, 5), (6, 5), (5, 7), (2, 7)])
def test_the_penalty_looks_back_over_its_window(window, expected):
    """Code 7 wins, but stood in the prompt's row 2; the drawn row is row 8."""
    prompt = np.full((8, 5), FORM.audio_pad)
    prompt[:, 0] = (1, 9, 3, 6, 6, 6, 6, 6)
    prompt[2, 1:3] = 7
    machine = Machine(
        torch.from_numpy(prompt)[None],
        Sampling(temperature=0.0, repetition_penalty=2.0, repetition_window=window),
        TextSampling(temperature=0.0),
    )
    audio = torch.zeros(1, 4, 13)
    audio[..., 7], audio[..., 5] = 1.0, 0.9
    row = machine.draw(torch.zeros(1, 24), audio)[0]
    assert row[1:].tolist() == [expected] * 4


def test_a_reply_ends_no_earlier_than_its_first_frame_could():
    """im_end is barred up to step n_vq, the delay slot at step 0."""
    state = DelayState(2, FORM, torch.device("cpu"))
    prompt = np.full((3, 5), FORM.audio_pad)
    prompt[:, 0] = (FORM.im_start, 9, 9)
    state.open(1, prompt)
    slots, ends = torch.tensor([1]), []
    for _ in range(8):
        rules = state.constraints(slots)
        ends.append(not rules.banned[0, FORM.im_end])
        assert rules.banned[0, FORM.delay_slot]  # there is no sound
        state.advance(slots, torch.tensor([15]))
    assert ends == [False] * (FORM.n_vq + 1) + [True] * 3
    state.open(1, np.concatenate([prompt, [[FORM.audio_start] + [FORM.audio_pad] * 4]]))
    for step in range(2):
        assert state.constraints(slots).banned[0, FORM.delay_slot] == (step == 0)
        state.advance(slots, torch.tensor([FORM.gen_slot]))
