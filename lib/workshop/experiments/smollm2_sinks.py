"""Attention sinks in SmolLM2: weight on position 0, and what it contributes.

The same texts are read after <|endoftext|>, after a random token, and without
anything before them. Two changes are made to position 0 in all layers, and as a
control to another position: its value becomes zero to later queries, or it is
masked out for later queries and their other weights are divided by their sum.
If position 0 is masked out, position 1 is the first key that later queries can
attend to: it is looked at as well.

Source: Xiao et al. (2023), https://arxiv.org/abs/2309.17453; values with small
    norms: Gu et al. (2024), https://arxiv.org/abs/2410.10781; large activations
    at the first token: Sun et al. (2024), https://arxiv.org/abs/2402.17762
Axes: L layers, B texts, H heads, G groups, T positions, C model width, D width
    of a value
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnbook.attention.multi_head import split_heads
from attnbook.models.modern_block import RotaryAttention
from attnbook.models.modern_decoder import ModernDecoder
from attnbook.models.smollm2 import load_smollm2, load_smollm2_tokenizer
from workshop.experiments.record import recorded
from workshop.experiments.registry import experiment
from workshop.experiments.smollm2_heads import tabulate
from workshop.experiments.smollm2_inputs import (
    collect_weights,
    cut_texts,
    draw_tokens,
    list_block_inputs,
    measure_text,
)
from workshop.experiments.smollm2_text import SMOLLM2

TEXTS, LENGTH, SEED = 6, 128, 500
OTHER = 8  # the position that is changed in the control

Change = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def leave(weights: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Return weights and values as they are."""
    return weights, value


def zero_value(position: int) -> Change:
    """Return a change: to later queries, the value at a position is zero.

    The other weights stay, so that later outputs lose this contribution. The
    position's own output does not change.
    """

    def change(weights: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        weights = weights.clone()
        weights[:, :, position + 1 :, position] = 0.0
        return weights, value

    return change


def mask_out(position: int) -> Change:
    """Return a change: later queries cannot attend to a position."""

    def change(weights: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        weights = weights.clone()
        weights[:, :, position + 1 :, position] = 0.0
        return weights / weights.sum(dim=-1, keepdim=True), value

    return change


class ChangedAttention(RotaryAttention):
    """Rotary attention in which a function changes weights and values.

    Attributes:
        change: from weights (B, H, T, T) and values (B, G, T, D) to others;
            set from outside.
    """

    change: Change = staticmethod(leave)

    def combine(
        self, weights: Float[Tensor, "B H T S"], value: Float[Tensor, "B G S D"]
    ) -> Float[Tensor, "B H T D"]:
        """Return the averages of the changed values."""
        return super().combine(*self.change(weights, value))


@contextmanager
def change_layers(model: ModernDecoder, change: Change) -> Iterator[None]:
    """Change weights and values in all layers while the model runs."""
    for block in model.blocks:
        block.attention.change = change
    try:
        yield
    finally:
        for block in model.blocks:
            block.attention.change = leave


@torch.no_grad()
def measure_change(
    model: ModernDecoder, ids: Int[Tensor, "B T"], change: Change
) -> list[float]:
    """Return the loss of each text with a change in all layers."""
    with change_layers(model, change):
        return measure_text(model, ids).tolist()


@torch.no_grad()
def describe_position(
    model: ModernDecoder,
    ids: Int[Tensor, "B T"],
    position: int = 0,
    change: Change = leave,
) -> dict:
    """Return what a position looks like beside the later ones.

    Returns:
        `stream` (L): norm of the residual stream before each block there,
        divided by the median of the later positions; `value` (L, G): the same
        of the values; both are means over texts.
    """
    streams, values = [], []
    with change_layers(model, change):
        inputs = list_block_inputs(model, ids)[:-1]
    for x, block in zip(inputs, model.blocks, strict=True):
        attention = block.attention
        value = split_heads(
            attention.value(block.get_submodule("norms.0")(x)),
            attention.groups,
        )
        streams.append(compare_norms(x, position).mean(dim=0))
        values.append(compare_norms(value, position).mean(dim=0))
    return {
        "stream": tabulate(torch.stack(streams)),
        "value": tabulate(torch.stack(values)),
    }


def compare_norms(x: Float[Tensor, "*B T D"], position: int) -> Float[Tensor, "*B"]:
    """Return the norm at a position over the median of the later ones."""
    norms = x.norm(dim=-1)
    later = norms[..., position + 1 :].median(dim=-1).values
    return norms[..., position] / later


def measure_sinks(
    model: ModernDecoder, ids: Int[Tensor, "B T"]
) -> Float[Tensor, "L H"]:
    """Return each head's mean weight on position 0 of the later queries."""
    weights = collect_weights(model, ids)
    return weights[..., 1:, 0].mean(dim=(1, 3))


def precede(ids: Int[Tensor, "B T"], symbols: int) -> dict[str, Tensor]:
    """Return the texts after the start symbol, a random token, and nothing."""
    first = torch.cat([draw_tokens(SEED + b, 1, symbols) for b in range(len(ids))])
    return {
        "start symbol": ids,
        "random token": torch.cat([first[:, None], ids[:, 1:]], dim=1),
        "nothing": ids[:, 1:],
    }


@experiment(on_cpu=True)
@recorded(
    seeds=[*range(SEED, SEED + TEXTS)],
    **SMOLLM2,
)
def smollm2_sinks() -> dict:
    """Record weights, norms and losses at position 0 and at another one."""
    model = load_smollm2(ChangedAttention)
    texts = cut_texts(load_smollm2_tokenizer(), TEXTS, LENGTH)
    changes = {
        "none": leave,
        "value 0": zero_value(0),
        "mask 0": mask_out(0),
        f"value {OTHER}": zero_value(OTHER),
        f"mask {OTHER}": mask_out(OTHER),
    }
    before = precede(texts, model.config.symbols)
    return {
        "weights": {
            name: tabulate(measure_sinks(model, ids)) for name, ids in before.items()
        },
        "position 0": describe_position(model, texts),
        "position 1": describe_position(model, texts, 1),
        "position 1, mask 0": describe_position(model, texts, 1, mask_out(0)),
        f"position {OTHER}": describe_position(model, texts, OTHER),
        "losses": {
            name: measure_change(model, texts, change)
            for name, change in changes.items()
        },
        "texts": TEXTS,
        "length": LENGTH,
    }
