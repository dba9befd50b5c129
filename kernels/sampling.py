"""Draw one code a row from logits: repetition penalty, temperature, top-k, top-p, one draw.

Everything is batched with its own parameters for every row, in fp32, without a branch on data, so
the same few tensor operations serve any batch and can be captured in a graph.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_ONE = 2.0**40  # probability 1 as an integer: far finer than f32, far from overflowing an i64


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How each row is drawn; the fields mean what they do in `engine.api.Sampling`."""

    temperature: Tensor  # [B] f32, 0 is greedy
    top_p: Tensor  # [B] f32 in [0, 1], 1 is off
    top_k: Tensor  # [B] i64, 0 is off
    penalty: Tensor  # [B] f32 > 0, 1 is off


def sample(
    logits: Tensor,
    recent: Tensor,
    params: SamplingParams,
    u: Tensor,
    max_top_k: int | None = None,
    *,
    inclusive: bool = False,
) -> Tensor:
    """Draw a code for each row by inverting the cumulative distribution at `u`.

    `logits` [B, V] f32; `recent` [B, V] bool, the codes whose repetition is penalised; `u` [B] f32
    in (0, 1); the rest as in `distribution`. Returns codes [B] i64.
    A code of probability zero is never drawn. A row with temperature 0 gets its first maximum.
    """
    probabilities = distribution(logits, recent, params, max_top_k, inclusive=inclusive)
    return invert(probabilities, u)


def distribution(
    logits: Tensor,
    recent: Tensor,
    params: SamplingParams,
    max_top_k: int | None = None,
    *,
    inclusive: bool = False,
) -> Tensor:
    """Return the probabilities [B, V] f32 that `sample` draws from; greedy rows are one-hot.

    Order: penalty, temperature, top-k (all ties at the threshold survive), top-p over what is
    left (a token stays while the mass strictly above it is below `top_p`; of tied tokens at that
    boundary the lowest ids stay; one token always stays), softmax.

    `max_top_k` promises that every row that is not greedy has 1 <= top_k <= max_top_k; the result
    is the same and costs a selection in place of a sort.

    `inclusive` is the rule of the delay-pattern models: of the tokens tied at the top-k threshold
    only the lowest ids survive, so that no more than `top_k` are left, and a token stays while the
    mass above it is at most `top_p`.
    """
    greedy = params.temperature == 0
    temperature = torch.where(greedy, 1.0, params.temperature)
    top_p = torch.where(greedy, 0.0, params.top_p)  # the nucleus of one token is the greedy choice
    scaled = penalise(logits, recent, params.penalty) / temperature[:, None]
    threshold, ties = _nucleus(scaled, params.top_k, top_p, max_top_k, inclusive)
    tied = scaled == threshold
    kept = (scaled > threshold) | (tied & (tied.cumsum(1, dtype=torch.int32) <= ties))
    return torch.where(kept, scaled, -torch.inf).softmax(1)


def penalise(logits: Tensor, recent: Tensor, penalty: Tensor) -> Tensor:
    """Divide positive and multiply negative logits of `recent` codes by `penalty` [B]."""
    penalty = penalty[:, None]
    penalised = torch.where(logits < 0, logits * penalty, logits / penalty)
    return torch.where(recent, penalised, logits)


def invert(probabilities: Tensor, u: Tensor) -> Tensor:
    """Return the first code [B] i64 where the cumulative `probabilities` [B, V] exceed `u` [B].

    Probabilities are summed as integers: exact in any order, so the sum never falls from one code
    to the next, and a code below 2**-40 counts as impossible.
    """
    cumulative = (probabilities * _ONE).to(torch.int64).cumsum(1)
    total = cumulative[:, -1]
    target = (u.to(torch.float64) * total).to(torch.int64).minimum(total - 1)
    codes = torch.searchsorted(cumulative, target[:, None], right=True)[:, 0]
    return codes.clamp(max=probabilities.shape[1] - 1)  # NaN logits must not become a wild index


def _nucleus(
    scaled: Tensor, top_k: Tensor, top_p: Tensor, max_top_k: int | None, inclusive: bool
) -> tuple[Tensor, Tensor]:
    """Return the smallest logit [B, 1] that survives, and how many of those equal to it do [B, 1].

    Only the `max_top_k` largest logits are put in order. Tokens tied with the k-th may lie beyond
    them; they share one weight, so counting them is enough.
    """
    vocabulary = scaled.shape[1]
    bound = vocabulary if max_top_k is None else min(max_top_k, vocabulary)
    best = scaled.topk(bound).values if bound < vocabulary else scaled.sort(descending=True).values
    k = torch.where(top_k <= 0, bound, top_k).clamp(max=bound)[:, None]
    kth = best.gather(1, k - 1)

    above = best > kth
    mass = (torch.exp(best - best[:, :1]) * above).cumsum(1)
    mass_above = mass[:, -1:]
    tie_weight = torch.exp(kth - best[:, :1])
    tie_count = (scaled == kth).sum(1, keepdim=True)
    if inclusive:
        tie_count = tie_count.minimum(k - above.sum(1, keepdim=True))
    limit = top_p[:, None] * (mass_above + tie_count * tie_weight)
    limit = torch.where(top_p[:, None] >= 1, torch.inf, limit)

    # `last` is the position in `best` of the last token that has less than `limit` above it.
    below = mass <= limit if inclusive else mass < limit
    last = (below & above).sum(1, keepdim=True)
    threshold = best.gather(1, last)
    ties_of_kth = (limit - mass_above) / tie_weight
    ties_of_kth = ties_of_kth.floor() + 1 if inclusive else ties_of_kth.ceil()
    ties_of_kth = ties_of_kth.clamp(min=1).minimum(tie_count)
    ties_above = last + 1 - (best > threshold).sum(1, keepdim=True)
    return threshold, torch.where(threshold == kth, ties_of_kth, ties_above)
