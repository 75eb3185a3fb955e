"""Alarms: heads of a model whose numbers are unusual among sound models.

A threshold is what few heads of sound models exceed: it says what is unusual, not
what is wrong. Chapter 15 compares a sound model with five broken ones.

Source: weight on the first position: Xiao et al. (2023), section 3.1,
    https://arxiv.org/abs/2309.17453; ablation of heads: Michel et al. (2019),
    section 2, https://arxiv.org/abs/1905.10650
Axes: B batch, H heads, T queries, S keys, R queries that count, E width of a head's
    values
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from attnbook.diagnose.behavior import call_in_eval_mode
from attnbook.diagnose.recording import remove_head, watch_heads
from attnbook.diagnose.weights import normalized_entropy

Numbers = dict[str, dict[str, Tensor]]  # of a layer's name: number -> (H,)

# An alarm: the number that it reads, and whether large numbers raise it.
ALARMS = {
    "similar": ("similarity", True),
    "uniform": ("entropy", True),
    "saturated": ("entropy", False),
    "first position": ("first_weight", True),
    "small output": ("output", False),
    "no effect": ("effect", False),
}
# One in a hundred heads of the book's trained models is beyond each of these:
# the recorded run `head_alarms` found them.
THRESHOLDS = {
    "similar": 0.916,
    "uniform": 0.9,
    "saturated": 0.0496,
    "first position": 0.369,
    "small output": 0.643,
    "no effect": 0.0587,
}


class HeadAlarm(NamedTuple):
    """A head, counted from 0, whose number `value` is beyond a threshold."""

    layer: str
    head: int
    alarm: str
    value: float
    threshold: float


def find_head_alarms(
    model: nn.Module,
    run: Callable[[], Tensor],
    queries: Bool[Tensor, "B T"] | None = None,
    thresholds: Mapping[str, float] = THRESHOLDS,
) -> list[HeadAlarm]:
    """Return the alarms of all heads of a model, layer by layer.

    Args:
        model: as `measure_heads` takes it, as are `run` and `queries`.
        thresholds: of the alarms that are wanted. Without "no effect" the
            model runs three times; with it, once more for each head.

    Raises:
        ValueError: if an alarm is not known, or as `measure_heads` does.
    """
    for alarm in thresholds:
        if alarm not in ALARMS:
            raise ValueError(f"no alarm is named {alarm!r}; there are {[*ALARMS]}")
    numbers = measure_heads(model, run, queries, "no effect" in thresholds)
    return compare_with_thresholds(numbers, thresholds)


def compare_with_thresholds(
    numbers: Mapping[str, Mapping[str, Tensor]],
    thresholds: Mapping[str, float] = THRESHOLDS,
) -> list[HeadAlarm]:
    """Return the alarms that the numbers of `measure_heads` raise; NaN raises none."""
    found = []
    for layer, table in numbers.items():
        for alarm, threshold in thresholds.items():
            name, large = ALARMS[alarm]
            for head, value in enumerate(table[name].tolist() if name in table else []):
                if value >= threshold if large else value <= threshold:
                    found.append(HeadAlarm(layer, head, alarm, value, threshold))
    return found


def measure_heads(
    model: nn.Module,
    run: Callable[[], Tensor],
    queries: Bool[Tensor, "B T"] | None = None,
    effects: bool = True,
) -> Numbers:
    """Return the numbers that `ALARMS` are about, (H,) by layer and name.

    - `similarity`: the mean cosine with the rows of the most similar other head.
    - `entropy`: the mean normalized entropy of the rows. The visible keys of a
      query are those that have a weight above 0 in some head.
    - `first_weight`: the mean weight on the first key.
    - `output`: the mean length of the vectors that a head adds to the layer's
      output, divided by the mean of the layer's heads.
    - `effect`: the root mean square change of the model's output without the
      head, divided by the standard deviation of that output.

    The first three are means over queries with at least two visible keys; what is
    not defined is NaN.

    Args:
        model: in evaluation mode; its attention layers are PyTorch's
            `nn.MultiheadAttention` or this library's `MultiHeadAttention`.
        run: calls the model once and returns its output (B, T, ...).
        queries: True where a query counts, to leave out padding.
        effects: whether to measure `effect`: one more run for each head.

    Raises:
        ValueError: if the model has no such layer, is not in evaluation mode,
            or a layer has queries of another shape than `queries`.
    """
    with watch_heads(model) as watched, torch.no_grad():
        run()
    before = call_in_eval_mode(lambda _: run(), torch.empty(0))
    found: Numbers = {}
    for name, (projection, calls) in watched.items():
        if not calls:
            continue
        rows = [describe_rows(*call, projection, queries) for call in calls]
        means = {k: torch.cat([x[k] for x in rows]).mean(dim=0) for k in rows[0]}
        heads = len(means["output"])
        others = means["similarity"].fill_diagonal_(-torch.inf).amax(dim=-1)
        means["similarity"] = others.masked_fill(others.isinf(), torch.nan)
        means["output"] = means["output"] / means["output"].mean()
        if effects:
            changes = []
            for head in range(heads):
                with remove_head(projection, head, heads), torch.no_grad():
                    change = pick(run() - before, queries)
                changes.append(
                    change.square().mean().sqrt() / pick(before, queries).std()
                )
            means["effect"] = torch.stack(changes)
        found[name] = means
    return found


def pick(x: Tensor, queries: Bool[Tensor, "B T"] | None) -> Tensor:
    """Return the rows of the queries that count, if x has such rows."""
    return x if queries is None or queries.shape != x.shape[:2] else x[queries]


def describe_rows(
    weights: Float[Tensor, "B H T S"],
    outputs: Float[Tensor, "B H T E"],
    projection: nn.Linear,
    queries: Bool[Tensor, "B T"] | None,
) -> dict[str, Tensor]:
    """Return the numbers of each query that counts, (R, H) or (R, H, H)."""
    visible = (weights > 0).any(dim=1)  # (B, T, S)
    if queries is None:
        queries = torch.ones_like(visible[..., 0])
    if queries.shape != visible.shape[:2]:
        raise ValueError(
            f"`queries` has shape {tuple(queries.shape)}, but a layer's "
            f"queries have {tuple(visible.shape[:2])}"
        )
    several = queries & (visible.sum(dim=-1) > 1)
    rows = weights.transpose(1, 2)[several]  # (R, H, S)
    unit = F.normalize(rows, dim=-1)
    matrix = projection.weight.detach().unflatten(1, (weights.shape[1], -1))
    added = torch.einsum("bhte,che->bthc", outputs, matrix)
    return {
        "similarity": unit @ unit.mT,
        "entropy": normalized_entropy(rows, visible[several][:, None]),
        "first_weight": rows[..., 0],
        "output": added.norm(dim=-1)[queries],
    }
