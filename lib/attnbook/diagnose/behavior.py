"""Tests of behavior: change inputs that must not matter, measure the outputs.

A model is any function of inputs: floats (B, T, C), or tokens (B, T), integers.
Its output has the same first two axes. Wrap what has another form, as in
`measure_leak(lambda x: model(x).logits, tokens)`, and call `.eval()` first.

Axes: B batch, T positions, C width
"""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

Model = Callable[[Tensor], Tensor]
WithLengths = Callable[[Tensor, Tensor], Tensor]


def measure_leak(model: Model, x: Shaped[Tensor, "B T ..."]) -> Float[Tensor, " T"]:
    """Return how much each output changes when only later inputs change.

    A causal model gives zeros, up to rounding.

    Raises:
        ValueError: if the model is not `call_in_eval_mode`, or all tokens are
        the same.
    """
    before, changed = call_in_eval_mode(model, x), perturb(x)
    changes = [0.0] * x.shape[1]
    for t in range(x.shape[1] - 1):
        mixed = torch.cat([x[:, : t + 1], changed[:, t + 1 :]], dim=1)
        changes[t] = float(
            measure_difference(
                call_without_gradients(model, mixed)[:, t], before[:, t]
            ).amax()
        )
    return torch.tensor(changes, device=x.device)


def measure_prefix_effect(
    model: Model, x: Shaped[Tensor, "B T ..."]
) -> Float[Tensor, " T"]:
    """Return how much each output changes when later inputs are removed.

    A causal model gives rounding. One that passes `measure_leak` and fails here
    counts positions from the end, or knows how long its input is.

    Raises:
        ValueError: if the model is not `call_in_eval_mode`.
    """
    whole = call_in_eval_mode(model, x)
    changes = [0.0] * x.shape[1]
    for t in range(x.shape[1] - 1):
        alone = call_without_gradients(model, x[:, : t + 1])
        changes[t] = float(measure_difference(alone[:, t], whole[:, t]).amax())
    return torch.tensor(changes, device=x.device)


def measure_padding_effect(
    model: WithLengths,
    x: Shaped[Tensor, "B T ..."],
    lengths: Int[Tensor, " B"],
) -> Float[Tensor, " B"]:
    """Return how much the real outputs change when only padding changes.

    Args:
        model: maps inputs and lengths to outputs (B, T, ...).
        x: inputs; those at and after a sequence's length are padding.
        lengths: of the sequences.

    Raises:
        ValueError: if the model is not `call_in_eval_mode`, or all tokens are
        the same.
    """
    real = mark_real_positions(x, lengths)
    keep = real.view(*real.shape, *[1] * (x.ndim - 2))
    before = call_in_eval_mode(lambda x: model(x, lengths), x)
    after = call_without_gradients(
        lambda x: model(x, lengths), torch.where(keep, x, perturb(x))
    )
    return measure_difference(after, before).masked_fill(~real, 0).amax(1)


def measure_longer_padding(
    model: WithLengths,
    x: Shaped[Tensor, "B T ..."],
    lengths: Int[Tensor, " B"],
    pad: int | float = 0,
    more: int = 3,
) -> Float[Tensor, " B"]:
    """Return how much the real outputs change when more padding is added.

    This also tests models that find the padding themselves, by its token:
    `measure_longer_padding(lambda x, n: model(x), tokens, lengths, pad=0)`.

    Args:
        model: maps inputs and lengths to outputs (B, T, ...).
        x: inputs; those at and after a sequence's length are padding.
        lengths: of the sequences.
        pad: what is added, `more` positions of it.
        more: positions.

    Raises:
        ValueError: if the model is not `call_in_eval_mode`.
    """
    real = mark_real_positions(x, lengths)
    end = torch.full_like(x[:, :1], pad).repeat_interleave(more, dim=1)
    before = call_in_eval_mode(lambda x: model(x, lengths), x)
    after = call_without_gradients(
        lambda x: model(x, lengths), torch.cat([x, end], dim=1)
    )
    return (
        measure_difference(after[:, : x.shape[1]], before).masked_fill(~real, 0).amax(1)
    )


def measure_batch_effect(
    model: Model, x: Shaped[Tensor, "B T ..."]
) -> Float[Tensor, " B"]:
    """Return how much each sequence's output changes when the others do.

    Raises:
        ValueError: if the model is not `call_in_eval_mode`, all tokens are the
        same, or
            there is one sequence only.
    """
    if len(x) < 2:
        raise ValueError(f"a batch of {len(x)} sequence has no others; give at least 2")
    before, changed = call_in_eval_mode(model, x), perturb(x)
    changes = []
    for b in range(len(x)):
        mixed = changed.clone()
        mixed[b] = x[b]
        changes.append(
            float(
                measure_difference(
                    call_without_gradients(model, mixed)[b], before[b]
                ).amax()
            )
        )
    return torch.tensor(changes, device=x.device)


def measure_order_effect(model: Model, x: Shaped[Tensor, "B T ..."]) -> float:
    """Return how far reversing the inputs is from reversing the outputs.

    A model that cannot distinguish orders gives 0, up to rounding.

    Raises:
        ValueError: if the model is not `call_in_eval_mode`.
    """
    straight = call_in_eval_mode(model, x)
    return float(
        measure_difference(
            call_without_gradients(model, x.flip(1)).flip(1), straight
        ).amax()
    )


def measure_randomness(model: Model, x: Shaped[Tensor, "B T ..."]) -> float:
    """Return how much two calls with the same inputs differ."""
    return float(
        measure_difference(
            call_without_gradients(model, x), call_without_gradients(model, x)
        ).amax()
    )


def call_in_eval_mode(model: Model, x: Tensor) -> Tensor:
    """Return the model's output.

    Raises:
        ValueError: if a second call gives another output: the tests mean
            nothing before dropout is off.
    """
    first = call_without_gradients(model, x)
    change = float(measure_difference(call_without_gradients(model, x), first).amax())
    if change > 0 and not first.isnan().any():
        raise ValueError(
            f"two calls with the same inputs differ by {change:.3g}: "
            "is the model in evaluation mode?"
        )
    return first


def call_without_gradients(model: Model, x: Tensor) -> Tensor:
    """Return the model's output, without gradients."""
    with torch.no_grad():
        return model(x)


def perturb(x: Tensor) -> Tensor:
    """Return other inputs: floats negated and shifted, tokens exchanged.

    Raises:
        ValueError: if all tokens are the same: another one is not known.
    """
    if x.is_floating_point():
        return 1 - x
    most = x.amax()
    if x.amin() == most:
        raise ValueError(
            f"all tokens are {int(most)}: give at least two different ones"
        )
    return torch.where(x < most, most, x.amin())


def measure_difference(one: Tensor, another: Tensor) -> Tensor:
    """Return the largest difference over all axes after the first two.

    NaN in either counts as infinitely far, so that it is never 0.
    """
    gap = (one.double() - another.double()).abs().nan_to_num(nan=torch.inf)
    # Two equal infinities are no distance apart, though they subtract to NaN.
    gap = gap.masked_fill(one == another, 0.0).float()
    return gap.flatten(2).amax(2) if gap.ndim > 2 else gap


def mark_real_positions(x: Tensor, lengths: Tensor) -> Tensor:
    """Return (B, T), True before a sequence's length."""
    return torch.arange(x.shape[1], device=x.device) < lengths[:, None]
