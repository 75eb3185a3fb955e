"""Exercise: attention from tiles of the scores, and the logsumexp of each row.

Chapter: chapters/11_flash_attention
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
from attnbook.solutions.flash_attention import tiled

check_tiled = Exercise(
    title="attention in tiles",
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
            "the maximum has grown, and neither the total nor the output of "
            "the tiles before is brought to the new one",
            tiles(of_output=nothing, of_total=nothing),
        ),
        Mistake(
            "output-not-rescaled",
            "the total is brought to the new maximum and the output is not; "
            "both are sums of the same weights",
            tiles(of_output=nothing),
        ),
        Mistake(
            "total-not-rescaled",
            "the output is brought to the new maximum and the total is not; "
            "both are sums of the same weights",
            tiles(of_total=nothing),
        ),
        Mistake(
            "rescale-inverted",
            "what was summed is multiplied by exp(new - old); exp(old - new) "
            "is at most 1",
            tiles(of_output=inverse, of_total=inverse),
        ),
        Mistake(
            "last-tile",
            "each tile of keys begins anew: only the last one is left",
            tiles(
                higher=lambda old, new: new,
                of_output=lambda old, new: torch.zeros_like(new),
                of_total=lambda old, new: torch.zeros_like(new),
            ),
        ),
        Mistake(
            "mean-of-tiles",
            "each tile has a softmax of its own, and their mean is taken; "
            "tiles differ in weight",
            mean_of_tiles,
        ),
        Mistake(
            "divided-in-every-tile",
            "the output is divided by the total in every tile; divide once, "
            "at the end, or undo it before the next",
            running_mean,
        ),
        Mistake(
            "not-divided",
            "the output is not divided by the total",
            tiles(mean=lambda output, total: output),
        ),
        Mistake(
            "no-shift",
            "exp is taken of the scores as they are, and over- or underflows",
            tiles(
                weigh=unshifted,
                of_output=nothing,
                of_total=nothing,
                lse=lambda top, total: total.log(),
            ),
        ),
        Mistake(
            "starts-at-zero",
            "the maximum starts at 0, and a row of very negative scores never "
            "gets below it: all its weights are 0",
            tiles(start=0.0),
        ),
        Mistake(
            "one-maximum",
            "all rows of a tile share one maximum; a row far below it is 0 "
            "everywhere",
            tiles(best=lambda scores: scores.amax().expand(scores.shape[:-1])),
        ),
        Mistake(
            "no-scale",
            "the products are not divided by √D",
            tiles(lambda q, k, v: 1.0),
        ),
        Mistake(
            "scaled-by-value-width",
            "the products are divided by √E, the width of a value; √D is meant",
            tiles(lambda q, k, v: v.shape[-1] ** -0.5),
        ),
        Mistake(
            "queries-dropped",
            "the last queries do not fill a tile and are left out",
            tiles(queries=whole_only),
        ),
        Mistake(
            "keys-dropped",
            "the last keys do not fill a tile and are left out",
            tiles(keys=whole_only),
        ),
        Mistake(
            "padding-seen",
            "the last tile of keys is filled up with zeros, and a key of "
            "zeros has the score 0, which is a score like any other",
            tiles(keys=padded),
        ),
        Mistake(
            "lse-without-logarithm",
            "maximum plus total is returned; the total's logarithm is meant",
            tiles(lse=lambda top, total: top + total),
        ),
        Mistake(
            "lse-without-maximum",
            "the logarithm of the shifted total is returned; the maximum "
            "belongs to it",
            tiles(lse=lambda top, total: total.log()),
        ),
        Mistake(
            "lse-base-two",
            "the logarithm is taken to base 2; natural logarithms are meant",
            tiles(lse=lambda top, total: top * 1.44269504 + total.log2()),
        ),
        Mistake(
            "maximum-for-lse",
            "the maximum is returned in place of the logsumexp",
            tiles(lse=lambda top, total: top),
        ),
        Mistake(
            "total-for-lse",
            "the total is returned in place of the logsumexp",
            tiles(lse=lambda top, total: total),
        ),
        Mistake(
            "queries-only",
            "only the queries are cut: a strip of them against all keys is "
            "the whole matrix when there are few queries",
            strips,
        ),
        Mistake(
            "whole-matrix",
            "the whole matrix of scores is held at once, or as much as that; "
            "a tile of it is enough",
            at_once,
        ),
    ),
)
