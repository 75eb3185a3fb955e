"""Paths: one model run in several ways that should give the same output.

Faults can exist on one path only: in training or in evaluation, with weights
asked for or without, in PyTorch's fused layers or outside them.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from attnbook.diagnose.behavior import measure_difference
from attnbook.diagnose.recording import (
    fast_path,
    find_attention_layers,
    read_output,
)


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
