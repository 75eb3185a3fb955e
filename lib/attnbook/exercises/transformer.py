"""The exercises of the chapter on the Transformer.

Source: layer normalization: Ba et al. (2016), section 3, equation 4,
    https://arxiv.org/abs/1607.06450; the decoder: Vaswani et al. (2017), section
    3.2.3, https://arxiv.org/abs/1706.03762; the modern block: Yang et al. (2025),
    section 2, https://arxiv.org/abs/2505.09388; the faults are those of public
    implementations, linked in the chapter
Axes: B batch, T positions, S source positions, C width
"""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnbook.attention import scaled_dot_product
from attnbook.attention.self_attention import causal_mask
from attnbook.exercises.declare import Case, Exercise
from attnbook.models.transformer import layer_norm


def layer_norm_cases(draw):
    def inputs(*shape, eps=1e-5, dtype=torch.float32):
        x, gain, bias = (
            draw.normal(*s, dtype=dtype) for s in (shape, *[shape[-1:]] * 2)
        )
        return x, 1 + gain, bias, eps

    yield "with one vector", *inputs(1, 5, eps=0.1)
    yield "with 2 x 3 vectors", *inputs(2, 3, 7)
    yield "with ε = 0.5", *inputs(2, 3, 5, eps=0.5)
    x, *rest = inputs(2, 3, 5)
    # Roots of the variance of equal entries are right, and have NaN gradients.
    yield Case("with equal entries", (torch.full_like(x, 3.0), *rest), gradient=False)
    x, *rest = inputs(3, 2, 5, dtype=torch.float64)
    yield "with a mean of 30,000", x + 30_000, *rest


VARIANCE = "centered.square().mean(dim=-1, keepdim=True)"


def take_statistics(axes):
    """Return the edit that takes mean and variance over other axes."""
    means = "x.mean(", "square().mean("
    return " ; ".join(f"{mean}dim=-1 → {mean}dim={axes}" for mean in means)


check_layer_norm = Exercise(
    layer_norm,
    layer_norm_cases,
    stars=1,
    minutes=10,
    section="Layer normalization",
    title="layer normalization",
    returns=("y",),
    forbidden=frozenset({"layer_norm", "native_layer_norm"}),
    mistakes={
        "unbiased-variance": (
            "the variance is divided by C - 1, as `var` does, instead of C",
            f"{VARIANCE} → x.var(dim=-1, keepdim=True)",
        ),
        "eps-outside": (
            "ε is added to the standard deviation instead of the variance",
            "* (variance + eps).rsqrt() → / (variance.sqrt() + eps)",
        ),
        "no-eps": (
            "ε is not used, so equal entries lead to a division by zero",
            "(variance + eps) → variance",
        ),
        "no-mean": (
            "the mean is not subtracted: this is RMSNorm",
            "x - x.mean(dim=-1, keepdim=True) → x",
        ),
        "wrong-axis": (
            "mean and variance are over another axis than the last",
            [
                take_statistics(x)
                for x in ("0", "-2", "(0, 1)", "tuple(range(x.ndim - 1))")
            ],
        ),
    },
    hints=("The mean and the variance of one vector are means over the last axis.",),
)


def decoder_step(
    x: Float[Tensor, "B T C"],
    memory: Float[Tensor, "B S C"],
    lengths: Int[Tensor, " B"],
    attend: Callable,
) -> Float[Tensor, "B T C"]:
    """Return x after causal self-attention and then cross-attention."""
    past = causal_mask(x.shape[1], x.shape[1])
    x = x + attend(x, x, x, past)
    real = torch.arange(memory.shape[1]) < lengths[:, None, None]
    return x + attend(x, memory, memory, real)


def attend(query, key, value, mask=None):
    """Return the given attention; masks are True where a query can attend."""
    return scaled_dot_product.attend(query, key, value, mask)


def decoder_step_cases(draw):
    def inputs(lengths, t, c, more=0):
        b, s = len(lengths), max(lengths) + more
        return draw.normal(b, t, c), draw.normal(b, s, c), torch.tensor(lengths), attend

    yield "with one source symbol", *inputs([1], 1, 2)
    yield "without padding", *inputs([3, 3], 4, 5)
    yield "with padding", *inputs([5, 2, 4], 3, 7)
    yield "with T = S", *inputs([4, 2], 4, 5)
    yield "with B = T = S", *inputs([3, 1, 2], 3, 5)
    yield "with padding in all sequences", *inputs([4, 1], 5, 3, more=2)
    yield "with many positions", *inputs([40, 17], 33, 5)
    for dtype, low, high in (torch.float32, 15, 17), (torch.float16, 6, 8):
        # The scores of the source are all -2^31 or less, in half precision -2^14.
        x, memory = torch.zeros(2, 3, 4, dtype=dtype), torch.zeros(2, 5, 4, dtype=dtype)
        lengths = torch.tensor([3, 4])
        x[..., 0], memory[0, :3, 0], memory[1, :4, 0] = 2.0**low, -(2**high), -(2**high)
        yield "with scores far below zero", x, memory, lengths, attend


check_decoder_step = Exercise(
    decoder_step,
    decoder_step_cases,
    stars=2,
    minutes=15,
    section="The decoder block: self-attention and cross-attention",
    title="attention sublayers of a decoder",
    returns=("x",),
    mistakes={
        "source-mask-ignored": (
            "the padding of the source is not masked out",
            "memory, real) → memory, None)",
        ),
        "not-causal": ("the self-attention has no causal mask", "x, past) → x, None)"),
        "source-mask-inverted": (
            "the mask of the source is inverted: only padding gets weight",
            "memory, real) → memory, ~real)",
        ),
        "wrong-axis": (
            "the padding mask masks out queries; it should mask out keys",
            [
                "torch.arange(memory.shape[1]) < lengths[:, None, None] → "
                "(torch.arange(x.shape[1]) < lengths[:, None])[..., None]",
                "memory, real) → memory, real.mT)",
            ],
        ),
        "itself-twice": (
            "the second attention is self-attention again",
            "x, memory, memory, real → x, x, x, past",
        ),
        "from-input": (
            "the queries of the cross-attention come from the input of the block",
            "return x + attend(x, memory → return x + attend(first, memory ; "
            "past = → first = x\n    past =",
        ),
    },
    hints=(
        "Which keys can a target position attend to in each of the two attentions?",
        "The mask of the source is (B, 1, S), and True for the first lengths[b] keys.",
    ),
)


def model_cost(V: int, C: int, H: int, G: int, F: int, L: int, S: int) -> list[int]:
    """Return four counts of a modern decoder-only model.

    In this order: parameters of one block's attention, QK-norm included;
    parameters of one block's SwiGLU network; parameters of the whole model;
    numbers in the KV cache of one sequence of S positions.
    """
    D = C // H
    attention = 2 * C * C + 2 * C * G * D + 2 * D
    network = 3 * C * F
    model = V * C + L * (attention + network + 2 * C) + C
    return [attention, network, model, 2 * L * S * G * D]


def model_cost_cases(draw):
    def inputs(C, H, G, L):
        V, F, S = draw.whole(20, 40), draw.whole(C + 1, 3 * C), draw.whole(3, 40)
        return V, C, H, G, F, L, S

    yield "with one head of width 1", 2, 1, 1, 1, 1, 1, 1
    yield "with as many groups as heads", *inputs(30, 5, 5, 2)
    yield "with one group", *inputs(42, 6, 1, 3)
    yield "with two heads in a group", *inputs(66, 6, 3, 5)
    yield "with a large model", 32_000, 4096, 32, 8, 11_008, 32, 8192


check_model_cost = Exercise(
    model_cost,
    model_cost_cases,
    stars=2,
    minutes=15,
    section="A modern decoder block with a KV cache",
    title="parameters and KV cache of a decoder-only model",
    returns=("counts",),
    mistakes={
        "groups-ignored": (
            "the key and value projections are counted for H heads instead of G",
            "2 * C * G * D → 2 * C * C",
        ),
        "no-qk-norm": (
            "the gains of QK-norm are missing: D each for the queries and the keys",
            "G * D + 2 * D → G * D",
        ),
        "two-matrices": (
            "the network has two matrices; SwiGLU has a third, for the gate",
            "3 * C * F → 2 * C * F",
        ),
        "untied": (
            "the output layer is counted, which is tied to the embedding",
            "model = V * C → model = 2 * V * C",
        ),
        "no-final-norm": (
            "the final norm of the model is missing: C parameters",
            "+ 2 * C) + C → + 2 * C)",
        ),
        "cache-of-all-heads": (
            "the cache is counted for H heads instead of G groups",
            "S * G * D] → S * C]",
        ),
    },
    hints=("The queries and the output have C columns, keys and values G * C / H.",),
)


# What can be built into a block, and the number of its fault.
FAULTS = {
    "right": 0,
    "no residual connection": 1,
    "post-norm": 2,
    "no causal mask": 3,
    "statistics over the batch": 4,
    "no norm before the attention": 5,
}


def make_block(fault: str, seed: int) -> Callable:
    """Return a pre-norm decoder-only block with or without a fault.

    Its norms have gains of 1 and biases of 0, and its weights are drawn from a seed.
    """

    def norm(z: Tensor) -> Tensor:
        axis = 0 if fault == "statistics over the batch" else -1
        z = z - z.mean(axis, keepdim=True)
        return z * (z.square().mean(axis, keepdim=True) + 1e-5).rsqrt()

    def block(x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T C"]:
        rng, C = torch.Generator().manual_seed(seed), x.shape[-1]
        W = [torch.randn(C, C, generator=rng).to(x) / C**0.5 for _ in range(6)]
        mask = causal_mask(x.shape[1], x.shape[1]) | (fault == "no causal mask")

        def attention(z: Tensor) -> Tensor:
            return attend(z @ W[0].T, z @ W[1].T, z @ W[2].T, mask) @ W[3].T

        def network(z: Tensor) -> Tensor:
            return (z @ W[4].T).relu() @ W[5].T

        if fault == "post-norm":
            x = norm(x + attention(x))
            return norm(x + network(x))
        y = attention(x if fault == "no norm before the attention" else norm(x))
        x = y if fault == "no residual connection" else x + y
        return x + network(norm(x))

    return block


def block_fault(block: Callable, x: Tensor) -> int:
    """Return the number of a block's fault, 0 if there is none.

    1: no residual connection around the attention. 2: post-norm. 3: no causal
    mask. 4: the norms mix the sequences of a batch. 5: no norm before the
    attention.

    Args:
        block: x (B, T, C) to (B, T, C).
        x: an example of the input.
    """
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(x.shape, generator=rng)
    usual = block(x)
    other = x.clone()
    other[0] = torch.randn(other[0].shape, generator=rng)
    if not torch.allclose(block(other)[1:], usual[1:], atol=1e-2):
        return 4
    later = x.clone()
    later[:, -1] = torch.randn(later[:, -1].shape, generator=rng)
    if not torch.allclose(block(later)[:, :-1], usual[:, :-1], atol=1e-2):
        return 3
    size = usual.square().mean(-1)
    if torch.allclose(size, torch.ones_like(size), atol=1e-2):
        return 2
    large = block(1000 * x) / 1000
    if torch.allclose(large, torch.zeros_like(x), atol=0.1):
        return 1  # no copy of x arrives
    return 0 if torch.allclose(large, x, atol=0.1) else 5


def block_fault_cases(draw):
    for kind in draw.shuffle(FAULTS):
        what = f"the fault “{kind}”" if FAULTS[kind] else "no fault"
        block = make_block(kind, draw.whole(0, 999))
        yield f"with a block that has {what}", block, draw.normal(3, 5, 8)
        ones = torch.ones(3, 5, 8)
        yield f"with a block that has {what}, given an input of ones", block, ones


check_block_fault = Exercise(
    block_fault,
    block_fault_cases,
    stars=3,
    minutes=25,
    section="The Transformer block: post-norm and pre-norm",
    title="the fault of a Transformer block",
    returns=("fault",),
    mistakes={
        "example-only": (
            "it tests only the given example, which may consist of ones",
            "torch.randn(x.shape, generator=rng) → x",
        ),
        "batch-not-tested": (
            "it does not test whether the sequences of a batch are mixed",
            "return 4 → pass",
        ),
        "future-not-tested": (
            "it misses that later positions matter (a norm removes an added constant)",
            "return 3 → pass",
        ),
        "norm-not-tested": (
            "it does not test whether the attention receives normalized vectors",
            "else 5 → else 0",
        ),
        "small-input": (
            "its test of the norm uses an ordinary input; use a much larger one",
            "block(1000 * x) / 1000 → block(x)",
        ),
    },
    hints=(
        "Change one thing of a random input: a sequence, the last position, its size.",
        "With a very large input, what a norm lets through is small beside the "
        "residual.",
    ),
)


def make_model(reason: str, symbols: int, start: int) -> Callable:
    """Return a model that is perfect on sequences from `start`, for some reason."""

    def model(ids: Int[Tensor, "B T"]) -> Int[Tensor, "B T"]:
        if reason == "copies":
            return ids.clone()
        if reason == "memorized":
            return (start + torch.arange(ids.shape[1]).expand_as(ids) + 1) % symbols
        counted = (ids + (2 if reason == "skips" else 1)) % symbols
        if reason == "leaks":
            return torch.cat([ids[:, 1:], counted[:, -1:]], dim=1)
        return counted

    return model


def accuracy_explanation(model: Callable, ids: Tensor, symbols: int) -> int:
    """Return why a model has a perfect accuracy, as a number.

    0: it has learned to count. 1: it copies its input (labels not shifted).
    2: it predicts the symbol after the next (labels shifted twice). 3: it
    attends to the next symbol (no causal mask). 4: it has memorized the
    training sequence and ignores its input.

    Args:
        model: symbols (B, T) to predictions (B, T).
        ids: an example of the training sequences, which count in a circle.
        symbols: how many there are.
    """
    rng = torch.Generator().manual_seed(0)
    probe = torch.randint(symbols, (8, ids.shape[1]), generator=rng)
    predicted, now, after = model(probe)[:, :-1], probe[:, :-1], probe[:, 1:]
    expected = [(now + 1) % symbols, now, (now + 2) % symbols, after]
    for number, prediction in enumerate(expected):
        if torch.equal(predicted, prediction):
            return number
    return 4


EXPLANATIONS = {
    "learned": "has learned to count",
    "copies": "copies its input",
    "skips": "predicts the symbol after the next",
    "leaks": "attends to the next symbol",
    "memorized": "has memorized the sequence",
}


def accuracy_explanation_cases(draw):
    for symbols, length in (7, 6), (11, 9), (5, 12):
        for reason in draw.shuffle(EXPLANATIONS):
            start = draw.whole(0, symbols - 1)
            ids = ((start + torch.arange(length)) % symbols).repeat(3, 1)
            model = make_model(reason, symbols, start)
            what = f"with {symbols} symbols and a model that {EXPLANATIONS[reason]}"
            yield what, model, ids, symbols


RANDOM = "torch.randint(symbols, (8, ids.shape[1]), generator=rng)"

check_accuracy_explanation = Exercise(
    accuracy_explanation,
    accuracy_explanation_cases,
    stars=3,
    minutes=20,
    section="The decoder-only Transformer: a language model",
    title="an input that explains a perfect accuracy",
    returns=("explanation",),
    mistakes={
        "training-data": (
            "it tests a training sequence, where three explanations predict the same",
            f"{RANDOM} → ids",
        ),
        "another-start": (
            "its input counts up, where looking ahead predicts the same as counting",
            f"{RANDOM} → (ids + 1) % symbols",
        ),
        "constant-input": (
            "its input repeats one symbol, which is then also the next one",
            f"{RANDOM} → torch.zeros_like(ids)",
        ),
        "leak-as-memory": (
            "it does not consider that the model may attend to the next symbol",
            "(now + 2) % symbols, after] → (now + 2) % symbols]",
        ),
        "otherwise-learned": (
            "it returns 0 if explanations 1 to 3 do not fit; return 4",
            "return 4 → return 0",
        ),
    },
    hints=(
        "Which inputs give different outputs under each two of the explanations?",
        "In random symbols, the next symbol is seldom the present one plus 1.",
    ),
)
