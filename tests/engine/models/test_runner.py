"""The batched runner: golden frames, constant work per tick, one graph for a frame."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.utils._python_dispatch import TorchDispatchMode

from engine.api import Open, Sampling
from engine.models.realtime import load_realtime
from engine.models.runner import RealtimeRunner
from engine.row import Row
from engine.segments import TextLayout

REALTIME = Path(__file__).parents[2] / "vectors" / "realtime"
LAYOUT = TextLayout(
    prefill_ids=12,
    pad_id=612,
    audio_pad=1024,
    audio_bos=1025,
    audio_eos=1026,
    columns=17,
    text_vocabulary=640,
    audio_vocabulary=1027,
)
GREEDY = Sampling(temperature=0.0, repetition_penalty=1.1, repetition_window=50)


@pytest.fixture(scope="module")
def model():
    return load_realtime(REALTIME / "tiny")


@pytest.fixture(scope="module")
def golden():
    return load_file(REALTIME / "greedy_single.safetensors")


def make_row(slot, grid, text_ids, sampling=GREEDY, seed=0):
    codes = np.zeros((0, 16), np.uint16)
    opened = Open(slot, "tiny", grid, codes, codes, seed, sampling, "live", 0, 10**9, 1000)
    row = Row(opened, LAYOUT)
    row.slot = slot
    row.text.feed(tuple(text_ids))
    row.text.end()
    return row


def start(runner, row):
    runner.open(row.slot, row.opened.sampling, row.opened.seed)
    context = np.concatenate([row.opened.grid, row.text.opening_rows()])
    for first in range(0, len(context), 100):
        piece = context[first : first + 100]
        runner.prefill(row.slot, row.position, piece)
        row.advance(piece)


def speak(runner, rows, frames):
    """Step rows together; returns each row's drawn frames, the last maybe the end."""
    drawn = [[] for _ in rows]
    for _ in range(frames):
        live = [row for row in rows if row.text.is_speaking]
        stepping = [row for row in live if row.frames]
        if stepping:
            runner.step(stepping)
        for row, codes in zip(live, runner.draw(live), strict=True):
            drawn[rows.index(row)].append(codes)
            row.codes = codes
            row.frames += 1
            if codes[0] == LAYOUT.audio_eos:
                row.text.close()
    return [np.stack(frames) for frames in drawn]


@pytest.mark.parametrize(
    ("name", "penalty", "window"),
    [("raw_frames", 1.1, 50), ("frames_pen15_win4", 1.5, 4), ("frames_pen1", 1.0, 50)],
)
def test_greedy_frames(model, golden, name, penalty, window):
    runner = RealtimeRunner(model, 3, 512, deterministic=False)
    sampling = Sampling(temperature=0.0, repetition_penalty=penalty, repetition_window=window)
    row = make_row(1, golden["prompt_ids"].numpy().astype(np.int32), golden["text_ids"].tolist())
    row.opened = Open(
        **{
            field: getattr(row.opened, field)
            for field in Open.__slots__  # type: ignore[attr-defined]
            if field != "sampling"
        },
        sampling=sampling,
    )
    start(runner, row)
    want = golden[name].numpy()
    [frames] = speak(runner, [row], len(want))
    np.testing.assert_array_equal(frames, want)


def test_fed_rows_are_the_golden_ones(model, golden):
    runner = RealtimeRunner(model, 3, 512, deterministic=False)
    row = make_row(1, golden["prompt_ids"].numpy().astype(np.int32), golden["text_ids"].tolist())
    start(runner, row)
    prefilled = row.position
    speak(runner, [row], 24)
    fed = np.concatenate(row.grid)[prefilled:]
    np.testing.assert_array_equal(fed, golden["step_input_ids"].numpy())


def test_rows_in_one_batch_speak_as_if_alone(model, golden):
    """Different contexts, positions and sampling in slots with holes between them."""
    prompt = golden["prompt_ids"].numpy().astype(np.int32)
    text = golden["text_ids"].tolist()

    def rows():
        drawn = Sampling(temperature=0.9, top_p=0.9, top_k=20)
        return [
            make_row(1, prompt, text),
            make_row(3, prompt[40:], text[5:], sampling=drawn, seed=7),
            make_row(6, prompt[:90], text[:9], sampling=drawn, seed=2**63 + 5),
        ]

    runner = RealtimeRunner(model, 8, 512, deterministic=True)
    together = rows()
    for row in together:
        start(runner, row)
    batch = speak(runner, together, 20)
    for row, frames in zip(rows(), batch, strict=True):
        alone = RealtimeRunner(model, 8, 512, deterministic=True)
        start(alone, row)
        np.testing.assert_array_equal(speak(alone, [row], 20)[0], frames)


class CountOperations(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(str(function))
        return function(*args, **(kwargs or {}))


def operations(model, rows, history):
    """Names of the tensor operations of one step and draw."""
    runner = RealtimeRunner(model, 18, 2304, deterministic=False)
    grid = np.full((history, 17), 1024, np.int32)
    grid[:, 0] = np.arange(history) % 600
    batch = [make_row(slot, grid, range(40)) for slot in range(1, rows + 1)]
    for row in batch:
        start(runner, row)
        row.codes = np.zeros(16, np.int64)
        row.frames = 1
    with CountOperations() as counted:
        runner.step(batch)
        runner.draw(batch)
    return counted.names


def test_a_tick_issues_the_same_operations_whatever_the_batch_and_the_history(model):
    one = operations(model, rows=1, history=200)
    assert len(one) > 100
    assert operations(model, rows=16, history=200) == one
    assert operations(model, rows=1, history=2000) == one


def test_a_tick_copies_no_history(model):
    """No operation of a step makes a tensor that grows with the history, masks apart."""
    runner = RealtimeRunner(model, 3, 2304, deterministic=False)
    row = make_row(1, np.zeros((2000, 17), np.int32), range(40))
    start(runner, row)
    row.codes = np.zeros(16, np.int64)

    class LargestCopy(TorchDispatchMode):
        largest = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            out = function(*args, **(kwargs or {}))
            if isinstance(out, torch.Tensor) and out._base is None and "view" not in str(function):
                owns = all(
                    out.untyped_storage().data_ptr() != argument.untyped_storage().data_ptr()
                    for argument in args
                    if isinstance(argument, torch.Tensor)
                )
                self.largest = max(self.largest, out.numel() if owns else 0)
            return out

    with LargestCopy() as copies:
        runner.step([row])
    one_layer_of_history = 2 * 16 * 2000
    assert 0 < copies.largest < one_layer_of_history / 10


@pytest.mark.slow
def test_depth_pass_and_sampler_compile_to_one_graph(model):
    runner = RealtimeRunner(model, 6, 256, deterministic=False)
    for slot in range(1, 5):
        runner.open(slot, Sampling(), seed=slot)
    slots, frames = torch.arange(1, 5), torch.arange(4)
    hidden = torch.randn(4, 64, generator=torch.Generator().manual_seed(1))

    def frame(hidden, slots, frames):
        return model.depth(hidden, runner.sampler.draw(slots, frames, frames))

    with torch.inference_mode():
        compiled = torch.compile(frame, fullgraph=True, backend="eager")
        assert torch.equal(compiled(hidden, slots, frames), frame(hidden, slots, frames))
