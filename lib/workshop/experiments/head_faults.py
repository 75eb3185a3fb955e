"""Faults in single heads, and in all of a pretrained decoder.

Every fault is made in the weights or the code of a sound model and undone at
the end of a `with` block. It is known which heads are affected.

Axes: H heads, G groups (key-value heads), C model width, D width of a head
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from unittest import mock

import torch
from torch import Tensor, nn

from attnbook.attention.multi_head import MultiHeadAttention
from attnbook.diagnose.head_alarms import (
    Layer,
    find_layers,
    get_projection,
)
from attnbook.models import modern_block
from attnbook.models.modern_decoder import ModernDecoder
from attnbook.positions.rotary import rotate_halves


def view_rows(layer: Layer, part: str, head: int) -> list[Tensor]:
    """Return a head's rows of a projection, and of its bias if it has one.

    Args:
        layer: an attention layer.
        part: "query", "key" or "value".
        head: H of the layer's; with groups, the keys and values are its
            group's.
    """
    if isinstance(layer, MultiHeadAttention):
        linear, count = getattr(layer, part), layer.heads
        if part != "query":
            head, count = head * layer.groups // layer.heads, layer.groups
        whole = [linear.weight, linear.bias]
    else:
        i, count = ("query", "key", "value").index(part), layer.num_heads
        whole = [
            None if x is None else x.chunk(3)[i]
            for x in (layer.in_proj_weight, layer.in_proj_bias)
        ]
    return [x.unflatten(0, (count, -1))[head] for x in whole if x is not None]


def find_partner(layer: Layer, head: int) -> int:
    """Return the next head of the same group, or of the layer."""
    heads = get_projection(layer)[1]
    size = heads
    if isinstance(layer, MultiHeadAttention) and layer.groups < heads:
        size = heads // layer.groups
    return head // size * size + (head + 1) % size


def zero_output(layer: Layer, head: int, rng: torch.Generator) -> list[int]:
    """Set a head's columns of the output projection to zero."""
    output, heads = get_projection(layer)
    output.weight.unflatten(1, (heads, -1))[:, head] = 0.0
    return [head]


def zero_queries(layer: Layer, head: int, rng: torch.Generator) -> list[int]:
    """Set a head's query projection to zero."""
    for rows in view_rows(layer, "query", head):
        rows.zero_()
    return [head]


def copy_head(layer: Layer, head: int, rng: torch.Generator) -> list[int]:
    """Copy a head's query and key projections to the next head."""
    other = find_partner(layer, head)
    for part in ("query", "key"):
        pairs = zip(
            view_rows(layer, part, other),
            view_rows(layer, part, head),
            strict=True,
        )
        for to, original in pairs:
            to.copy_(original.clone())
    return [head, other]


def randomize_queries(layer: Layer, head: int, rng: torch.Generator) -> list[int]:
    """Replace a head's query projection by random weights of the same size."""
    for rows in view_rows(layer, "query", head):
        rows.copy_(torch.randn(rows.shape, generator=rng) * rows.std())
    return [head]


def unscale_queries(layer: Layer, head: int, rng: torch.Generator) -> list[int]:
    """Multiply a head's scores by the root of its width."""
    for rows in view_rows(layer, "query", head):
        rows.mul_(get_width(layer) ** 0.5)
    return [head]


def get_width(layer: Layer) -> int:
    """Return D, the width of a head."""
    output, heads = get_projection(layer)
    return output.in_features // heads


# Faults in one head, by name; each returns the heads that it affects.
HEAD_FAULTS: dict[str, Callable] = {
    "output projection zero": zero_output,
    "queries zero": zero_queries,
    "copy of another head": copy_head,
    "queries random": randomize_queries,
    "scores not scaled": unscale_queries,
}


@contextmanager
def keep_weights(layers: Sequence[nn.Module]) -> Iterator[None]:
    """Undo changes of the weights of some layers."""
    kept = [{k: v.clone() for k, v in layer.state_dict().items()} for layer in layers]
    try:
        yield
    finally:
        for layer, state in zip(layers, kept, strict=True):
            layer.load_state_dict(state)


@contextmanager
def break_heads(
    model: nn.Module,
    heads: list[tuple[str, int]],
    fault: str,
    seed: int,
) -> Iterator[list[tuple[str, int]]]:
    """Make a fault in some heads, each given by its layer's name and number.

    Yields:
        The heads that are affected.
    """
    rng = torch.Generator().manual_seed(seed)
    found = find_layers(model)
    layers = [found[name] for name, _ in heads]
    with keep_weights(layers):
        affected = []
        with torch.no_grad():
            for (name, head), layer in zip(heads, layers, strict=True):
                broken = HEAD_FAULTS[fault](layer, head, rng)
                affected += [(name, one) for one in broken]
        yield affected


def see_all(queries: int, keys: int, device: torch.device) -> Tensor:
    """Return a mask that masks nothing out, in place of the causal one."""
    return torch.ones(queries, keys, dtype=torch.bool, device=device)


def replace_code(name: str, function: Callable) -> Callable:
    """Return a fault: another function in the module of the decoder's block."""
    return lambda model: mock.patch.object(modern_block, name, function)


@contextmanager
def unscale_all(model: ModernDecoder) -> Iterator[None]:
    """Multiply all scores by the root of the width of a head."""
    layers = [block.attention for block in model.blocks]
    with keep_weights(layers), torch.no_grad():
        for layer in layers:
            layer.query.weight.mul_(get_width(layer) ** 0.5)
        yield


@contextmanager
def randomize_all(model: ModernDecoder) -> Iterator[None]:
    """Replace the weights of all attention layers by random ones.

    Each matrix keeps its root mean square.
    """
    layers = [block.attention for block in model.blocks]
    rng = torch.Generator().manual_seed(0)
    with ExitStack() as stack:
        stack.enter_context(keep_weights(layers))
        with torch.no_grad():
            for layer in layers:
                for weight in layer.parameters():
                    drawn = torch.randn(weight.shape, generator=rng)
                    weight.copy_(drawn * weight.square().mean().sqrt())
        yield


# Faults in all layers of a pretrained decoder.
DECODER_FAULTS: dict[str, Callable] = {
    "scores not scaled": unscale_all,
    "no causal mask": replace_code("causal_mask", see_all),
    "no positions": replace_code("rotate", lambda x, positions, base: x),
    "wrong pairs rotated": replace_code("rotate", rotate_halves),
    "attention not loaded": randomize_all,
}
