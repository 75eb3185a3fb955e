"""A model from inside: weights, heads, the first NaN, parameters without gradient.

Axes: B batch, H heads, T queries, S keys, E width of a head's values
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnbook.attention.multi_head import MultiHeadAttention, split_heads
from attnbook.models import hooks


@contextmanager
def record_attention(model: nn.Module) -> Iterator[dict[str, list[Tensor]]]:
    """Keep the weights of every attention layer while the model runs.

    A layer is a module whose `forward` has an argument `need_weights`, such as
    `torch.nn.MultiheadAttention` and this library's. It runs once more for
    them, so a watched model is slower; its outputs are the same.

    Args:
        model: run it inside the `with` block, in evaluation mode.

    Yields:
        For each layer's name its weights (B, H, T, S), one tensor a call.

    Raises:
        ValueError: if the model has no such layer.
    """
    layers = find_attention_layers(model)
    if not layers:
        raise ValueError(
            f"{type(model).__name__} has no layer whose forward takes need_weights"
        )
    kept: dict[str, list[Tensor]] = {name: [] for name in layers}
    with ExitStack() as stack:
        stack.enter_context(fast_path(False))
        for name, layer in layers.items():
            wrapped = record_weights(layer.forward, kept[name])
            stack.enter_context(mock.patch.object(layer, "forward", wrapped))
        yield kept


def find_attention_layers(model: nn.Module) -> dict[str, nn.Module]:
    """Return the modules whose forward takes `need_weights`, by name."""
    return {
        name: module
        for name, module in model.named_modules()
        if "need_weights" in inspect.signature(module.forward).parameters
    }


@contextmanager
def fast_path(enabled: bool) -> Iterator[None]:
    """Switch PyTorch's fused encoder layers, which bypass their submodules."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(enabled)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def record_weights(forward: Callable, kept: list[Tensor]) -> Callable:
    """Return a layer's forward that also keeps each head's weights."""
    signature = inspect.signature(forward)

    def wrapped(*args, **kwargs):
        bound = signature.bind(*args, **kwargs)
        bound.arguments["need_weights"] = True
        if "average_attn_weights" in signature.parameters:
            bound.arguments["average_attn_weights"] = False
        with torch.no_grad():
            kept.append(forward(*bound.args, **bound.kwargs)[1])
        return forward(*args, **kwargs)

    return wrapped


def find_nonfinite_layer(model: nn.Module, *args, **kwargs) -> str | None:
    """Return the name of the first layer whose output has a NaN or infinity.

    Only layers without layers of their own are named; None if all is finite,
    and "" if it arises in the model's own code only. Outputs may be tensors,
    nested tensors, or containers of them.
    """
    found: list[str] = []

    def make_hook(name: str) -> Callable:
        def hook(module, given, output):
            parts = (
                part
                for x in list_tensors(output)
                for part in (x.unbind() if x.is_nested else [x])
            )
            if not found and any(not x.isfinite().all() for x in parts):
                found.append(name)

        return hook

    hooks = [
        module.register_forward_hook(make_hook(name))
        for name, module in model.named_modules()
        if not name or not any(True for _ in module.children())
    ]
    try:
        with torch.no_grad(), fast_path(False):
            model(*args, **kwargs)
    finally:
        for hook in hooks:
            hook.remove()
    return found[0] if found else None


def read_output(output: Any) -> Tensor:
    """Return the first tensor of a model's output, padded if it is nested.

    Raises:
        ValueError: if there is none.
    """
    for x in list_tensors(output):
        return x.to_padded_tensor(0.0) if x.is_nested else x
    raise ValueError(
        "a model's output must be a tensor, or hold one, but is a "
        f"{type(output).__name__} without any"
    )


def list_tensors(output: Any) -> Iterator[Tensor]:
    """Yield the tensors in an output: one, or those of containers and fields."""
    if isinstance(output, Tensor):
        yield output
    elif isinstance(output, Mapping):
        for x in output.values():
            yield from list_tensors(x)
    elif isinstance(output, (tuple, list)):
        for x in output:
            yield from list_tensors(x)
    elif hasattr(output, "__dataclass_fields__"):
        for name in output.__dataclass_fields__:
            yield from list_tensors(getattr(output, name))


def find_missing_gradients(model: nn.Module, loss: Tensor) -> dict[str, str]:
    """Return the parameters that a loss does not train, and the symptom.

    Args:
        model: its parameters are tested; their `.grad` is not changed.
        loss: one number, made by the model.

    Returns:
        For each such parameter "not in the graph", "all zero" or "not finite".
    """
    named = {n: p for n, p in model.named_parameters() if p.requires_grad}
    gradients = torch.autograd.grad(
        loss, [*named.values()], allow_unused=True, retain_graph=True
    )
    found = {}
    for name, gradient in zip(named, gradients, strict=True):
        if gradient is None:
            found[name] = "not in the graph"
        elif not gradient.isfinite().all():
            found[name] = "not finite"
        elif not gradient.any():
            found[name] = "all zero"
    return found


@contextmanager
def watch_heads(
    model: nn.Module,
) -> Iterator[dict[str, tuple[nn.Linear, list[tuple[Tensor, Tensor]]]]]:
    """Keep weights and outputs of all heads while the model runs.

    Yields:
        For each attention layer's name its output projection, and one pair a call:
        the weights (B, H, T, S), and the heads' averages of the values (B, H, T, E).

    Raises:
        ValueError: if the model has no `nn.MultiheadAttention` or
            `MultiHeadAttention`.
    """
    kept: dict[str, tuple[nn.Linear, list[tuple[Tensor, Tensor]]]] = {}
    with ExitStack() as stack:
        for name, layer in model.named_modules():
            if isinstance(layer, nn.MultiheadAttention):
                kept[name] = layer.out_proj, []
                stack.enter_context(watch_pytorch(layer, kept[name][1]))
            elif isinstance(layer, MultiHeadAttention):
                kept[name] = layer.output, []
                stack.enter_context(watch_own(layer, kept[name][1]))
        if not kept:
            raise ValueError(
                f"{type(model).__name__} has no attention layer: neither "
                "nn.MultiheadAttention nor attnbook's MultiHeadAttention"
            )
        yield kept


@contextmanager
def watch_own(layer: MultiHeadAttention, kept: list) -> Iterator[None]:
    """Keep what each call of a layer of this library computes."""
    with hooks.record_weights([layer]) as weights:

        def keep(module: nn.Module, given: tuple[Tensor]) -> None:
            heads = split_heads(given[0].detach(), layer.heads)
            kept.append((weights.pop().detach(), heads))

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
            whole, bias = layer.in_proj_weight, layer.in_proj_bias
            W = layer.v_proj_weight if whole is None else whole.chunk(3)[2]
            with torch.no_grad():
                values = F.linear(value, W, None if bias is None else bias.chunk(3)[2])
                kept.append((weights, weights @ split_heads(values, layer.num_heads)))

        hook = layer.register_forward_hook(keep, with_kwargs=True)
        try:
            yield
        finally:
            hook.remove()


@contextmanager
def remove_head(projection: nn.Linear, head: int, heads: int) -> Iterator[None]:
    """Run without a head: its columns of the output projection are zeros.

    Unlike `ablate_heads`, which changes the projection's input, this works on
    PyTorch's layer as well, which reads the weights without calling the module.

    Raises:
        ValueError: if the weights are computed by a parametrization.
    """
    if "weight" not in projection._parameters:
        raise ValueError(
            f"the weights of {type(projection).__name__} are not a parameter, so "
            f"head {head} of {heads} cannot be removed"
        )
    weight = projection.weight.detach().clone()
    weight.unflatten(1, (heads, -1))[:, head] = 0.0
    changed = {"weight": nn.Parameter(weight, requires_grad=False)}
    with mock.patch.dict(projection._parameters, changed):
        yield
