"""Sampling: the golden distributions, ties, bounds, and draws that follow the distribution."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.utils._python_dispatch import TorchDispatchMode

from kernels.philox import uniform
from kernels.sampling import SamplingParams, distribution, invert, penalise, sample

VECTORS = Path(__file__).parents[1] / "vectors" / "realtime"
ENTRIES = json.loads((VECTORS / "sampling.json").read_text())
TIED_ROW = 2  # which of its equal logits survive top-p is not defined: compared in sorted order


@pytest.fixture(scope="module")
def golden():
    return load_file(VECTORS / "sampling.safetensors")


def make_params(batch, *, temperature=0.8, top_p=0.6, top_k=30, penalty=1.1):
    return SamplingParams(
        temperature=torch.full((batch,), temperature),
        top_p=torch.full((batch,), top_p),
        top_k=torch.full((batch,), top_k),
        penalty=torch.full((batch,), penalty),
    )


def entry_params(entry, batch):
    return make_params(
        batch,
        temperature=entry["temperature"] if entry.get("do_sample", True) else 0.0,
        top_p=1.0 if entry["top_p"] is None else entry["top_p"],
        top_k=entry["top_k"] or 0,
        penalty=entry["penalty"] or 1.0,
    )


def entry_recent(entry, golden):
    """Codes of the last `window` frames of the history, oldest first (None or 0: of all of it)."""
    recent = torch.zeros_like(golden["logits"], dtype=torch.bool)
    if entry.get("no_history"):
        return recent
    return recent.scatter(1, golden["history"][:, -(entry["window"] or 0) :], True)


def entry_bound(entry):
    return entry["top_k"] or None


def concatenate(params):
    return SamplingParams(
        *(
            torch.cat([getattr(one, field.name) for one in params])
            for field in dataclasses.fields(SamplingParams)
        )
    )


def random_rows(batch, seed, vocabulary=1027, ties=False):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(batch, vocabulary, generator=generator) * 3
    if ties:
        logits = logits.round()
    recent = torch.rand(batch, vocabulary, generator=generator) < 0.05
    return logits, recent, torch.rand(batch, generator=generator)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: str(entry["index"]))
@pytest.mark.parametrize("bounded", [False, True])
def test_golden_entries(entry, bounded, golden):
    logits, recent = golden["logits"], entry_recent(entry, golden)
    params = entry_params(entry, len(logits))
    bound = entry_bound(entry) if bounded else None
    probabilities = distribution(logits, recent, params, bound)
    if entry.get("greedy"):
        expected = golden[f"token_{entry['index']}"]
        assert torch.equal(probabilities.argmax(1), expected)
        assert torch.equal(probabilities.amax(1), torch.ones(len(logits)))
        u = torch.linspace(0.01, 0.99, len(logits))
        assert torch.equal(sample(logits, recent, params, u, bound), expected)
        return
    expected = golden[f"probs_{entry['index']}"].clone()
    assert (probabilities > 0).sum(1).tolist() == entry["kept"]
    for rows in (probabilities, expected):
        rows[TIED_ROW] = rows[TIED_ROW].sort().values
    torch.testing.assert_close(probabilities, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("index", [0, 3, 6, 7])
def test_golden_penalty(index, golden):
    params = entry_params(ENTRIES[index], len(golden["logits"]))
    penalised = penalise(golden["logits"], entry_recent(ENTRIES[index], golden), params.penalty)
    assert torch.equal(penalised, golden[f"penalized_{index}"])


def test_rows_of_one_batch_have_their_own_parameters(golden):
    """All golden entries at once give, bit for bit, what each gives alone."""
    logits, rows = golden["logits"], len(golden["logits"])
    masks = [entry_recent(entry, golden) for entry in ENTRIES]
    params = [entry_params(entry, rows) for entry in ENTRIES]
    together = distribution(logits.repeat(len(ENTRIES), 1), torch.cat(masks), concatenate(params))
    alone = [distribution(logits, *one) for one in zip(masks, params, strict=True)]
    assert torch.equal(together, torch.cat(alone))


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("top_k", [1, 5, 30, 64])
def test_a_bound_on_top_k_changes_nothing(ties, top_k):
    """With coarse logits far more tokens tie with the k-th than the bound lets in."""
    logits, recent, _ = random_rows(24, seed=top_k, ties=ties)
    params = make_params(24, top_k=top_k)
    params = dataclasses.replace(params, top_p=torch.linspace(0, 1, 24))
    full = distribution(logits, recent, params)
    assert torch.equal(full, distribution(logits, recent, params, top_k))
    assert torch.equal(full, distribution(logits, recent, params, 100))
    if ties:
        assert (full > 0).sum(1).max() > top_k


@pytest.mark.parametrize("seed", range(4))
def test_equals_a_plain_loop_over_sorted_tokens(seed):
    """Coarse logits: ties at the top-k threshold and at the top-p boundary."""
    logits, recent, _ = random_rows(12, seed, vocabulary=40, ties=True)
    generator = torch.Generator().manual_seed(seed + 100)
    params = SamplingParams(
        temperature=torch.rand(12, generator=generator) + 0.3,
        top_p=torch.rand(12, generator=generator),
        top_k=torch.randint(0, 45, (12,), generator=generator),
        penalty=torch.full((12,), 1.0),
    )
    probabilities = distribution(logits, recent, params)
    for row in range(12):
        expected = plain_distribution(
            logits[row].tolist(),
            *(x[row].item() for x in (params.temperature, params.top_k, params.top_p)),
        )
        torch.testing.assert_close(probabilities[row], torch.tensor(expected), rtol=0, atol=1e-5)


def plain_distribution(logits, temperature, top_k, top_p):
    order = sorted(range(len(logits)), key=lambda token: (-logits[token], token))
    smallest = logits[order[min(top_k or len(logits), len(logits)) - 1]]
    order = [token for token in order if logits[token] >= smallest]
    weights = torch.tensor([logits[token] for token in order], dtype=torch.float64)
    masses = (weights / temperature).softmax(0).tolist()
    kept, above = {}, 0.0
    for token, mass in zip(order, masses, strict=True):
        if kept and above >= top_p:
            break
        kept[token] = mass
        above += mass
    return [kept.get(token, 0.0) / above for token in range(len(logits))]


def test_greedy_takes_the_first_maximum():
    logits = torch.tensor([[0.0, 4.0, 1.0, 4.0, 4.0], [7.0, 7.0, 7.0, 7.0, 7.0]])
    recent = torch.zeros(2, 5, dtype=torch.bool)
    params = make_params(2, temperature=0.0, top_k=0, top_p=1.0)
    for u in (1e-7, 0.5, 1 - 1e-7):
        assert sample(logits, recent, params, torch.full((2,), u)).tolist() == [1, 0]


def test_impossible_codes_stay_impossible():
    """Masked logits and exponents that underflow keep probability zero, filtered or not."""
    logits = torch.full((2, 1027), -torch.inf)
    logits[0, [5, 900]] = torch.tensor([3.0, -200.0])
    logits[1, [7, 8]] = 1.0
    recent = torch.zeros(2, 1027, dtype=torch.bool)
    for filters in ({"top_k": 0, "top_p": 1.0}, {"top_k": 30, "top_p": 0.9}):
        params = make_params(2, **filters)
        probabilities = distribution(logits, recent, params)
        assert probabilities[0].nonzero().flatten().tolist() == [5]
        assert probabilities[1].nonzero().flatten().tolist() == [7, 8]


@pytest.mark.parametrize("u", [2.0**-24, 1 - 2.0**-24, 0.0, 1.0])
def test_a_draw_at_the_ends_lands_on_a_possible_code(u):
    probabilities = torch.zeros(3, 1027)
    probabilities[0, 0] = probabilities[0, 1026] = 0.5
    probabilities[1, 3] = probabilities[1, 4] = 1 / 3  # sums to less than 1
    probabilities[2, 100:900] = 1 / 799  # sums to more than 1
    first, last = [0, 3, 100], [1026, 4, 899]
    codes = invert(probabilities, torch.full((3,), u)).tolist()
    assert codes == (first if u < 0.5 else last)


def test_a_draw_crosses_from_code_to_code_at_the_cumulative_probability():
    probabilities = torch.tensor([0.25, 0.0, 0.5, 0.25, 0.0]).repeat(6, 1)
    u = torch.tensor([0.1, 0.2499, 0.25, 0.7499, 0.75, 0.9999])
    assert invert(probabilities, u).tolist() == [0, 0, 2, 2, 3, 3]


@pytest.mark.parametrize("vocabulary", [13, 1027])
def test_logits_that_are_not_numbers_give_a_code_in_range(vocabulary):
    logits = torch.full((2, vocabulary), torch.nan)
    recent = torch.zeros(2, vocabulary, dtype=torch.bool)
    codes = sample(logits, recent, make_params(2), torch.tensor([0.1, 0.9]))
    assert ((codes >= 0) & (codes < vocabulary)).all()


@pytest.mark.parametrize(
    "filters", [{"temperature": 2.5, "top_p": 0.9}, {"top_k": 0, "top_p": 1.0}]
)
def test_draws_follow_the_distribution(filters):
    logits, recent, _ = random_rows(1, seed=3, vocabulary=50)
    draws = 20_000
    params = make_params(1, **filters)
    probabilities = distribution(logits, recent, params)[0]
    u = uniform(torch.tensor(9), torch.arange(draws), torch.tensor(0))
    many = {
        field.name: getattr(params, field.name).expand(draws)
        for field in dataclasses.fields(params)
    }
    codes = sample(logits.expand(draws, -1), recent.expand(draws, -1), SamplingParams(**many), u)
    counts = torch.bincount(codes, minlength=50)
    assert counts[probabilities == 0].sum() == 0
    expected = probabilities * draws
    likely = expected >= 5
    chi_square = ((counts - expected)[likely] ** 2 / expected[likely]).sum().item()
    freedom = int(likely.sum()) - 1
    assert freedom >= 3
    assert chi_square < freedom + 4 * (2 * freedom) ** 0.5


def test_a_row_is_drawn_alike_alone_and_in_any_batch():
    logits, recent, u = random_rows(16, seed=5)
    batch = sample(logits, recent, make_params(16), u, 30)
    for start, stop in ((0, 1), (1, 4), (4, 16)):
        rows = slice(start, stop)
        part = sample(logits[rows], recent[rows], make_params(stop - start), u[rows])
        assert torch.equal(part, batch[rows])


class CountOperations(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += 1
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("max_top_k", [None, 30])
def test_the_number_of_operations_does_not_grow_with_the_batch(max_top_k):
    counts = []
    for batch in (1, 13):
        logits, recent, u = random_rows(batch, seed=1)
        with CountOperations() as mode:
            sample(logits, recent, make_params(batch), u, max_top_k)
        counts.append(mode.count)
    assert counts[0] == counts[1]


@pytest.mark.parametrize("max_top_k", [None, 30])
def test_sampling_compiles_to_one_graph(max_top_k):
    compiled = torch.compile(sample, fullgraph=True, backend="eager")
    for batch in (1, 5):
        logits, recent, u = random_rows(batch, seed=2)
        arguments = logits, recent, make_params(batch), u
        expected = sample(*arguments, max_top_k)
        assert torch.equal(compiled(*arguments, max_top_k), expected)
