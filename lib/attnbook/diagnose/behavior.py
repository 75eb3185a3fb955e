"""Tests of behavior: change inputs that must not matter, measure the outputs.

A model is any function of inputs: floats (B, T, C), or tokens (B, T), integers.
Its output has the same first two axes; of a dict, a tuple or a `ModelOutput` the
first tensor is compared. Call `.eval()` first: all but `measure_randomness` refuse a
model that gives two outputs for one input. Tokens must not all be the same. Padding may
be on either side where a test takes lengths; the other tests need sequences without
padding. All refuse lengths or documents that the batch cannot have.

Axes: B batch, T positions, C width
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from attnbook.diagnose.recording import fast_path, find_attention_layers, read_output

Model = Callable[[Tensor], Any]
# Of inputs, and of lengths or documents.
ModelOfTwo = Callable[[Tensor, Tensor], Any]
SIDES = "left", "right"


def measure_leak(model: Model, x: Shaped[Tensor, "B T ..."]) -> Float[Tensor, " T"]:
    """Return how much each output changes when only later inputs change.

    A causal model gives zeros, up to rounding.
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
    """
    whole = call_in_eval_mode(model, x)
    changes = [0.0] * x.shape[1]
    for t in range(x.shape[1] - 1):
        alone = call_without_gradients(model, x[:, : t + 1])
        changes[t] = float(measure_difference(alone[:, t], whole[:, t]).amax())
    return torch.tensor(changes, device=x.device)


def measure_padding_effect(
    model: ModelOfTwo,
    x: Shaped[Tensor, "B T ..."],
    lengths: Int[Tensor, " B"],
    side: str = "right",
) -> Float[Tensor, " B"]:
    """Return how much the real outputs change when only padding changes.

    Args:
        model: maps inputs and lengths to outputs (B, T, ...).
        x: inputs, of which all but a sequence's length are padding.
        lengths: of the sequences.
        side: of the padding, "left" or "right".
    """
    real = mark_real_positions(x, lengths, side)
    keep = real.view(*real.shape, *[1] * (x.ndim - 2))
    before = call_in_eval_mode(lambda x: model(x, lengths), x)
    after = call_without_gradients(
        lambda x: model(x, lengths), torch.where(keep, x, perturb(x))
    )
    return measure_difference(after, before).masked_fill(~real, 0).amax(1)


def measure_longer_padding(
    model: ModelOfTwo,
    x: Shaped[Tensor, "B T ..."],
    lengths: Int[Tensor, " B"],
    pad: int | float = 0,
    more: int = 3,
    side: str = "right",
) -> Float[Tensor, " B"]:
    """Return how much the real outputs change when more padding is added.

    This also tests models that find the padding themselves, by its token:
    `measure_longer_padding(lambda x, n: model(x), tokens, lengths, pad=0)`. On
    the left it finds positions that count the padding.

    Args:
        model: maps inputs and lengths to outputs (B, T, ...).
        x: inputs, of which all but a sequence's length are padding.
        lengths: of the sequences.
        pad: what is added, `more` positions of it.
        more: positions.
        side: of the padding, "left" or "right".
    """
    real = mark_real_positions(x, lengths, side)
    added = torch.full_like(x[:, :1], pad).repeat_interleave(more, dim=1)
    longer = torch.cat([added, x] if side == "left" else [x, added], dim=1)
    before = call_in_eval_mode(lambda x: model(x, lengths), x)
    after = call_without_gradients(lambda x: model(x, lengths), longer)
    after = after[:, more:] if side == "left" else after[:, : x.shape[1]]
    return measure_difference(after, before).masked_fill(~real, 0).amax(1)


def measure_packing_effect(
    model: ModelOfTwo, x: Shaped[Tensor, "B T ..."], documents: Int[Tensor, "B T"]
) -> Float[Tensor, "B T"]:
    """Return how much each output differs from that of its document alone.

    A model that packs documents rightly gives zeros, up to rounding: attention
    crosses no boundary, and positions restart at each.

    Args:
        model: maps inputs and the number of each one's document to outputs.
        x: several documents in a row.
        documents: the number of each input's document.
    """
    boundary = documents[:, 1:] != documents[:, :-1]
    if documents.shape != x.shape[:2] or not boundary.any():
        raise ValueError(
            f"documents {tuple(documents.shape)} must give inputs {tuple(x.shape[:2])} "
            f"their numbers and change within a row; they change {int(boundary.sum())} "
            "times"
        )
    whole = call_in_eval_mode(lambda x: model(x, documents), x)
    changes = torch.zeros(x.shape[:2], device=x.device)
    for b in range(len(x)):
        ends = [*(boundary[b].nonzero()[:, 0] + 1).tolist(), x.shape[1]]
        start = 0
        for stop in ends:
            part = slice(b, b + 1), slice(start, stop)
            numbers = documents[part]
            alone = call_without_gradients(lambda x, n=numbers: model(x, n), x[part])
            changes[part] = measure_difference(alone, whole[part])
            start = stop
    return changes


def measure_batch_effect(
    model: Model, x: Shaped[Tensor, "B T ..."]
) -> Float[Tensor, " B"]:
    """Return how much each sequence's output changes when the others do."""
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
        return read_output(model(x))


def perturb(x: Tensor) -> Tensor:
    """Return other inputs: floats negated and shifted, tokens exchanged."""
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


def mark_real_positions(x: Tensor, lengths: Tensor, side: str = "right") -> Tensor:
    """Return (B, T), True where an input is no padding."""
    if side not in SIDES:
        raise ValueError(f"padding is on the left or the right, not {side!r}")
    (B, T), device = x.shape[:2], x.device
    if lengths.shape != (B,) or not 0 <= lengths.min() <= lengths.max() <= T:
        raise ValueError(
            f"{B} sequences of {T} positions need {B} lengths from 0 to {T}, not "
            f"{lengths.tolist()}"
        )
    position = torch.arange(T, device=device)
    if side == "left":
        position = position.flip(0)
    return position < lengths[:, None]


def measure_path_effects(
    model: nn.Module, *args: Any, **kwargs: Any
) -> dict[str, float]:
    """Return how far other ways of running a model change its output.

    Each way is compared with evaluation mode without gradients and without
    fused layers. A sound model gives rounding everywhere, in bfloat16 that of 3
    significant digits.

    Args:
        model: its mode and its dropout are as before afterwards.
        *args: of the model.
        **kwargs: of the model.

    Returns:
        "training": in training mode, with every dropout at 0; "gradients": with
        gradients on; "fast path": with PyTorch's fused encoder layers;
        "weights": with weights asked for, if layers have `need_weights`;
        "bfloat16": under autocast.
    """

    def run() -> Tensor:
        return read_output(model(*args, **kwargs))

    found = {}
    with torch.no_grad(), fast_path(False), set_mode(model, training=False):
        expected = run()

        def compare(name: str, output: Tensor) -> None:
            found[name] = float(measure_difference(output.detach(), expected).amax())

        with set_mode(model, training=True):
            compare("training", run())
        with torch.enable_grad():
            compare("gradients", run())
        with fast_path(True):
            compare("fast path", run())
        layers = find_attention_layers(model)
        if layers:
            with ask_for_weights([*layers.values()]):
                compare("weights", run())
        with torch.autocast(expected.device.type, torch.bfloat16):
            compare("bfloat16", run())
    return found


@contextmanager
def set_mode(model: nn.Module, training: bool) -> Iterator[None]:
    """Set training or evaluation mode, without dropout, for a while."""
    modules = [*model.modules()]
    modes = [m.training for m in modules]
    # `nn.MultiheadAttention` and others keep the rate as a number.
    rates = [
        (m, name, getattr(m, name))
        for m in modules
        for name in ("dropout", "p", "attention_dropout", "dropout_p")
        if isinstance(getattr(m, name, None), float)
    ]
    model.train(training)
    for module, name, _ in rates:
        setattr(module, name, 0.0)
    try:
        yield
    finally:
        for module, mode in zip(modules, modes, strict=True):
            module.training = mode
        for module, name, rate in rates:
            setattr(module, name, rate)


@contextmanager
def ask_for_weights(layers: list[nn.Module]) -> Iterator[None]:
    """Let layers compute their weights, and return what they returned before."""

    def wrap(forward: Callable) -> Callable:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            usual = forward(*args, **kwargs)
            output, *_ = forward(*args, **kwargs | {"need_weights": True})
            return (output, *usual[1:]) if isinstance(usual, tuple) else output

        return wrapped

    for layer in layers:
        layer.forward = wrap(layer.forward)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward
