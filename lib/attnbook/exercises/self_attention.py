"""The exercises of the chapter on self-attention.

Source: Vaswani et al. (2017), sections 3.2.1 and 3.2.3,
    https://arxiv.org/abs/1706.03762. The faults of causal layers are those of public
    code, linked in the chapter.
Axes: B batch, T positions of x, S positions of the memory, C and M their widths, D
    width of query and key, E value width
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from attnbook.attention import self_attention
from attnbook.attention.scaled_dot_product import attend
from attnbook.attention.self_attention import cross_attention
from attnbook.exercises.declare import Case, Exercise, differ


def cross_attention_cases(draw):
    def inputs(b, t, s, c, m, d, e, size=1):
        shapes = (d, c), (d, m), (e, m)
        matrices = [draw.normal(*shape) * shape[1] ** -0.5 for shape in shapes]
        sequences = draw.normal(b, t, c), draw.normal(b, s, m)
        return [size * x for x in (*sequences, *matrices)]

    yield "with one position each", *inputs(1, 1, 1, 2, 3, 5, 7)
    yield "with 3 queries and 5 keys", *inputs(2, 3, 5, 7, 11, 2, 13)
    yield "with 5 queries and 3 keys", *inputs(2, 5, 3, 3, 2, 7, 5)
    yield "with everything equal", *inputs(4, 4, 4, 4, 4, 4, 4)
    yield "with large scores", *inputs(2, 3, 5, 2, 3, 5, 7, size=3)
    yield "in half precision", *(x.half() for x in inputs(2, 3, 5, 3, 2, 5, 7))
    yield "with longer sequences", *inputs(3, 21, 38, 5, 6, 9, 7)


def average_values(
    scale: float | None = None,
    axis: int = -1,
    before: Callable = lambda scores: scores,
    after: Callable = lambda weights: weights,
) -> Callable:
    """Return cross-attention with another scale, axis or step around the softmax."""

    def answer(x, memory, W_query, W_key, W_value):
        factor = scale or len(W_query) ** -0.5
        scores = (x @ W_query.T) * factor @ (memory @ W_key.T).mT
        return after(before(scores).softmax(axis)) @ (memory @ W_value.T)

    return answer


check_cross_attention = Exercise(
    cross_attention,
    cross_attention_cases,
    stars=1,
    minutes=10,
    section="Cross-attention: keys and values from another sequence",
    title="cross-attention",
    returns=("output",),
    mistakes={
        "no-scale": ("the scores are not divided by √D", average_values(scale=1.0)),
        "softmax-over-queries": (
            "the softmax runs over another axis; it should run over the memory",
            [average_values(axis=1), average_values(axis=0)],
        ),
        "self": (
            "`x` attends to itself; keys and values should come from `memory`",
            lambda x, memory, *W: average_values()(x, x, *W),
        ),
        "query-from-memory": (
            "the memory attends to itself; the queries should come from `x`",
            lambda x, memory, *W: average_values()(memory, memory, *W),
        ),
        "swapped-query-key": (
            "W_query and W_key are swapped",
            "x @ W_query.T, memory @ W_key.T → x @ W_key.T, memory @ W_query.T",
        ),
        "key-for-value": (
            "the keys are averaged; it should be the values",
            "memory @ W_value.T → memory @ W_key.T",
        ),
    },
)


def causal_self_attention(
    x: Float[Tensor, "B T C"],
    W_query: Float[Tensor, "D C"],
    W_key: Float[Tensor, "D C"],
    W_value: Float[Tensor, "E C"],
) -> Float[Tensor, "B T E"]:
    """Return attention of every position to itself and earlier positions."""
    T = x.shape[1]
    past = torch.ones(T, T, dtype=torch.bool, device=x.device).tril()
    return attend(x @ W_query.T, x @ W_key.T, x @ W_value.T, past)


def causal_self_attention_cases(draw):
    def inputs(b, t, c, d, e, size=1):
        matrices = [draw.normal(n, c) * c**-0.5 for n in (d, d, e)]
        return [size * x for x in (draw.normal(b, t, c), *matrices)]

    def low(tries, size, dtype):
        """The scores of a position with itself are far below zero, the others above."""
        x, W_query = draw.normal(2, 3, 4, dtype=dtype), torch.zeros(4, 4, dtype=dtype)
        x[..., 0] = torch.tensor([size, -size, size])
        W_query[draw.whole(0, 3), 0] = 1.0
        W_value = draw.normal(5, 4, dtype=dtype)
        W_value[:, 0] = 0.0
        return Case(tries, (x, W_query, -2 * W_query, W_value), gradient=False)

    yield "with one position", *inputs(1, 1, 2, 3, 5)
    yield "with 5 positions and D = 7", *inputs(2, 5, 3, 7, 11)
    yield "with everything equal", *inputs(4, 4, 4, 4, 4)
    yield "with large scores", *inputs(2, 3, 5, 2, 7, size=4)
    yield low("with very low scores", 2.0**20, torch.float32)
    yield "in half precision", *(x.half() for x in inputs(2, 5, 3, 2, 7))
    yield low("with very low scores in half precision", 2.0**7, torch.float16)
    yield "with a longer sequence", *inputs(3, 23, 5, 9, 6)


def mask_future(
    scores: Tensor, number: float = -torch.inf, diagonal: int = 0
) -> Tensor:
    """Return scores with a number at every key after the query."""
    past = torch.ones_like(scores, dtype=torch.bool).tril(diagonal)
    return scores.masked_fill(~past, number)


def attend_to_itself(**steps) -> Callable:
    """Return self-attention with another axis or step around the softmax."""
    cross = average_values(**steps)
    return lambda x, *matrices: cross(x, x, *matrices)


check_causal_self_attention = Exercise(
    causal_self_attention,
    causal_self_attention_cases,
    stars=2,
    minutes=10,
    section="Causal self-attention: no access to later positions",
    title="causal self-attention",
    returns=("output",),
    library=(self_attention.self_attention, self_attention.cross_attention),
    mistakes={
        "no-mask": ("there is no causal mask", ", past) → )"),
        "not-itself": (
            "a position cannot attend to itself; the first one then has no key",
            [
                ".tril() → .tril(-1)",
                attend_to_itself(before=lambda s: mask_future(s, -torch.inf, -1)),
            ],
        ),
        "one-too-many": ("a position can attend to the next one", ".tril() → .tril(1)"),
        "softmax-over-queries": (
            "the softmax runs over another axis; it should run over the keys",
            [
                attend_to_itself(axis=1, before=mask_future),
                attend_to_itself(axis=1, before=mask_future, after=torch.nan_to_num),
                attend_to_itself(axis=1, after=torch.tril),
                attend_to_itself(axis=1),
            ],
        ),
        "masked-after": (
            "the mask is applied after the softmax, so the weights no longer sum to 1",
            attend_to_itself(after=torch.tril),
        ),
        "small-sentinel": (
            "later positions get a finite score, not minus infinity",
            [
                attend_to_itself(before=lambda s: mask_future(s, -1e9)),
                attend_to_itself(before=lambda s: mask_future(s, -1e4)),
                attend_to_itself(before=lambda s: s - 1e9 * torch.ones_like(s).triu(1)),
                attend_to_itself(before=lambda s: mask_future(s, -10)),
            ],
        ),
    },
)


def changed_outputs(
    layers: Sequence[str], T: int, S: int, part: str, position: int
) -> list[int]:
    """Return the outputs that can change if one input vector is replaced.

    Args:
        layers: "self", "causal" or "cross", the first layer first. Each takes
            the outputs of the layer before; "cross" also takes the memory.
        T: positions of x.
        S: positions of the memory, at least 2.
        part: where a vector is replaced, in "x" or in the "memory".
        position: which one, counted from 0.
    """
    changed = {position} if part == "x" else set()
    for layer in layers:
        if layer == "cross":
            changed = set(range(T)) if part == "memory" else changed
        elif changed:
            first = 0 if layer == "self" else min(changed)
            changed = set(range(first, T))
    return sorted(changed)


STACKS = (
    ("self",),
    ("causal",),
    ("cross",),
    ("causal", "causal"),
    ("causal", "cross"),
    ("cross", "causal"),
    ("causal", "self"),
    ("causal", "cross", "causal", "cross"),
)


def changed_outputs_cases(draw):
    def case(layers, part, T, S, at):
        stack = " → ".join(layers)
        some = f"layers {stack}" if len(layers) > 1 else f"one {stack} layer"
        tries = f"with {some}, and vector {at} of `{part}` replaced"
        return tries, [*layers], T, S, part, at

    yield case(("causal",), "x", 5, 7, 2)
    cases = [(("cross",), "memory", 3, 8, 7)]
    for layers in STACKS:
        for part in "x", "memory":
            T, S = draw.whole(4, 9), draw.whole(4, 9)
            at = draw.whole(1, (T if part == "x" else S) - 2)
            cases.append((layers, part, T, S, at))
    yield from (case(*x) for x in draw.shuffle(cases))


check_changed_outputs = Exercise(
    changed_outputs,
    changed_outputs_cases,
    stars=2,
    minutes=15,
    section="Self-, causal and cross-attention side by side",
    title="which outputs depend on an input",
    returns=("changed",),
    mistakes={
        "causal-backwards": (
            "in a causal layer it lists earlier outputs; it should be later ones",
            'range(first, T) → range(T if layer == "self" else max(changed) + 1)',
        ),
        "not-itself": (
            "in a causal layer it leaves out the replaced position itself",
            "else min(changed) → else min(changed) + 1",
        ),
        "causal-as-self": (
            "it treats a causal layer like one without a mask",
            '0 if layer == "self" else min(changed) → 0',
        ),
        "query-reaches-all": (
            "it lists all outputs; a query of cross-attention changes only its own",
            "else changed → else set(range(T))",
        ),
        "memory-is-causal": (
            "it gives cross-attention a causal mask, which it does not have",
            "set(range(T)) if → set(range(position, T)) if",
        ),
        "first-layer-only": (
            "it follows the change through the first layer only",
            "in layers → in layers[:1]",
        ),
    },
    hints=(
        "Which positions attend to the replaced vector? Follow them layer by layer.",
    ),
)

# What can be built into a causal layer, and the number of its fault.
FAULTS = {
    "no fault": 0,
    "no mask": 1,
    "the next position visible": 1,
    "the own position masked out": 2,
    "the own position masked out after the first": 2,
    "a mask after the softmax": 3,
    "keys of the first sequence": 4,
    "equal weights": 5,
}


def make_layer(
    built_in: str, W_query: Tensor, W_key: Tensor, W_value: Tensor
) -> Callable:
    """Return a layer of causal self-attention, with or without a fault."""

    def weigh(scores: Tensor) -> Tensor:
        ones = torch.ones_like(scores, dtype=torch.bool)
        after_first = ones.tril(-1)
        after_first[..., 0, 0] = True
        visible = {
            "no mask": ones,
            "the next position visible": ones.tril(1),
            "the own position masked out": ones.tril(-1),
            "the own position masked out after the first": after_first,
        }.get(built_in, ones.tril())
        if built_in == "a mask after the softmax":
            return scores.softmax(-1) * visible
        return scores.masked_fill(~visible, -torch.inf).softmax(-1).nan_to_num()

    def layer(x: Tensor) -> Tensor:
        """Return the output (B, T, E) of x (B, T, C)."""
        first = built_in == "keys of the first sequence"
        memory = x[:1].expand_as(x) if first else x
        scores = (x @ W_query.T) @ (memory @ W_key.T).mT * len(W_query) ** -0.5
        scores = scores * (built_in != "equal weights")
        return weigh(scores) @ (memory @ W_value.T)

    return layer


def attention_fault(layer: Callable, x: Float[Tensor, "B T C"]) -> int:
    """Return the number of a layer's fault, 0 if there is none.

    1: later positions have positive weights. 2: a position does not attend to
    itself. 3: the weights do not sum to 1. 4: a sequence depends on another
    one of the batch. 5: the weights do not depend on the input.

    Args:
        layer: x (B, T, C) to output (B, T, E).
        x: an example of the input.
    """
    rng = torch.Generator().manual_seed(0)
    x, other = torch.randn(2, 3, 4, x.shape[-1], generator=rng)
    same = x[:, :1].expand_as(x)  # all keys and values of a sequence are equal
    last = torch.cat([same[:, :3], other[:, :1]], dim=1)
    if not differ(layer(last)[:, 3], layer(same)[:, 3]):
        return 2
    if differ(layer(same)[:, 1:], layer(same)[:, :3]):
        return 3
    output = layer(x)
    later = torch.cat([x[:, :2], other[:, 2:]], dim=1)
    if differ(layer(later)[:, :2], output[:, :2]):
        return 1
    alone = torch.cat([layer(sequence[None]) for sequence in x])
    if differ(alone, output):
        return 4
    return 0 if differ(layer(2 * x), 2 * output) else 5


def attention_fault_cases(draw):
    def case(built_in, zero):
        c, d, e = draw.whole(3, 6), 3, 5
        numbers = (draw.normal(n, c) * c**-0.5 for n in (d, d, e))
        # One sequence, all of it zeros, is an example, too.
        x = torch.zeros(1, 2, c) if zero else draw.normal(2, 3, c)
        begins = ", given an x of zeros" if zero else ""
        tries = f"with a layer that has {built_in}{begins}"
        return Case(tries, (make_layer(built_in, *numbers), x), gradient=False)

    first, *rest = [(kind, zero) for kind in FAULTS for zero in (False, True)]
    yield from (case(*kind) for kind in (first, *draw.shuffle(rest)))


check_attention_fault = Exercise(
    attention_fault,
    attention_fault_cases,
    stars=3,
    minutes=25,
    section="Pitfalls",
    title="the fault of a causal attention layer",
    returns=("fault",),
    mistakes={
        "own-key-and-query": (
            "it replaces a vector and so changes the query; make the others equal",
            "[same[:, :3], other[:, :1]] → [x[:, :3], other[:, :1]] "
            "; layer(last)[:, 3], layer(same)[:, 3] → "
            "layer(last)[:, 3], layer(x)[:, 3]",
        ),
        "mask-before-sums": (
            "it tests the mask before the sums of the weights; after a late mask, "
            "later positions are still in the denominator",
            "return 3 → pass ; alone = → "
            "if differ(layer(same)[:, 1:], layer(same)[:, :3]):\n        return 3\n"
            "    alone =",
        ),
        "changed-position-compared": (
            "its test of the mask compares the replaced positions, too",
            "layer(later)[:, :2], output[:, :2] → layer(later), output",
        ),
        "first-sequence-only": (
            "its test of the batch looks at the first sequence only",
            "[layer(sequence[None]) for sequence in x] → [layer(x[:1]), output[1:]]",
        ),
    },
    hints=(
        "If all vectors of a sequence are equal, so are all outputs of a right layer.",
        "Test each position itself first, then the sums, the mask, the batch, the "
        "scores.",
    ),
)
