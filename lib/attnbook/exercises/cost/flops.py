"""Exercise: the operations of attention's products, in both passes.

Source: five products in the backward pass: Dao (2023), section 4.1,
    https://arxiv.org/abs/2307.08691
Axes: B batch, H heads, G groups (key-value heads), T queries, S keys, D width
    of query and key, E of values
"""

import torch

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_integers


def flops(B: int, H: int, G: int, T: int, S: int, D: int, E: int) -> list[int]:
    """Return the operations of attention's products.

    Forward; backward, with stored weights; backward, with the scores
    computed once more.
    """
    scores, values = 2 * B * H * T * S * D, 2 * B * H * T * S * E
    back = 2 * scores + 2 * values
    return [scores + values, back, back + scores]


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One pair of query and key; then heads, groups, and all at once."""
    return (
        Case("with one query and one key", (1, 1, 1, 1, 1, 2, 3)),
        Case("with one head", (*draw_sizes(rng, B=1, H=1, G=1).values(),)),
        Case("with several heads", (*draw_sizes(rng, H=6, G=6).values(),)),
        Case("with one new query", (*draw_sizes(rng, T=1).values(),)),
        Case("with groups of heads", (*draw_sizes(rng).values(),)),
    )


ALLOWED = "Everything is allowed but `attnbook.profiling`."


def draw_sizes(
    rng: torch.Generator, B: int = 0, H: int = 0, G: int = 0, T: int = 0
) -> dict[str, int]:
    """Return random sizes of attention; given sizes are kept.

    Keys outnumber queries, widths and heads, and no two sizes are equal.
    """

    def drawn(low: int, high: int) -> int:
        return int(draw_integers(rng, low, high, 1))

    groups = G or drawn(2, 4)
    return {
        "B": B or drawn(5, 9),
        "H": H or groups * drawn(3, 5),
        "G": groups,
        "T": T or drawn(100, 300),
        "S": drawn(400, 900),
        "D": drawn(30, 60),
        "E": drawn(61, 90),
    }


check_flops = Exercise(
    title="FLOPs of attention, forward and backward",
    stars=1,
    minutes=10,
    section="FLOPs: the operations of attention",
    solution=flops,
    returns=("flops",),
    draw=draw,
    allowed=ALLOWED,
    mistakes=(
        Mistake(
            "multiplications-only",
            "additions not counted",
            "only multiplications are counted; each one comes with an addition",
            "2 * B * H * T * S * D, 2 * B * H * T * S * E "
            "→ B * H * T * S * D, B * H * T * S * E",
        ),
        Mistake(
            "groups-for-heads",
            "key heads counted as heads",
            "the products are counted once for each key head; every query "
            "head has its own scores, even where it shares keys",
            lambda B, H, G, *rest: flops(B, G, G, *rest),
        ),
        Mistake(
            "one-width",
            "value width not used",
            "the values are assumed to be as wide as the keys",
            lambda B, H, G, T, S, D, E: flops(B, H, G, T, S, D, D),
        ),
        Mistake(
            "keys-as-queries",
            "T² instead of T · S",
            "the number of keys is assumed to equal the number of queries: T² "
            "is counted instead of T · S",
            lambda B, H, G, T, S, D, E: flops(B, H, G, T, T, D, E),
        ),
        Mistake(
            "one-sequence",
            "batch size missing",
            "the batch size is not counted",
            lambda B, *rest: flops(1, *rest),
        ),
        Mistake(
            "heads-forgotten",
            "number of heads missing",
            "the number of heads is not counted",
            lambda B, H, G, *rest: flops(B, 1, 1, *rest),
        ),
        Mistake(
            "scores-only",
            "product with the values missing",
            "only the scores are counted; the product of weights and values is missing",
            "2 * B * H * T * S * E → 0",
        ),
        Mistake(
            "back-like-there",
            "backward counted like forward",
            "the backward pass is counted like the forward pass; each product "
            "has two gradients, and each gradient is a product of its own",
            "back = 2 * scores + 2 * values → back = scores + values",
        ),
        Mistake(
            "there-and-back",
            "forward included in backward",
            "the backward count includes the forward pass",
            "back = 2 * scores + 2 * values → back = 3 * scores + 3 * values",
        ),
        Mistake(
            "nothing-again",
            "recomputation not counted",
            "the scores that are recomputed in the backward pass are not counted",
            "back + scores] → back]",
        ),
        Mistake(
            "all-again",
            "output recomputed as well",
            "the recomputation of the output is counted as well; the backward "
            "pass needs the weights, and for them only the scores are "
            "recomputed",
            "back + scores] → back + scores + values]",
        ),
        Mistake(
            "causal",
            "unneeded causal mask",
            "it counts the operations of causal attention; here no key is masked out",
            lambda *given: [x // 2 + x // (2 * given[4]) for x in flops(*given)],
        ),
        Mistake(
            "adds-up",
            "forward added to the last number",
            "the last number includes the forward pass; it should count the "
            "backward pass with recomputation",
            "back + scores] → back + 2 * scores + values]",
        ),
    ),
)
