"""The exercises of the chapter on scaled dot-product attention.

Source: Vaswani et al. (2017), section 3.2.1, equation 1,
    https://arxiv.org/abs/1706.03762; that a query without keys gets zeros is a rule
    of this book.
Axes: T queries, S keys, D width of query and key, E value width
"""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from attnbook.attention import scaled_dot_product
from attnbook.attention.masked_softmax import softmax_over_keys
from attnbook.exercises.declare import Case, Exercise, fill


def weights(
    query: Float[Tensor, "*B T D"], key: Float[Tensor, "*B S D"]
) -> Float[Tensor, "*B T S"]:
    """Return softmax(query keyᵀ / √D) over the keys."""
    # The query is scaled, not the product: in half precision the product may
    # overflow before any factor could bring it back.
    scale = query.shape[-1] ** -0.5
    return (query * scale @ key.transpose(-2, -1)).softmax(dim=-1)


def weights_cases(draw):
    def inputs(*lead, t, s, d):
        return draw.normal(*lead, t, d), draw.normal(*lead, s, d)

    def far(s, d):
        """Return two queries whose scores all lie near 110, and near -110."""
        along = F.normalize(draw.normal(d), dim=-1)
        size = (110 * d**0.5) ** 0.5
        query = size * torch.stack([along, -along])
        return query, size * along + 0.1 * draw.normal(s, d)

    # Heads cut out of wider vectors, as views: (B, T, H, D) transposed.
    views = [x.transpose(1, 2) for x in inputs(2, 3, t=4, s=4, d=5)]
    half = [x.half() for x in inputs(2, t=3, s=5, d=7)]
    yield "with one query, two keys and width 1", *inputs(t=1, s=2, d=1)
    yield "with 3 queries and 5 keys", *inputs(t=3, s=5, d=7)
    yield "with a batch of 2 and 3 heads", *inputs(2, 3, t=7, s=5, d=11)
    yield "with transposed views", *views
    yield "with scores near 110 and -110", *far(5, 7)
    yield Case("with a score far below zero", draw.low_query_key(3, 1), gradient=False)
    yield "in half precision", *half
    yield "with such a score in it", *draw.low_query_key(3, 1, torch.float16)


def count_heads(query: Tensor) -> int:
    """Return the size of the axis before the queries."""
    return query.shape[-3] if query.ndim > 2 else 1


check_weights = Exercise(
    weights,
    weights_cases,
    stars=1,
    minutes=5,
    section="Scaled dot-product attention",
    title="attention weights",
    returns=("weights",),
    library=(scaled_dot_product.attention_weights,),
    mistakes={
        "no-scale": (
            "the scores are not divided by √D",
            "query.shape[-1] ** -0.5 → 1.0",
        ),
        "scaled-by-width": (
            "the scores are divided by D; they should be divided by √D",
            "query.shape[-1] ** -0.5 → 1 / query.shape[-1]",
        ),
        "scaled-by-model-width": (
            "the scores are divided by √(H·D); they should be divided by √D",
            "query.shape[-1] → (count_heads(query) * query.shape[-1])",
        ),
        "scaled-by-heads": (
            "the scores are divided by √H; they should be divided by √D",
            "query.shape[-1] → count_heads(query)",
        ),
        "no-shift": (
            "the exponential is applied without a shift, so it overflows or becomes 0; "
            "subtract the maximum first, as `softmax` does",
            "return ( → powers = ( ; .softmax(dim=-1) → .exp()"
            "\n    return powers / powers.sum(-1, keepdim=True)",
        ),
        "wrong-axis": (
            "the softmax runs over another axis; it should run over the keys",
            ["dim=-1 → dim=-2", "dim=-1 → dim=0", "dim=-1 → dim=1"],
        ),
    },
)


def attend(
    query: Float[Tensor, "*B T D"],
    key: Float[Tensor, "*B S D"],
    value: Float[Tensor, "*B S E"],
    mask: Bool[Tensor, "..."] | None = None,
) -> Float[Tensor, "*B T E"]:
    """Return each query's weighted average of the values it can attend to."""
    scores = query * query.shape[-1] ** -0.5 @ key.transpose(-2, -1)
    # Chapter 3's softmax: an empty row gives zeros, and passes back zeros.
    return softmax_over_keys(scores, mask) @ value


def attend_cases(draw):
    def inputs(*lead, t=3, s=5, d=7, e=11):
        return tuple(draw.normal(*lead, *x) for x in ((t, d), (s, d), (s, e)))

    def some(*shape):
        mask = draw.normal(*shape) > 0
        mask[..., 0], mask[..., 1] = True, False
        return mask

    def low(tries, dtype):
        """Return a case with one visible key, far below all others."""
        only = torch.arange(5) == draw.whole(0, 4)
        query, key = draw.low_query_key(3, 5, dtype)
        key = torch.where(only[:, None], key, -key)
        value = draw.normal(5, 11, dtype=dtype)
        return Case(tries, (query, key, value, only.expand(3, 5)), gradient=False)

    query, key, value = inputs()
    key[1] = 30 * query.mean(0)
    empty = some(2, 1, 3, 5)
    empty[1, :, 2] = False
    half = [x.half() for x in inputs(2, 3)]
    views = [x.transpose(1, 2) for x in inputs(2, 5, t=4, s=4)]
    yield "with one key", *inputs(t=1, s=1, d=3, e=2), None
    yield "without a mask", *inputs(), None
    yield "with all sizes equal", *inputs(t=4, s=4, d=4, e=4), None
    yield "with a mask", *inputs(), some(3, 5)
    yield "with heads that share a mask", *inputs(2, 3), some(2, 1, 3, 5)
    yield "with one mask for all queries", *inputs(2, 3), some(2, 1, 1, 5)
    yield "with more queries than keys", *inputs(2, t=5, s=3), some(5, 3)
    yield "with views and one mask for all heads", *views, some(5, 5)
    yield "with a query that can attend to no key", *inputs(2, 3), empty
    yield "with the highest score masked out", query, key, value, some(3, 5)
    yield low("with a very low score", torch.float32)
    yield "in half precision", *half, empty
    yield low("with such a score in half precision", torch.float16)


def weigh_masked(weigh: Callable, axis: int = -1) -> Callable:
    """Return attention with `weigh(scores, mask)`; `axis` counts without a mask."""

    def answer(query, key, value, mask):
        scores = query * query.shape[-1] ** -0.5 @ key.mT
        if mask is None:
            return scores.softmax(axis) @ value
        return weigh(scores, mask) @ value

    return answer


check_attend = Exercise(
    attend,
    attend_cases,
    stars=2,
    minutes=10,
    section="Masks and biases",
    title="attention with a mask",
    returns=("output",),
    library=(scaled_dot_product.attention_weights,),
    mistakes={
        "no-scale": (
            "the scores are not divided by √D",
            "query * query.shape[-1] ** -0.5 → query",
        ),
        "inverted-mask": (
            "the mask is inverted: True should mean that a query can attend to a key",
            [
                weigh_masked(lambda s, m: softmax_over_keys(s, ~m)),
                weigh_masked(lambda s, m: fill(s, ~m).softmax(-1)),
            ],
        ),
        "wrong-axis": (
            "the softmax runs over another axis; it should run over the keys",
            [
                weigh_masked(lambda s, m: fill(s, m).softmax(-2), -2),
                weigh_masked(lambda s, m: fill(s, m).softmax(-2).nan_to_num(), -2),
                weigh_masked(lambda s, m: s.softmax(-2) * m, -2),
                weigh_masked(lambda s, m: fill(s, m).softmax(1), 1),
            ],
        ),
        "masked-after": (
            "the mask is applied after the softmax, so the weights do not sum to 1",
            weigh_masked(lambda s, m: s.softmax(-1) * m),
        ),
        "sentinel": (
            "masked scores become a finite number, which gets weight if the other "
            "scores are lower or all are masked; use minus infinity, and return zeros "
            "for a row without keys",
            [
                weigh_masked(lambda s, m: fill(s, m, -1e9).softmax(-1)),
                weigh_masked(lambda s, m: torch.where(m, s, -1e9).softmax(-1)),
                weigh_masked(lambda s, m: (s - 1e4 * (~m).to(s)).softmax(-1) * m),
                weigh_masked(
                    lambda s, m: fill(s, m, torch.finfo(s.dtype).min).softmax(-1)
                ),
            ],
        ),
        "empty-nan": (
            "a query that can attend to no key gets NaN, because all its scores are "
            "minus infinity; its output should be zeros",
            weigh_masked(lambda s, m: fill(s, m).softmax(-1)),
        ),
    },
)

CHANGES = (
    "add 3 to every score",
    "double every value",
    "halve the temperature",
    "double the temperature",
    "negate the query",
    "set the query to zero",
    "mask out the key",
    "repeat the key",
)


def predicted_weights(
    weights: Float[Tensor, " S"], change: str, key: int
) -> Float[Tensor, " S_after"]:
    """Return one query's weights after a change, from those before it.

    Args:
        weights: the softmax of the scores of S keys, none of them 0.
        change: one of `CHANGES`.
        key: the number of the key that is masked out, or repeated at the end.
    """
    ratios = weights.clone()  # of the exponentials of the scores
    if change == "halve the temperature":
        ratios = ratios**2
    elif change == "double the temperature":
        ratios = ratios.sqrt()
    elif change == "negate the query":
        ratios = 1 / ratios
    elif change == "set the query to zero":
        ratios = torch.ones_like(ratios)
    elif change == "mask out the key":
        ratios[key] = 0.0
    elif change == "repeat the key":
        ratios = torch.cat([ratios, ratios[key, None]])
    return ratios / ratios.sum()


def predicted_weights_cases(draw):
    def case(change, size, spread=1.0):
        weights = (spread * draw.normal(size)).softmax(-1)
        key = int(weights.argmax()) if spread > 1 else draw.whole(0, size - 1)
        # A prediction may be computed with Python's numbers.
        tries = f"with {size} keys and the change “{change}”"
        return Case(tries, (weights, change, key), gradient=False)

    yield case(CHANGES[0], 2)
    sizes = (3, 1.0), (draw.whole(9, 30), 2.0)
    pairs = [(change, *size) for change in CHANGES for size in sizes]
    yield from (case(*pair) for pair in draw.shuffle(pairs))


check_predicted_weights = Exercise(
    predicted_weights,
    predicted_weights_cases,
    stars=2,
    minutes=15,
    section="Temperature: from soft to hard lookup",
    title="weights after a change",
    returns=("new_weights",),
    mistakes={
        "values-matter": (
            "doubled values change the weights; weights do not depend on the values",
            'if change == "halve → if change == "double every value":'
            '\n        return 2 * weights\n    if change == "halve',
        ),
        "temperature-swapped": (
            "halving and doubling the temperature are swapped; a lower temperature "
            "makes the largest weight larger",
            "ratios**2 → ratios**0.5 ; ratios.sqrt() → ratios.square()",
        ),
        "negated-complement": (
            "it uses 1 - w; every exponential should become its inverse",
            "1 / ratios → 1 - ratios",
        ),
        "zero-query-zero": (
            "a query of zeros gives weights of 0; its equal scores give equal weights",
            "ratios = torch.ones_like → return torch.zeros_like",
        ),
        "mask-not-normalized": (
            "after a key is masked out, the other weights do not sum to 1",
            "ratios[key] = 0.0 → ratios[key] = 0.0\n        return ratios",
        ),
        "repeated-shares": (
            "the repeated key shares its old weight; each copy has the whole "
            "exponential",
            "ratios = torch.cat → ratios[key] /= 2\n        ratios = torch.cat",
        ),
    },
    hints=(
        "Weights are proportional to exponentials: what happens to each of them?",
        "A factor of the score is a power of the weight; divide by the sum at the end.",
    ),
)


def score_kind(weigh: Callable, D: int) -> int:
    """Return by which score a function weighs keys: 0, 1, 2 or 3.

    0: dot product. 1: cosine similarity. 2: distance. 3: none of these.

    Args:
        weigh: (query (D,), key (S, D)) to weights (S,).
        D: the width of query and keys, at least 2.
    """
    query, key = torch.zeros(D), torch.zeros(3, D)
    query[0] = 1.0
    key[0, :2] = torch.tensor([0.9, 0.3])  # nearest to the query
    key[1, :2] = torch.tensor([0.5, 0.0])  # in the same direction
    key[2, :2] = torch.tensor([2.0, 2.0])  # largest dot product
    found = [int(weigh(q, key).argmax()) for q in (query, -query)]
    predicted = [2, 1], [1, 2], [0, 1]
    return predicted.index(found) if found in predicted else 3


def make_weigher(kind: str, temperature: float, always: int) -> Callable:
    """Return a function that weighs keys by a score; "slot" prefers slot `always`."""

    def weigh(query: Tensor, key: Tensor) -> Tensor:
        """Return the weights (S,) of a query (D,) over keys (S, D)."""
        slots = torch.arange(len(key))
        scores = {
            "the dot product": lambda: key @ query,
            "the cosine": lambda: F.cosine_similarity(key, query[None], dim=-1),
            "the distance": lambda: -(key - query).square().sum(-1) / 2,
            "slot": lambda: (slots == always % len(key)).to(key),
            "the length of the key": lambda: key.norm(dim=-1),
        }[kind]()
        return (scores / temperature).softmax(-1)

    return weigh


def score_kind_cases(draw):
    kinds = [(kind, 0) for kind in ("the dot product", "the cosine", "the distance")]
    kinds += [("slot", 0), ("slot", 1), ("slot", 2), ("the length of the key", 0)]
    widths = 2, draw.whole(7, 20)
    for width, (kind, always) in draw.shuffle([(n, x) for n in widths for x in kinds]):
        temperature = 0.2 + float(torch.rand((), generator=draw))
        by = "the place in the list of keys" if kind == "slot" else kind
        tries = f"with width {width} and a function that weighs by {by}"
        yield tries, make_weigher(kind, temperature, always), width


check_score_kind = Exercise(
    score_kind,
    score_kind_cases,
    stars=3,
    minutes=20,
    section="Kernel regression is attention",
    title="an experiment that separates three scores",
    returns=("kind",),
    mistakes={
        "unit-keys": (
            "its keys have length 1, where all three scores prefer the same key",
            "[0.9, 0.3] → [1.0, 0.0] ; [0.5, 0.0] → [0.6, 0.8] ; "
            "[2.0, 2.0] → [0.0, 1.0] ; [2, 1], [1, 2], [0, 1] → ([0, 2],)",
        ),
        "one-query": (
            "it tries one query; a function that ignores the query then looks like one "
            "of the three",
            "(query, -query) → (query,) ; [2, 1], [1, 2], [0, 1] → [2], [1], [0]",
        ),
        "dot-and-cosine": (
            "dot product and cosine are swapped: only the dot product grows with the "
            "length of a key",
            "[2, 1], [1, 2] → [1, 2], [2, 1]",
        ),
        "no-negative": (
            "it never returns 3; return 3 if no prediction fits",
            "else 3 → else 0",
        ),
        "equal-key-wins": (
            "it expects the largest dot product at the key that equals the query; a "
            "longer key can have a larger one",
            "[0.9, 0.3] → [1.0, 0.0] ; [2, 1], [1, 2], [0, 1] → [0, 1], [1, 2], [2, 0]",
        ),
    },
    hints=(
        "Choose keys near the query, short in its direction, and long in another.",
        "Ask with the query and with its negative.",
    ),
)
