"""Cases of attention in tiles: ragged ends, large scores, memory.

Axes: T queries, S keys
"""

import torch

from attnbook.exercises.exercise import Case
from attnbook.exercises.flash_attention.logits import far, most, usual
from attnbook.exercises.inputs import doubled


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One tile; several; ragged ends; large scores; then the memory."""

    def case(tries, *lead, block, **sizes):
        return Case(tries, (*usual(rng, *lead, **sizes), block))

    def scores(tries, signs, step=0):
        given = far(rng, len(signs), 11, torch.tensor(signs), step)
        return Case(tries, (*given, 4))

    def mixed(tries):
        query, key, value = far(rng, 3, 11, torch.tensor([1, -1, 1]))
        key[1::2] *= -1
        return Case(tries, (query, key, value, 4))

    return (
        case("with one query and one key", t=1, s=1, d=3, e=2, block=4),
        case("with a block larger than everything", t=3, s=5, block=8),
        case("with two tiles of keys", t=2, s=4, block=2),
        case("with all sizes equal", t=4, s=4, d=4, e=4, block=2),
        case("with ragged tiles", t=5, s=7, block=3),
        case("with more queries than keys", t=11, s=5, block=4),
        case("with tiles of one score", t=2, s=3, block=1),
        case("with a batch of 3 and 2 heads", 3, 2, t=5, s=7, block=2),
        scores("with scores that grow from key to key", [1, 1, 1], 3),
        scores("with scores that fall from key to key", [-1, -1, -1], 3),
        scores("with scores near 120", [1, 1, 1, 1, 1]),
        scores("with scores near -120", [-1, -1, -1, -1, -1]),
        scores("with queries near 120 and near -120", [1, -1, 1, -1, -1]),
        mixed("with keys near 120 and near -120 in a tile"),
        Case("in double precision", (*doubled(usual(rng, t=5, s=7)), 3)),
        Case(
            "with 144 queries and keys in tiles of 24",
            (*usual(rng, t=144, s=144, d=4, e=3), 24),
            room=most(144, 144),
        ),
        Case(
            "with 64 queries and 1024 keys in tiles of 64",
            (*usual(rng, t=64, s=1024, d=4, e=3), 64),
            room=most(64, 1024),
        ),
    )
