"""Exercise: predict what a tiled forward kernel does under a causal mask.

Source: the walk of the tiles: Dao (2023), sections 3.1 and 3.2, algorithm 1,
    https://arxiv.org/abs/2307.08691
Axes: B batch, H heads, n queries and keys, D width of query, key and value, R
    queries of a tile, C keys of a tile
"""

import torch

from attnbook.exercises.exercise import Case, Exercise, Mistake


def tile_counts(B: int, H: int, n: int, D: int, R: int, C: int) -> list[int]:
    """Return five counts of a causal forward kernel in half precision.

    In this order: programs; tiles of scores that all of them compute; bytes
    read from HBM; bytes written to HBM; bytes of registers that one program
    needs for the scores of a tile and for its output.
    """
    programs = tiles = keys = 0
    for first in range(0, n, R):
        last = min(first + R, n)  # the last query attends to this many keys
        visited = -(-last // C)
        programs += 1
        tiles += visited
        keys += min(visited * C, n)
    read = 2 * (n * D + 2 * keys * D)
    written = n * (2 * D + 4)
    heads = B * H
    return [
        heads * programs,
        heads * tiles,
        heads * read,
        heads * written,
        4 * (R * C + R * D),
    ]


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One tile; square, high and wide tiles; ragged ends; a large call."""

    def count(low: int, high: int) -> int:
        return int(torch.randint(low, high, (), generator=rng))

    return (
        Case("with one query and one key", (1, 1, 1, 1, 1, 1)),
        Case("with one tile", (count(2, 4), 5, 8, 16, 8, 8)),
        Case("with square tiles", (2, count(3, 6), 24, 16, 4, 4)),
        Case("with more queries than keys in a tile", (3, 2, 48, 8, 16, 4)),
        Case("with more keys than queries in a tile", (2, 5, 48, 8, 4, 16)),
        Case(
            "with tiles that do not divide the length",
            (count(2, 5), 3, 2 * count(20, 40) + 1, 24, 16, 12),
        ),
        Case("with 4096 positions", (4, 16, 4096, 64, 128, 64)),
    )


check_tile_counts = Exercise(
    title="programs, tiles and bytes of a causal kernel",
    stars=2,
    minutes=20,
    section="Tiling: the forward pass of FlashAttention",
    solution=tile_counts,
    returns=("counts",),
    draw=draw,
    mistakes=(
        Mistake(
            "no-causal-mask",
            "all tiles computed",
            "the tiles above the diagonal are counted as well; no query can "
            "attend to any of their keys, so the kernel skips them",
            "last // C → n // C",
        ),
        Mistake(
            "half-of-the-tiles",
            "half of all tiles",
            "half of all tiles are counted; those on the diagonal are "
            "computed too, although half of their scores are masked out",
            "heads * tiles → heads * -(-n // R) * -(-n // C) // 2",
        ),
        Mistake(
            "keys-read-once",
            "keys and values read once",
            "keys and values are counted once; every tile of queries reads them again",
            "2 * keys * D → 2 * n * D",
        ),
        Mistake(
            "values-not-read",
            "values not read",
            "only queries and keys are counted as read; the values are read too",
            "2 * keys * D → keys * D",
        ),
        Mistake(
            "queries-read-again",
            "queries read for every tile",
            "the queries are counted once for every tile; a program loads "
            "its queries once",
            "heads * read → heads * (read + 2 * R * D * (tiles - programs))",
        ),
        Mistake(
            "diagonal-cut",
            "keys of a tile read up to the diagonal",
            "where a tile crosses the diagonal, its keys beyond the diagonal "
            "are not counted as read; a tile is loaded whole",
            "min(visited * C, n) → last",
        ),
        Mistake(
            "beyond-the-end",
            "rows beyond the end read",
            "keys beyond the last one are counted as read; the kernel does "
            "not load them",
            "min(visited * C, n) → visited * C",
        ),
        Mistake(
            "no-logsumexp",
            "logsumexp not written",
            "the logsumexp is missing: one number for each query",
            "(2 * D + 4) → 2 * D",
        ),
        Mistake(
            "half-logsumexp",
            "logsumexp in half precision",
            "the logsumexp is counted in half precision; it is stored in "
            "single precision",
            "(2 * D + 4) → (2 * D + 2)",
        ),
        Mistake(
            "scores-written",
            "scores written to HBM",
            "the scores are counted as written; they never leave the registers",
            "(2 * D + 4) → (2 * D + 4 + 2 * n)",
        ),
        Mistake(
            "output-after-every-tile",
            "output written after every tile",
            "the output is counted as written after every tile of keys; it "
            "stays in registers until the program ends",
            "heads * written → heads * tiles * R * (2 * D + 4)",
        ),
        Mistake(
            "single-precision",
            "inputs and output in single precision",
            "inputs and output are counted in single precision; a number in "
            "half precision has two bytes",
            (
                "2 * (n * D + 2 * keys * D) → 4 * (n * D + 2 * keys * D)",
                "(2 * D + 4) → (4 * D + 4)",
            ),
        ),
        Mistake(
            "half-registers",
            "sums in half precision",
            "scores and output are counted in half precision; they are added "
            "up in single precision",
            "4 * (R * C → 2 * (R * C",
        ),
        Mistake(
            "output-not-in-registers",
            "registers of the scores alone",
            "the output is missing: it stays in registers until all tiles of "
            "keys are done",
            "(R * C + R * D) → (R * C)",
        ),
        Mistake(
            "programs-of-one-head",
            "programs of one head",
            "programs are counted for one head of one sequence",
            "heads * programs → programs",
        ),
        Mistake(
            "tile-per-program",
            "one program per tile",
            "every tile is counted as a program; a program computes a whole "
            "row of tiles",
            "heads * programs → heads * tiles",
        ),
    ),
)
