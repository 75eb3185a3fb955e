"""Layouts: which blocks of queries can attend to which blocks of keys.

A layout is a boolean matrix with one row for each block of queries and one
column for each block of keys. `attnbook.masks.block_sparse` turns it into a
mask, and `attnbook.attention.sparse` computes only its blocks. Layouts
combine with `&` and `|`, as masks do. `receptive_field` tells which inputs
reach a position through several layers.

Source: blocks of windows, of global and of random positions: Zaheer et al.
    (2020), sections 2 and D, https://arxiv.org/abs/2007.14062. Departures: the
    sequence does not wrap around at its ends, and the random blocks of a row
    are drawn among the blocks that are left. Receptive field: Beltagy et al.
    (2020), section 3.1, https://arxiv.org/abs/2004.05150
Axes: T queries, S keys, N M blocks of queries and of keys
"""

import torch
from jaxtyping import Bool
from torch import Tensor

from attnbook.masks import evaluate_rule
from attnbook.masks.rules import Device, Rule, check_positive


def count_blocks(length: int, size: int) -> int:
    """Return how many blocks of a size, which must divide it, a length has."""
    check_positive(size=size)
    if length % size:
        raise ValueError(
            f"blocks of {size} do not divide a sequence of length {length}"
        )
    return length // size


def cover_rule(
    rule: Rule, T: int, S: int, size: int, device: Device = None
) -> Bool[Tensor, "N M"]:
    """Return the blocks of size x size in which a rule lets any query attend.

    The rule, which may depend on neither the sequence of a batch nor the head, is
    evaluated for one row of blocks at a time, so no (T, S) mask is made.

    >>> from attnbook.masks import draw_mask, rules
    >>> print(draw_mask(cover_rule(rules.window(8, 8, 3), 8, 8, size=2)))
    ●···
    ●●··
    ·●●·
    ··●●

    Raises:
        ValueError: if blocks of this size do not divide T and S.
    """
    count_blocks(S, size)
    key = torch.arange(S, device=device)
    rows = []
    for n in range(count_blocks(T, size)):
        query = torch.arange(n * size, (n + 1) * size, device=device)
        mask = evaluate_rule(rule, query, key).expand(size, S)
        rows.append(mask.unflatten(-1, (-1, size)).any(dim=-1).any(dim=0))
    return torch.stack(rows)


def random_layout(
    taken: Bool[Tensor, "N M"], count: int, seed: int
) -> Bool[Tensor, "N M"]:
    """Return `count` random blocks for each row, none of them taken.

    A row with fewer blocks left gets all of these. The seed is that of a private
    generator, so that a model keeps its pattern.
    """
    rng = torch.Generator().manual_seed(seed)
    order = torch.rand(taken.shape, generator=rng).to(taken.device)
    rank = order.masked_fill(taken, 2.0).argsort(dim=-1).argsort(dim=-1)
    return (rank < count) & ~taken


def bigbird_layout(
    blocks: int,
    reach: int,
    global_blocks: int,
    random_blocks: int,
    seed: int,
    device: Device = None,
) -> Bool[Tensor, "N N"]:
    """Return BigBird's layout: a window, global blocks and random blocks.

    >>> from attnbook.masks import draw_mask
    >>> print(draw_mask(bigbird_layout(6, 1, 1, random_blocks=0, seed=0)))
    ●●●●●●
    ●●●···
    ●●●●··
    ●·●●●·
    ●··●●●
    ●···●●

    Args:
        reach: blocks of the window on each side of the query's own.
        global_blocks: how many, at the beginning; all attend to these, and these
            to all.
        random_blocks: how many for each row, drawn with the seed.
    """
    index = torch.arange(blocks, device=device)
    near = (index[:, None] - index).abs() <= reach
    chosen = index < global_blocks
    fixed = near | chosen[:, None] | chosen
    return fixed | random_layout(fixed, random_blocks, seed)


def receptive_field(
    mask: Bool[Tensor, "*B T T"], layers: int
) -> Bool[Tensor, "*B T T"]:
    """Return which positions' inputs can reach each position through the layers.

    Row t is True at s if the mask, the same in every layer, has a path of at most
    `layers` steps from t to s. Residual connections keep each position's own input.

    >>> from attnbook.masks import draw_mask, window
    >>> print(draw_mask(receptive_field(window(6, 6, size=2), layers=3)))
    ●·····
    ●●····
    ●●●···
    ●●●●··
    ·●●●●·
    ··●●●●

    Raises:
        ValueError: if there is no layer, or the mask is not square.
    """
    check_positive(layers=layers)
    T, S = mask.shape[-2:]
    if T != S:
        raise ValueError(
            f"only self-attention is repeated layer by layer: the mask has {T} "
            f"queries but {S} keys"
        )
    # As numbers: the number of paths is positive where there is a path.
    step = (mask | torch.eye(T, dtype=torch.bool, device=mask.device)).float()
    reached = step
    for _ in range(layers - 1):
        reached = ((reached @ step) > 0).float()
    return reached > 0
