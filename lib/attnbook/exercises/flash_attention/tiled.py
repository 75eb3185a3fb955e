"""Exercise: attention from tiles of the scores, and the logsumexp of each row.

Source: Dao et al. (2022), section 3.1, algorithm 1,
    https://arxiv.org/abs/2205.14135; the order of the loops and the logsumexp
    as in Dao (2023), section 3.1, algorithm 1, https://arxiv.org/abs/2307.08691
Axes: T queries, S keys, D width of query and key, E value width
"""

import torch

from attnbook.exercises.exercise import Exercise, Mistake
from attnbook.exercises.flash_attention.answers import padded, tiles, whole_only
from attnbook.exercises.flash_attention.tiled_answers import (
    at_once,
    inverse,
    mean_of_tiles,
    nothing,
    running_mean,
    strips,
    unshifted,
)
from attnbook.exercises.flash_attention.tiled_cases import draw
from attnbook.exercises.solutions.flash_attention import tiled

check_tiled = Exercise(
    title="tiled attention",
    stars=3,
    minutes=25,
    section="Tiles",
    solution=tiled,
    returns=("output", "lse"),
    draw=draw,
    allowed="Everything is allowed but a ready-made attention and a matrix of "
    "all scores.",
    mistakes=(
        Mistake(
            "no-rescale",
            "nothing rescaled",
            "when the maximum grows, neither the total nor the output of the "
            "previous tiles is rescaled",
            tiles(of_output=nothing, of_total=nothing),
        ),
        Mistake(
            "output-not-rescaled",
            "output not rescaled",
            "the total is rescaled to the new maximum, but the output is not",
            tiles(of_output=nothing),
        ),
        Mistake(
            "total-not-rescaled",
            "total not rescaled",
            "the output is rescaled to the new maximum, but the total is not",
            tiles(of_total=nothing),
        ),
        Mistake(
            "rescale-inverted",
            "inverted rescaling factor",
            "the previous sums are multiplied by exp(new - old); the factor "
            "should be exp(old - new), which is at most 1",
            tiles(of_output=inverse, of_total=inverse),
        ),
        Mistake(
            "last-tile",
            "last tile only",
            "the sums are reset for each tile of keys, so only the last tile "
            "is counted",
            tiles(
                higher=lambda old, new: new,
                of_output=lambda old, new: torch.zeros_like(new),
                of_total=lambda old, new: torch.zeros_like(new),
            ),
        ),
        Mistake(
            "mean-of-tiles",
            "mean of the tiles",
            "each tile has its own softmax, and the tiles' outputs are "
            "averaged equally; they should be weighted by their totals",
            mean_of_tiles,
        ),
        Mistake(
            "divided-in-every-tile",
            "normalized in every tile",
            "the output is divided by the total in every tile; divide once, "
            "at the end, or undo the division before the next tile",
            running_mean,
        ),
        Mistake(
            "not-divided",
            "not normalized",
            "the output is not divided by the total",
            tiles(mean=lambda output, total: output),
        ),
        Mistake(
            "no-shift",
            "exponential without a shift",
            "the exponential is applied to the scores without a shift, so it "
            "overflows or underflows",
            tiles(
                weigh=unshifted,
                of_output=nothing,
                of_total=nothing,
                lse=lambda top, total: total.log(),
            ),
        ),
        Mistake(
            "starts-at-zero",
            "maximum initialized with 0",
            "the maximum is initialized with 0, so all weights of a row of "
            "very negative scores underflow to 0; initialize it with -inf",
            tiles(start=0.0),
        ),
        Mistake(
            "one-maximum",
            "one maximum for all rows",
            "all rows of a tile share one maximum, so rows far below it "
            "underflow to 0",
            tiles(best=lambda scores: scores.amax().expand(scores.shape[:-1])),
        ),
        Mistake(
            "no-scale",
            "no division by √D",
            "the scores are not divided by √D",
            tiles(lambda q, k, v: 1.0),
        ),
        Mistake(
            "scaled-by-value-width",
            "division by √E, not by √D",
            "the scores are divided by √E, the root of the value width; they "
            "should be divided by √D",
            tiles(lambda q, k, v: v.shape[-1] ** -0.5),
        ),
        Mistake(
            "queries-dropped",
            "last queries dropped",
            "the last queries, which do not fill a tile, are not computed",
            tiles(queries=whole_only),
        ),
        Mistake(
            "keys-dropped",
            "last keys dropped",
            "the last keys, which do not fill a tile, are left out",
            tiles(keys=whole_only),
        ),
        Mistake(
            "padding-seen",
            "zero-padded keys attended to",
            "the last tile of keys is padded with zeros, and a key of zeros "
            "has the score 0, which gets weight",
            tiles(keys=padded),
        ),
        Mistake(
            "lse-without-logarithm",
            "logsumexp without logarithm",
            "it returns the maximum plus the total; the logsumexp is the "
            "maximum plus the logarithm of the total",
            tiles(lse=lambda top, total: top + total),
        ),
        Mistake(
            "lse-without-maximum",
            "logsumexp without maximum",
            "it returns the logarithm of the shifted total; the maximum must "
            "be added",
            tiles(lse=lambda top, total: total.log()),
        ),
        Mistake(
            "lse-base-two",
            "logsumexp to base 2",
            "the logsumexp is to base 2; it should be a natural logarithm",
            tiles(lse=lambda top, total: top * 1.44269504 + total.log2()),
        ),
        Mistake(
            "maximum-for-lse",
            "maximum instead of logsumexp",
            "it returns the maximum instead of the logsumexp",
            tiles(lse=lambda top, total: top),
        ),
        Mistake(
            "total-for-lse",
            "total instead of logsumexp",
            "it returns the total instead of the logsumexp",
            tiles(lse=lambda top, total: total),
        ),
        Mistake(
            "queries-only",
            "only the queries tiled",
            "only the queries are divided into tiles: a query chunk against "
            "all keys is the whole matrix when there are few queries",
            strips,
        ),
        Mistake(
            "whole-matrix",
            "whole score matrix in memory",
            "it holds the whole score matrix in memory, or a tensor of that "
            "size; one tile is enough",
            at_once,
        ),
    ),
)
