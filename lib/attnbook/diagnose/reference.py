"""A function of your own against `attend`, and against the usual mistakes.

Source: the mistakes are those of published code, each with
    its thread in the chapters' pitfalls
Axes: B batch, H heads, T queries, S keys, D width of query and key, E of values
"""

from collections.abc import Callable

import torch
from torch import Tensor

from attnbook.attention.scaled_dot_product import attend
from attnbook.diagnose.behavior import measure_difference

Attention = Callable[..., Tensor]
CLOSE = 1e-4  # the largest difference of numbers taken to be the same

# T, S, D, E, and the kind of mask: a different prime on every axis, because
# equal axes hide a transpose.
CASES = {
    "no mask": (5, 7, 11, 13, None),
    "as many queries as keys": (7, 7, 11, 11, None),
    "a mask": (5, 7, 11, 13, "some"),
    "a causal mask": (7, 7, 11, 11, "causal"),
    "a query that sees no key": (5, 7, 11, 13, "empty"),
    "large scores": (5, 7, 11, 13, "loud"),
}


def draw_case(
    name: str, device: torch.device | str
) -> tuple[list[Tensor], Tensor | None]:
    """Return query, key and value of a case, and its mask, on a device.

    They are drawn on the CPU, so that they are the same on every device.
    """
    T, S, D, E, kind = CASES[name]
    # A notebook may have set another default device.
    cpu = {"generator": torch.Generator("cpu").manual_seed(7), "device": "cpu"}
    shapes = (T, D), (S, D), (S, E)
    inputs = [torch.randn(2, 3, *shape, **cpu) for shape in shapes]
    if kind == "loud":
        inputs[0] = 40 * inputs[0]
    if kind not in ("some", "causal", "empty"):
        return [x.to(device) for x in inputs], None
    mask = torch.rand(2, 1, T, S, **cpu) < 0.6
    mask[..., 0] = True
    if kind == "causal":
        mask = torch.ones(T, S, dtype=torch.bool, device="cpu").tril()
    if kind == "empty":
        mask[0, :, 2] = False
    return [x.to(device) for x in inputs], mask.to(device)


def run_case(
    function: Attention, name: str, device: torch.device | str, gradients: bool = False
) -> list[Tensor]:
    """Return a function's output for a case, and its gradients if wanted."""
    inputs, mask = draw_case(name, device)
    given = inputs if mask is None else [*inputs, mask]
    try:
        if not gradients:
            with torch.no_grad():
                return [function(*given)]
        with torch.enable_grad():
            leaves = [x.requires_grad_() for x in inputs]
            output = function(*given)
            if not isinstance(output, Tensor) or not output.requires_grad:
                raise TypeError(
                    "its output has no gradient; gradients=False compares outputs only"
                )
            # Another weight for each number: their sum would not depend on the
            # weights of a row whose values are equal.
            upstream = torch.linspace(-1, 1, output.numel(), device=output.device)
            upstream = upstream.view(output.shape).to(output.dtype)
            found = torch.autograd.grad(output, leaves, upstream, allow_unused=True)
    except Exception as error:
        raise ValueError(
            f"it fails at {name!r}: {type(error).__name__}: {error}"
        ) from error
    zeros = map(torch.zeros_like, leaves)
    filled = (z if g is None else g for g, z in zip(found, zeros, strict=True))
    return [output.detach(), *filled]


def compare_with_reference(
    function: Attention, device: torch.device | str = "cpu", gradients: bool = True
) -> dict[str, float]:
    """Return the largest difference of a function from `attend`, by case.

    Where the output agrees, a gradient that differs has a line of its own, such
    as "a mask, gradient of the query"; one that is NaN differs by infinity.

    Args:
        function: of query (B, H, T, D), key (B, H, S, D), value (B, H, S, E)
            and, as a fourth argument, a boolean mask, True = can attend. Wrap
            what expects another form:
            `compare_with_reference(lambda q, k, v, m=None: mine(q, k, v, ~m))`.
        device: of the inputs; a module's weights must be there too.
        gradients: whether to compare those on query, key and value as well.

    Raises:
        ValueError: if the function fails, gives another shape, or has no
            gradient.
    """
    found = {}
    for name in CASES:
        ours = run_case(attend, name, device, gradients)
        theirs = run_case(function, name, device, gradients)
        if ours[0].shape != theirs[0].shape:
            raise ValueError(
                f"at {name!r} it gives {tuple(theirs[0].shape)}, "
                f"but {tuple(ours[0].shape)} is right"
            )
        found[name] = float(measure_difference(theirs[0], ours[0]).amax())
        names = ("query", "key", "value") if gradients else ()
        for of, right, x in zip(names, ours[1:], theirs[1:], strict=True):
            # Gradients of large scores are large: the difference is relative.
            size = float(right.abs().amax().clamp(min=1))
            difference = float(measure_difference(x, right).amax()) / size
            if found[name] < CLOSE and not difference < CLOSE:
                found[f"{name}, gradient of the {of}"] = difference
    return found


def attend_with_scale(factor: Callable[[Tensor], float]) -> Attention:
    """Return attention with another scale, made from the query."""
    return lambda q, k, v, mask=None: attend(q, k, v, mask, scale=factor(q))


def compute_unmasked_weights(q: Tensor, k: Tensor, axis: int = -1) -> Tensor:
    """Return the weights without any mask."""
    return (q @ k.mT * q.shape[-1] ** -0.5).softmax(axis)


def attend_uniformly_if_empty(q, k, v, mask=None):
    """Fill with a large negative number: an empty row becomes uniform."""
    scores = q @ k.mT * q.shape[-1] ** -0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, -1e9)
    return scores.softmax(-1) @ v


MISTAKES: dict[str, Attention] = {
    "the scores are not scaled": attend_with_scale(lambda q: 1.0),
    "divided by D, not by its root": attend_with_scale(lambda q: 1 / q.shape[-1]),
    "divided by the root of H · D": attend_with_scale(
        lambda q: (q.shape[1] * q.shape[-1]) ** -0.5
    ),
    "divided by the root of H": attend_with_scale(lambda q: q.shape[1] ** -0.5),
    "the mask the other way round": lambda q, k, v, mask=None: attend(
        q, k, v, None if mask is None else ~mask
    ),
    "the mask is not used": lambda q, k, v, mask=None: attend(q, k, v),
    "masked after the softmax": lambda q, k, v, mask=None: (
        compute_unmasked_weights(q, k) * (1 if mask is None else mask) @ v
    ),
    "softmax over the queries": lambda q, k, v, mask=None: (
        compute_unmasked_weights(q, k, -2) * (1 if mask is None else mask) @ v
    ),
    "a row without a key becomes uniform": attend_uniformly_if_empty,
}


def find_known_mistakes(
    function: Attention, close: float = CLOSE, device: torch.device | str = "cpu"
) -> list[str]:
    """Return the usual mistakes that give exactly this function's numbers.

    A mistake counts if it explains every case, and some case is wrong.

    Args:
        function: as `compare_with_reference` takes it.
        close: the largest difference of numbers taken to be the same.
        device: of the inputs; a module's weights must be there too.
    """
    outputs = compare_with_reference(function, device, gradients=False)
    if max(outputs.values()) < close:
        return []
    return [
        mistake
        for mistake, wrong in MISTAKES.items()
        if all(
            measure_difference(
                run_case(function, name, device)[0], run_case(wrong, name, device)[0]
            ).amax()
            < close
            for name in CASES
        )
    ]
