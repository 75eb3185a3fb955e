"""What the exercises on tiles share: tiles of rows, large exact scores.

Axes: T queries, S keys, D width of query and key, E value width
"""

import torch
from torch import Tensor
from torch.nn import functional

from attnbook.exercises.inputs import draw_integers, draw_normal

WIDTH = 16  # its root is 4: scores are whole numbers over 4, without rounding


def compute_memory_limit(t: int, s: int) -> int:
    """Return a little less than the bytes of the whole matrix of scores."""
    return 19 * t * s // 5


def draw_usual(
    rng: torch.Generator, *lead: int, t: int, s: int, d: int = 7, e: int = 5
) -> tuple[Tensor, Tensor, Tensor]:
    """Return a query, a key and a value of normal numbers."""
    sizes = (t, d), (s, d), (s, e)
    query, key, value = (draw_normal(rng, *lead, *size) for size in sizes)
    return query, key, value


def draw_large_scores(
    rng: torch.Generator,
    t: int,
    s: int,
    signs: Tensor,
    step: int = 0,
    sizes: tuple[int, int] = (6, 5),
    part: float = 1.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return inputs whose scores lie far from 0: near 120 unless given.

    Args:
        rng: the source of chance.
        t: how many queries.
        s: how many keys.
        signs: of each query, 1 or -1.
        step: of how many parts a key is larger than the one before.
        sizes: of a query's and a key's numbers; 4 times their product is what
            the scores lie near.
        part: by how much the keys differ; a power of two.
    """
    along = draw_integers(rng, 0, 1, WIDTH) * 2 - 1
    query = sizes[0] * along * signs.to(along).expand(t)[:, None]
    ramp = step * torch.arange(s)[:, None] * (torch.arange(4) == 0)
    key = sizes[1] * along.repeat(s, 1).float()
    key[:, :4] += part * (draw_integers(rng, -1, 1, s, 4) + ramp * along[:1])
    return query.float(), key, draw_normal(rng, s, 5)


def drop_incomplete_tile(x: Tensor, block: int) -> Tensor:
    """Return the rows that fill tiles, and drop those after them."""
    count = x.shape[-2] // block * block
    return x[..., : count or None, :]


def pad_to_tiles(x: Tensor, block: int) -> Tensor:
    """Return x with rows of zeros until every tile is full."""
    return functional.pad(x, (0, 0, 0, -x.shape[-2] % block))
