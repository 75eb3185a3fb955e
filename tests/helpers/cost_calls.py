"""A call of the library's code for every row of the cheat sheet, at given sizes.

CALLS gives, for the name of a row, a function of the sizes that returns a function,
what it is called with, and the parameters. SIZES gives what a row needs otherwise: a
function from the sizes, as a dict, to those that change.
"""

import torch
import torch.nn.functional as F

from attnbook.attention import recurrent
from attnbook.attention.blocked import attend_in_blocks, attend_window
from attnbook.attention.delta_rule import attend_delta_chunked
from attnbook.attention.linear import attend_linear_chunked
from attnbook.attention.multi_head import (
    GroupedQueryAttention,
    MultiHeadAttention,
    gated_cross_attention,
)
from attnbook.attention.recurrent import (
    AdditiveAttention,
    additive_scores_in_blocks,
    context,
)
from attnbook.attention.scaled_dot_product import (
    attend,
    attend_in_query_chunks,
    attention_weights,
)
from attnbook.attention.self_attention import (
    causal_self_attention,
    cross_attention,
    self_attention,
)
from attnbook.attention.sparse import attend_block_sparse
from attnbook.attention.tiled import attend_tiled
from attnbook.models.transformer import (
    DecoderBlock,
    EncoderBlock,
    PreNorm,
    QKNormAttention,
)
from attnbook.positions.absolute import frequencies
from attnbook.positions.biases import AlibiBias, ShawEncoding, T5Bias
from attnbook.positions.rotary import apply_rotary, rotary_angles
from workshop.experiments.language_models import SoftCapAttention


def draw(*shapes):
    return [torch.randn(shape) for shape in shapes]


def draw_heads(n):
    """Query, key and value with heads."""
    return draw((1, n.H, n.T, n.D), (1, n.H, n.S, n.D), (1, n.H, n.S, n.E))


def call_memory(build):
    """An attention of chapters 2 and 3: a query attends to encoder states."""

    def make(n):
        module, lengths = build(n), torch.tensor([n.S])

        def call(query, states):
            return module(query, module.key(states), states, lengths)

        inputs = draw((1, n.T, n.Dq), (1, n.S, n.M))
        return call, inputs, module.parameters()

    return make


def call_global(score):
    return call_memory(lambda n: recurrent.GlobalAttention(score(n)))


def call_module(build):
    """A module of one sequence."""

    def make(n):
        made = build(n)
        return made, draw((1, n.T, n.C)), made.parameters()

    return make


def call_heads(build):
    """A function of query, key and value, with heads."""
    return lambda n: (build(n), draw_heads(n), ())


def call_biased(build):
    """Attention with a bias that a module computes from the lengths."""

    def make(n):
        made = build(n)
        call = lambda *given: attend(*given, bias=made(n.T, n.S))  # noqa: E731
        return call, draw_heads(n), made.parameters()

    return make


def call_self(function):
    def make(n):
        W = draw((n.D, n.C), (n.D, n.C), (n.E, n.C))
        return function, [*draw((1, n.T, n.C)), *W], W

    return make


def call_cross(n):
    W = draw((n.D, n.C), (n.D, n.M), (n.E, n.M))
    return cross_attention, [*draw((1, n.T, n.C), (1, n.S, n.M)), *W], W


def call_gated(n):
    W = draw((n.D, n.C), (n.D, n.M), (n.C, n.M), ())
    return gated_cross_attention, [*draw((1, n.T, n.C), (1, n.S, n.M)), *W], W


def call_additive(n):
    score, lengths = AdditiveAttention(n.Dq, n.M, n.A), torch.tensor([n.S])

    def call(query, states):
        return context(score(query, score.key(states)), states, lengths)

    return call, draw((1, n.T, n.Dq), (1, n.S, n.M)), score.parameters()


def call_in_blocks(n):
    W = draw((n.A, n.Dq), (n.A, n.M), (n.A,))

    def call(query, states):
        scores = additive_scores_in_blocks(query, states, *W, n.R)
        return context(scores, states, torch.tensor([n.S]))

    return call, draw((1, n.T, n.Dq), (1, n.S, n.M)), W


def call_shaw(n):
    # One table is D wide and one E: the module has both as wide as a head.
    keys, values = ShawEncoding(n.D, n.r), ShawEncoding(n.E, n.r)

    def call(query, key, value):
        bias = keys(query, key.shape[2])
        weights = attention_weights(query, key, bias=bias)
        return weights @ value + values.output(weights)

    return call, draw_heads(n), (keys.keys, values.values)


def build_block_diagonal(n):
    block = torch.arange(n.T) // n.R
    mask = block[:, None] == block
    return lambda *given: attend_in_blocks(*given, mask, n.R)


def build_rotary(n):
    angle = rotary_angles(torch.arange(max(n.T, n.S)), frequencies(n.D))

    def call(query, key, value):
        query = apply_rotary(query, angle[: n.T])
        return attend(query, apply_rotary(key, angle[: n.S]), value)

    return call


def build_block_sparse(n):
    layout = torch.eye(n.T // n.R, dtype=torch.bool)
    return lambda *given: attend_block_sparse(*given, layout)


def build_delta(n):
    beta = torch.full((1, n.H, n.T), 0.5)

    def call(query, key, value):
        key = F.normalize(key, dim=-1)
        return attend_delta_chunked(query, key, value, beta, chunk=n.R)

    return call


def call_decoder_block(n):
    block = DecoderBlock(n.C, n.H, n.F, residual=PreNorm)
    return block, draw((1, n.T, n.C), (1, n.S, n.C)), block.parameters()


CALLS = {
    "additive": call_additive,
    "additive, in blocks": call_in_blocks,
    "dot": call_global(lambda n: recurrent.DotScore(n.M, n.M)),
    "general": call_global(lambda n: recurrent.GeneralScore(n.Dq, n.M)),
    "concat": call_global(lambda n: recurrent.ConcatScore(n.Dq, n.M, n.A)),
    "location": call_global(lambda n: recurrent.LocationScore(n.Dq, n.S)),
    "local, monotonic": call_memory(
        lambda n: recurrent.MonotonicAttention(recurrent.GeneralScore(n.Dq, n.M), n.r)
    ),
    "local, predictive": call_memory(
        lambda n: recurrent.PredictiveAttention(
            recurrent.GeneralScore(n.Dq, n.M), n.Dq, n.A, n.r
        )
    ),
    "scaled dot product": lambda n: (
        attend,
        draw((1, n.T, n.D), (1, n.S, n.D), (1, n.S, n.E)),
        (),
    ),
    "cross-attention": call_cross,
    "self-attention": call_self(self_attention),
    "causal self-attention": call_self(causal_self_attention),
    "multi-head": call_module(lambda n: MultiHeadAttention(n.C, n.H)),
    "grouped-query": call_module(lambda n: GroupedQueryAttention(n.C, n.H, n.G)),
    "multi-query": call_module(lambda n: GroupedQueryAttention(n.C, n.H, 1)),
    "window, in blocks": call_heads(lambda n: lambda *x: attend_window(*x, n.w, n.R)),
    "any mask, in blocks": call_heads(build_block_diagonal),
    "with Shaw's vectors": call_shaw,
    "with T5's bias": call_biased(lambda n: T5Bias(n.H, n.b)),
    "with ALiBi": call_biased(lambda n: AlibiBias(n.H)),
    "rotary": call_heads(build_rotary),
    "with normalised queries and keys": call_module(
        lambda n: QKNormAttention(n.C, n.H)
    ),
    "soft-capped": call_module(lambda n: SoftCapAttention(n.C, n.H)),
    "encoder block": call_module(
        lambda n: EncoderBlock(n.C, n.H, n.F, residual=PreNorm)
    ),
    "decoder block": call_decoder_block,
    "in query chunks": call_heads(lambda n: lambda *x: attend_in_query_chunks(*x, n.R)),
    "tiled": call_heads(lambda n: lambda *x: attend_tiled(*x, n.R)),
    "block-sparse": call_heads(build_block_sparse),
    "linear, in chunks": call_heads(
        lambda n: lambda *x: attend_linear_chunked(*x, chunk=n.R)
    ),
    "delta rule, in chunks": call_heads(build_delta),
    "gated cross-attention": call_gated,
}


def use_equal_lengths(n):
    """As many keys as queries: a sequence that attends to itself."""
    return {"S": n["T"]}


def use_four_chunks(n):
    return {"T": 4 * n["R"], "S": 4 * n["R"], "f": 0.25}


SIZES = {
    "dot": lambda n: {"Dq": n["M"]},
    "tiled": lambda n: {"R": 32},
    "any mask, in blocks": use_four_chunks,
    "block-sparse": use_four_chunks,
    "linear, in chunks": use_four_chunks,
    "delta rule, in chunks": lambda n: {"R": 32, "T": 128, "S": 128},
} | dict.fromkeys(
    (
        "self-attention",
        "causal self-attention",
        "multi-head",
        "grouped-query",
        "multi-query",
        "window, in blocks",
        "with normalised queries and keys",
        "soft-capped",
        "encoder block",
    ),
    use_equal_lengths,
)
