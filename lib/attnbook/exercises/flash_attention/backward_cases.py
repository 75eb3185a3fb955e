"""Cases of the tiled backward pass: ragged ends, large scores, memory.

Axes: T queries, S keys
"""

import torch

from attnbook.exercises.exercise import Case
from attnbook.exercises.flash_attention.logits import far, most, usual
from attnbook.exercises.inputs import doubled, normal
from attnbook.exercises.solutions.flash_attention import tiled


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One tile; several; ragged ends; large scores; then the memory."""

    def inputs(given, block):
        kind, shape = given[0].dtype, given[0].shape[:-1]
        upstream = normal(rng, *shape, given[2].shape[-1], dtype=kind)
        saved = (x.to(kind) for x in tiled(*doubled(given), block))
        return *given, *saved, upstream, block

    def case(tries, *lead, block, **sizes):
        return Case(tries, inputs(usual(rng, *lead, **sizes), block))

    def scores(tries, signs, step):
        # In double precision: a logsumexp of 720 in single would be so coarse
        # that right answers differ visibly.
        given = far(
            rng, len(signs), 11, torch.tensor(signs), step, (18, 10), 0.25
        )
        return Case(tries, inputs(doubled(given), 4))

    precise = inputs(doubled(usual(rng, t=5, s=7)), 3)
    room = inputs(usual(rng, t=144, s=144, d=4, e=3), 24)
    return (
        case("with one query and one key", t=1, s=1, d=3, e=2, block=4),
        case("with one tile", t=3, s=5, block=8),
        case("with two tiles of keys", t=2, s=4, block=2),
        case("with two tiles of queries", t=4, s=2, block=2),
        case("with all sizes equal", t=4, s=4, d=4, e=4, block=2),
        case("with ragged tiles", t=5, s=7, block=3),
        case("with more queries than keys", t=11, s=5, block=4),
        case("with tiles of one score", t=2, s=3, block=1),
        case("with a batch of 3 and 2 heads", 3, 2, t=5, s=7, block=2),
        scores("with scores that grow from key to key", [1, 1, 1, 1, 1], 1),
        scores("with queries near 720 and near -720", [1, -1, 1, -1, -1], 0),
        Case("in double precision", precise),
        Case(
            "with 144 queries and keys in tiles of 24",
            room,
            room=most(144, 144),
        ),
    )
