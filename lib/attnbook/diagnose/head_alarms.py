"""Alarms: heads of a model whose numbers are unusual among sound models.

Five numbers are measured for each head, and an alarm is raised if a number is
beyond its threshold. A threshold is what few heads of sound models exceed: it
says what is unusual, not what is wrong. Chapter 15 compares a sound model with
five broken ones.

Source: uniform and saturated weights, similar heads: the symptoms of chapter 6;
    weight on the first position: Xiao et al. (2023), section 3.1,
    https://arxiv.org/abs/2309.17453; ablation of heads: Michel et al. (2019),
    section 2, https://arxiv.org/abs/1905.10650
Axes: B batch, H heads, T queries, S keys, R queries that count, C model width,
    E width of a head's values
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from unittest import mock

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from attnbook.attention.multi_head import MultiHeadAttention, split_heads
from attnbook.diagnose.behavior import call_in_eval_mode
from attnbook.diagnose.recording import record_attention
from attnbook.diagnose.weights import normalized_entropy
from attnbook.models.attention_maps import record_weights

Numbers = dict[str, dict[str, Tensor]]  # of a layer's name: number -> (H,)
Layer = nn.MultiheadAttention | MultiHeadAttention

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


@dataclass(frozen=True)
class HeadAlarm:
    """A head whose number is beyond a threshold.

    Attributes:
        layer: the name of its attention layer.
        head: its number, from 0.
        alarm: one of `ALARMS`.
        value: the number.
        threshold: of the alarm.
    """

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
        model: in evaluation mode; its attention layers are PyTorch's
            `nn.MultiheadAttention` or this library's `MultiHeadAttention`.
        run: calls the model once and returns its output (B, T, ...).
        queries: True where a query counts, to leave out padding; all unless
            given.
        thresholds: of the alarms that are wanted. Without "no effect" the
            model runs twice; with it, once more for each head.

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
    """Return the alarms that numbers of heads raise; NaN raises none.

    Args:
        numbers: as `measure_heads` returns them.
        thresholds: of the alarms that are wanted.
    """
    found = []
    for layer, table in numbers.items():
        for alarm, threshold in thresholds.items():
            name, large = ALARMS[alarm]
            values = table[name].tolist() if name in table else []
            for head, value in enumerate(values):
                if value >= threshold if large else value <= threshold:
                    found.append(HeadAlarm(layer, head, alarm, value, threshold))
    return found


def measure_heads(
    model: nn.Module,
    run: Callable[[], Tensor],
    queries: Bool[Tensor, "B T"] | None = None,
    effects: bool = True,
) -> Numbers:
    """Return the numbers that `ALARMS` are about, for each layer and head.

    - `similarity`: the mean cosine of a head's rows of weights and those of the
      most similar other head of the layer.
    - `entropy`: the mean normalized entropy of its rows. The visible keys of a
      query are those that have a weight above 0 in some head.
    - `first_weight`: its mean weight on the first key.
    - `output`: the mean length of the vectors that it adds to the layer's
      output, divided by the mean of the layer's heads.
    - `effect`: the root mean square change of the model's output without the
      head, divided by the standard deviation of that output.

    The first three are means over queries that have at least two visible keys.
    A number that is not defined is NaN.

    Args:
        model: in evaluation mode; its attention layers are PyTorch's
            `nn.MultiheadAttention` or this library's `MultiHeadAttention`.
        run: calls the model once and returns its output (B, T, ...).
        queries: True where a query counts; all unless given.
        effects: whether to measure `effect`: one more run for each head.

    Returns:
        For each layer's name and each number a tensor (H,). A layer that does
        not run is left out.

    Raises:
        ValueError: if the model has no such layer, is not in evaluation mode,
            or a layer has queries of another shape than `queries`.
    """
    # One call to record, and two more that tell whether dropout is off.
    layers = find_layers(model)
    with watch_heads(model) as watched, torch.no_grad():
        run()
    before = call_in_eval_mode(lambda _: run(), torch.empty(0))
    found: Numbers = {}
    for name, calls in watched.items():
        if not calls:
            continue
        output, heads = get_projection(layers[name])
        rows = [describe_rows(*call, output, queries) for call in calls]
        found[name] = summarize_rows(rows)
        if effects:
            changes = []
            for head in range(heads):
                with remove_head(output, head, heads):
                    changes.append(compare_outputs(run, before, queries))
            found[name]["effect"] = torch.stack(changes)
    return found


def find_layers(model: nn.Module) -> dict[str, Layer]:
    """Return a model's attention layers by name.

    Raises:
        ValueError: if the model has none.
    """
    layers = {
        name: layer
        for name, layer in model.named_modules()
        if isinstance(layer, nn.MultiheadAttention | MultiHeadAttention)
    }
    if not layers:
        raise ValueError(
            f"{type(model).__name__} has no attention layer: neither "
            "nn.MultiheadAttention nor attnbook's MultiHeadAttention"
        )
    return layers


def get_projection(layer: Layer) -> tuple[nn.Linear, int]:
    """Return an attention layer's output projection, and its heads."""
    if isinstance(layer, nn.MultiheadAttention):
        return layer.out_proj, layer.num_heads
    return layer.output, layer.heads


@contextmanager
def watch_heads(
    model: nn.Module,
) -> Iterator[dict[str, list[tuple[Tensor, Tensor]]]]:
    """Keep weights and outputs of all heads while the model runs.

    Yields:
        For each attention layer's name one pair a call: the weights
        (B, H, T, S), and the heads' averages of the values (B, H, T, E).

    Raises:
        ValueError: if the model has no attention layer.
    """
    layers = find_layers(model)
    kept: dict[str, list[tuple[Tensor, Tensor]]] = {name: [] for name in layers}
    with ExitStack() as stack:
        for name, layer in layers.items():
            if isinstance(layer, nn.MultiheadAttention):
                stack.enter_context(watch_pytorch(layer, kept[name]))
            else:
                stack.enter_context(watch_own(layer, kept[name]))
        yield kept


@contextmanager
def watch_own(layer: MultiHeadAttention, kept: list) -> Iterator[None]:
    """Keep what each call of a layer of this library computes."""
    with record_weights([layer]) as weights:

        def keep(module: nn.Module, given: tuple[Tensor]) -> None:
            merged = given[0].detach()
            kept.append((weights.pop().detach(), split_heads(merged, layer.heads)))

        hook = layer.output.register_forward_pre_hook(keep)
        try:
            yield
        finally:
            hook.remove()


@contextmanager
def watch_pytorch(layer: nn.MultiheadAttention, kept: list) -> Iterator[None]:
    """Keep what each call of PyTorch's layer computes.

    It returns no heads' outputs: they are weights times projected values.
    """
    with record_attention(layer) as recorded:

        def keep(module: nn.Module, args: tuple, kwargs: dict, _) -> None:
            value = kwargs["value"] if "value" in kwargs else args[2]
            weights = recorded[""].pop()
            if value.ndim == 2:
                value, weights = value[None], weights[None]
            elif not layer.batch_first:
                value = value.transpose(0, 1)
            values = split_heads(project_values(layer, value), layer.num_heads)
            kept.append((weights, weights @ values))

        hook = layer.register_forward_hook(keep, with_kwargs=True)
        try:
            yield
        finally:
            hook.remove()


@torch.no_grad()
def project_values(
    layer: nn.MultiheadAttention, value: Float[Tensor, "B S M"]
) -> Float[Tensor, "B S C"]:
    """Return the projected values of all heads of PyTorch's layer."""
    whole, bias = layer.in_proj_weight, layer.in_proj_bias
    W = layer.v_proj_weight if whole is None else whole.chunk(3)[2]
    return F.linear(value, W, None if bias is None else bias.chunk(3)[2])


def describe_rows(
    weights: Float[Tensor, "B H T S"],
    outputs: Float[Tensor, "B H T E"],
    projection: nn.Linear,
    queries: Bool[Tensor, "B T"] | None,
) -> dict[str, Tensor]:
    """Return the numbers of each query that counts, (R, H) or (R, H, H).

    Raises:
        ValueError: if the layer has queries of another shape.
    """
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
    seen = visible[several][:, None]
    unit = F.normalize(rows, dim=-1)
    matrix = projection.weight.detach().unflatten(1, (weights.shape[1], -1))
    added = torch.einsum("bhte,che->bthc", outputs, matrix)
    return {
        "similarity": unit @ unit.mT,
        "entropy": normalized_entropy(rows, seen),
        "first_weight": rows[..., 0],
        "output": added.norm(dim=-1)[queries],
    }


def summarize_rows(rows: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Return each head's numbers (H,) from those of all calls' queries."""
    means = {
        name: torch.cat([call[name] for call in rows]).mean(dim=0) for name in rows[0]
    }
    others = means["similarity"].clone().fill_diagonal_(-torch.inf).amax(dim=-1)
    means["similarity"] = others.masked_fill(others.isinf(), torch.nan)
    means["output"] = means["output"] / means["output"].mean()
    return means


@contextmanager
def remove_head(output: nn.Linear, head: int, heads: int) -> Iterator[None]:
    """Run without a head: its columns of the output projection are zeros.

    Unlike `ablate_heads`, which changes the projection's input, this works on
    PyTorch's layer as well, which reads the weights without calling the module.

    Raises:
        ValueError: if the weights are computed by a parametrization.
    """
    if "weight" not in output._parameters:
        raise ValueError(
            f"the weights of {type(output).__name__} are not a parameter, so "
            f"head {head} of {heads} cannot be removed"
        )
    weight = output.weight.detach().clone()
    weight.unflatten(1, (heads, -1))[:, head] = 0.0
    changed = {"weight": nn.Parameter(weight, requires_grad=False)}
    with mock.patch.dict(output._parameters, changed):
        yield


@torch.no_grad()
def compare_outputs(
    run: Callable[[], Tensor],
    before: Float[Tensor, "B T ..."],
    queries: Bool[Tensor, "B T"] | None,
) -> Float[Tensor, ""]:
    """Return how much the output differs from that before, relative to it."""
    after = run()
    if queries is not None and queries.shape == before.shape[:2]:
        before, after = before[queries], after[queries]
    return (after - before).square().mean().sqrt() / before.std()
