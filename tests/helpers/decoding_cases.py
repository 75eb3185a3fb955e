"""Cases for decoding, for its tiles and its kernels, and the reference."""

import math
from dataclasses import dataclass
from functools import cache

import torch

import flash_cases
from attnbook.flash.options import Options
from flash_cases import arrange, compute_reference

PAGES = 23
UNUSED = -7, 10**6


@dataclass(frozen=True)
class DecodingCase:
    """Shapes, lengths, and how the inputs lie in memory: see `flash_cases.Case`."""

    H: int = 2
    G: int = 1
    S: int = 53
    D: int = 16
    E: int = 16
    lengths: tuple | None = None  # all have S keys
    parts: int = 3  # into which the keys are split
    page: int = 8  # positions, where the cache is in pages
    scale: float | None = None
    offset: float = 0.0
    layout: str = "rows"

    B = 2
    T = 1

    @property
    def known_lengths(self):
        return torch.tensor(self.lengths or (self.S,) * self.B)


CASES = {
    "one part": DecodingCase(parts=1, S=37),
    "several parts": DecodingCase(S=70, D=19, E=40),
    "one of each, one wide": DecodingCase(1, 1, 1, 1, 1, parts=1, page=1),
    "more parts than keys": DecodingCase(S=5, parts=7, page=1),
    "an empty sequence, and one key": DecodingCase(lengths=(0, 1)),
    "lengths that end a part, and pass it": DecodingCase(lengths=(32, 33)),
    "lengths that end a page, and do not": DecodingCase(lengths=(48, 43), page=16),
    "page of five": DecodingCase(lengths=(50, 7), page=5, parts=4),
    "three heads a group": DecodingCase(6, 2, lengths=(40, 53)),
    "more heads a group than rows of a tile": DecodingCase(40, 2, S=33),
    "a negative scale": DecodingCase(scale=-0.3),
    "large logits": DecodingCase(offset=60.0, lengths=(53, 29)),
    "columns": DecodingCase(4, 2, layout="columns", lengths=(53, 20)),
    "expanded": DecodingCase(layout="expanded", lengths=(20, 37)),
}
# Triton's interpreter runs these in float16 as well.
IN_HALF = "lengths that end a page, and do not", "three heads a group"


def draw_inputs(title, dtype):
    """Return query, key and value of a case in a precision."""
    return flash_cases.draw_inputs(title, dtype, CASES)[0]


def spoil(x, lengths):
    """Return keys or values with NaN after each sequence's length."""
    beyond = torch.arange(x.shape[2])[:, None] >= lengths.view(-1, 1, 1, 1)
    spoiled = x.masked_fill(beyond, torch.nan)
    # With the strides of the original, unless it has rows in common.
    return spoiled if 0 in x.stride() else x.clone().copy_(spoiled)


def scatter_into_pages(title, key, value):
    """Return two pools of pages, with NaN in all unused rows, and the table.

    The pages of a sequence lie in a random order between unused ones. Unused
    entries of the table are not the numbers of pages.
    """
    case = CASES[title]
    rng = torch.Generator().manual_seed(1)
    columns = math.ceil(case.S / case.page)
    count = case.B * columns + PAGES
    order = torch.randperm(count, generator=rng)[: case.B * columns]
    table = order.view(case.B, columns)
    pools = []
    for x in (key, value):
        pool = x.new_full((count, x.shape[1], case.page, x.shape[-1]), torch.nan)
        for b, n in enumerate(case.known_lengths.tolist()):
            for i in range(n):
                place = table[b, i // case.page], slice(None), i % case.page
                pool[place] = x[b, :, i]
        if case.layout != "expanded":
            pool = arrange(pool, case.layout)
        pools.append(pool)
    first_unused = -(-case.known_lengths // case.page)
    unused = torch.arange(columns) >= first_unused[:, None]
    some = torch.tensor(UNUSED).repeat(columns)[:columns]
    return *pools, torch.where(unused, some, table)


@cache
def compute_truth(title, dtype):
    """Return a case's output in float64, of inputs in a precision."""
    case = CASES[title]
    inputs = [x.double() for x in draw_inputs(title, dtype)]
    options = Options(key_lengths=case.known_lengths, scale=case.scale)
    return compute_reference(*inputs, options)
