"""The cheat sheet: its costs, counted on the library's code at odd sizes."""

import re
from types import SimpleNamespace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from attnbook.attention.additive import AdditiveAttention, context
from attnbook.attention.additive_blocks import additive_scores_in_blocks
from attnbook.attention.blocked import attend_in_blocks, attend_window
from attnbook.attention.grouped_query import GroupedQueryAttention
from attnbook.attention.kernel_smoothing import smooth
from attnbook.attention.local import (
    GlobalAttention,
    MonotonicAttention,
    PredictiveAttention,
)
from attnbook.attention.luong import (
    ConcatScore,
    DotScore,
    GeneralScore,
    LocationScore,
)
from attnbook.attention.multi_head import MultiHeadAttention
from attnbook.attention.query_chunks import attend_in_query_chunks
from attnbook.attention.scaled_dot_product import attend, attention_weights
from attnbook.attention.self_attention import (
    causal_self_attention,
    cross_attention,
    self_attention,
)
from attnbook.attention.tiled import attend_tiled
from attnbook.models.stabilized_attention import (
    QKNormAttention,
    SoftCapAttention,
)
from attnbook.models.transformer_blocks import (
    DecoderBlock,
    EncoderBlock,
    PreNorm,
)
from attnbook.positions.absolute import frequencies
from attnbook.positions.biases import AlibiBias, T5Bias
from attnbook.positions.rotary import apply_rotary, rotary_angles
from attnbook.positions.shaw import ShawEncoding
from workshop.book import cheat_sheet
from workshop.book.attentions import ATTENTIONS, read_rows, value

SIZES = (
    {"T": 101, "S": 103, "D": 4, "E": 5, "Dq": 7, "M": 11, "A": 13, "C": 24}
    | {"H": 6, "G": 2, "r": 5, "w": 13, "R": 8, "b": 6, "F": 17},
    {"T": 131, "S": 137, "D": 6, "E": 3, "Dq": 13, "M": 7, "A": 11, "C": 12}
    | {"H": 2, "G": 1, "r": 3, "w": 17, "R": 16, "b": 10}
    | {"F": 19},
)
SAME = ("self-attention", "causal self-attention", "window, in blocks")
ASKS = "decoder block"  # the one module that asks another text


def at(row, which):
    """Return the sizes for a row, with what it must have equal."""
    n = dict(SIZES[which])
    if row.name == "dot":
        n["Dq"] = n["M"]
    if row.name in SAME or ("C^2" in row.parameters and row.name != ASKS):
        n["S"] = n["T"]
    if row.name == "any mask, in blocks":
        n |= {"T": 4 * n["R"], "S": 4 * n["R"], "f": 0.25}
    if row.name == "tiled":  # the logarithms are an output, too
        n["R"] = 32
    return n


def memory(attention):
    """A look at a memory, of chapters 2 and 3: (call, parameters)."""

    def make(n):
        query, states = torch.randn(1, n.T, n.Dq), torch.randn(1, n.S, n.M)
        module, lengths = attention(n), torch.tensor([n.S])

        def call():
            return module(query, module.key(states), states, lengths)

        return call, module.parameters()

    return make


def additive(n):
    query, states = torch.randn(1, n.T, n.Dq), torch.randn(1, n.S, n.M)
    score, lengths = AdditiveAttention(n.Dq, n.M, n.A), torch.tensor([n.S])

    def call():
        return context(score(query, score.key(states)), states, lengths)

    return call, score.parameters()


def in_blocks(n):
    query, states = torch.randn(1, n.T, n.Dq), torch.randn(1, n.S, n.M)
    given = torch.randn(n.A, n.Dq), torch.randn(n.A, n.M), torch.randn(n.A)

    def call():
        scores = additive_scores_in_blocks(query, states, *given, n.R)
        return context(scores, states, torch.tensor([n.S]))

    return call, given


def single(function):
    def make(n):
        given = torch.randn(1, n.T, n.D), torch.randn(1, n.S, n.D)
        value = torch.randn(1, n.S, n.E)
        return lambda: function(*given, value), ()

    return make


def projected(function, crossed=False):
    def make(n):
        x, memory = torch.randn(1, n.T, n.C), torch.randn(1, n.S, n.M)
        M = n.M if crossed else n.C
        W = torch.randn(n.D, n.C), torch.randn(n.D, M), torch.randn(n.E, M)
        asked = (x, memory) if crossed else (x,)
        return lambda: function(*asked, *W), W

    return make


def module(build):
    def make(n):
        made, x = build(n), torch.randn(1, n.T, n.C)
        return lambda: made(x), made.parameters()

    return make


def decoder_block(n):
    block = DecoderBlock(n.C, n.H, n.F, around=PreNorm)
    given = torch.randn(1, n.T, n.C), torch.randn(1, n.S, n.C)
    return lambda: block(*given), block.parameters()


def heads(function):
    """An attention of heads: its call, or its call and parameters."""

    def make(n):
        query, key = (torch.randn(1, n.H, x, n.D) for x in (n.T, n.S))
        value = torch.randn(1, n.H, n.S, n.E)
        call, parameters = function(n)
        return lambda: call(query, key, value), parameters

    return make


def diagonal(n):
    """Blocks on the diagonal."""
    block = torch.arange(n.T) // n.R
    mask = block[:, None] == block
    return lambda *given: attend_in_blocks(*given, mask, n.R), ()


def shaw(n):
    # One table is D wide and one E: the module has both as wide as a head.
    keys, values = ShawEncoding(n.D, n.r), ShawEncoding(n.E, n.r)

    def call(query, key, value):
        bias = keys(query, key.shape[2])
        weights = attention_weights(query, key, bias=bias)
        return weights @ value + values.output(weights)

    return call, (keys.keys, values.values)


def biased(build):
    def make(n):
        made = build(n)

        def call(query, key, value):
            return attend(query, key, value, bias=made(n.T, n.S))

        return call, made.parameters()

    return make


def rotary(n):
    angle = rotary_angles(torch.arange(max(n.T, n.S)), frequencies(n.D))

    def call(query, key, value):
        return attend(
            apply_rotary(query, angle[: n.T]),
            apply_rotary(key, angle[: n.S]),
            value,
        )

    return call, ()


def scored(attention, score=lambda n: GeneralScore(n.Dq, n.M), *more):
    return memory(lambda n: attention(score(n), *(x(n) for x in more)))


MAKE = {
    "additive": additive,
    "additive, in blocks": in_blocks,
    "dot": scored(GlobalAttention, lambda n: DotScore(n.M, n.M)),
    "general": scored(GlobalAttention),
    "concat": scored(GlobalAttention, lambda n: ConcatScore(n.Dq, n.M, n.A)),
    "location": scored(GlobalAttention, lambda n: LocationScore(n.Dq, n.S)),
    "local, monotonic": scored(
        MonotonicAttention, lambda n: GeneralScore(n.Dq, n.M), lambda n: n.r
    ),
    "local, predictive": scored(
        PredictiveAttention,
        lambda n: GeneralScore(n.Dq, n.M),
        lambda n: n.Dq,
        lambda n: n.A,
        lambda n: n.r,
    ),
    "scaled dot product": single(attend),
    "kernel smoothing": single(lambda q, k, v: smooth(q, k, v, 1.0)),
    "cross-attention": projected(cross_attention, crossed=True),
    "self-attention": projected(self_attention),
    "causal self-attention": projected(causal_self_attention),
    "multi-head": module(lambda n: MultiHeadAttention(n.C, n.H)),
    "grouped-query": module(lambda n: GroupedQueryAttention(n.C, n.H, n.G)),
    "multi-query": module(lambda n: GroupedQueryAttention(n.C, n.H, 1)),
    "window, in blocks": heads(
        lambda n: (lambda *x: attend_window(*x, n.w, n.R), ())
    ),
    "any mask, in blocks": heads(diagonal),
    "with Shaw's vectors": heads(shaw),
    "with T5's bias": heads(biased(lambda n: T5Bias(n.H, n.b))),
    "with ALiBi": heads(biased(lambda n: AlibiBias(n.H))),
    "rotary": heads(rotary),
    "with normalised queries and keys": module(
        lambda n: QKNormAttention(n.C, n.H)
    ),
    "soft-capped": module(lambda n: SoftCapAttention(n.C, n.H, 5.0)),
    "encoder block": module(
        lambda n: EncoderBlock(n.C, n.H, n.F, around=PreNorm)
    ),
    "decoder block": decoder_block,
    "in strips of queries": heads(
        lambda n: (lambda *x: attend_in_query_chunks(*x, n.R), ())
    ),
    "tiled": heads(lambda n: (lambda *x: attend_tiled(*x, n.R), ())),
}


def held(x):
    return x.untyped_storage().nbytes() // x.element_size()


class Made(TorchDispatchMode):
    """Note how many numbers each new tensor holds, and the tanh taken."""

    def __init__(self):
        super().__init__()
        self.sizes, self.tanh = set(), 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        given = {x.untyped_storage().data_ptr() for x in tensors(args)}
        made = function(*args, **(kwargs or {}))
        for x in tensors([made]):
            if x.untyped_storage().data_ptr() not in given:  # else a view
                self.sizes.add(held(x))
            if "tanh" in str(function):
                self.tanh += x.numel()
        return made


def tensors(given):
    return [x for x in tree_leaves(given) if isinstance(x, torch.Tensor)]


def vector(matrix, vector, *args, out_shape=None, **kwargs):
    """A matrix times a vector, which some versions of PyTorch leave out."""
    return 2 * matrix[0] * matrix[1]


def counted(row, which):
    """Return a row's sizes, and what a call of its code comes to.

    The output is no tensor to be counted: nobody goes without it.
    """
    n = at(row, which)
    call, parameters = MAKE[row.name](SimpleNamespace(**n))
    counter = FlopCounterMode(
        display=False, custom_mapping={torch.ops.aten.mv: vector}
    )
    with torch.no_grad(), counter, Made() as made:
        output = call()
    output = output[0] if isinstance(output, tuple) else output
    return n, {
        "operations": counter.get_total_flops(),
        "tanh": made.tanh,
        "parameters": sum(p.numel() for p in parameters),
        "largest": max(made.sizes - {held(output)}),
    }


@pytest.mark.parametrize("which", range(len(SIZES)))
@pytest.mark.parametrize("row", ATTENTIONS, ids=lambda row: row.name)
def test_a_rows_costs_are_those_of_the_code(row, which):
    n, found = counted(row, which)
    said = {name: value(getattr(row, name), n) for name in found}
    for name in ("operations", "largest") if row.at_most else ():
        assert said[name] / 2 <= found.pop(name) <= said.pop(name)
    assert said == found


def test_every_row_is_counted_and_every_chapter_has_one():
    assert {*MAKE} == {row.name for row in ATTENTIONS}
    assert len(MAKE) == len(ATTENTIONS)
    assert {row.chapter for row in ATTENTIONS} >= set(range(2, 12))


def test_a_number_is_short_and_a_cost_may_miss_no_axis():
    assert cheat_sheet.short(536870912) == "537 million"
    assert cheat_sheet.short(12) == "12"
    assert value("2 T^2 (D + E)", {"T": 3, "D": 1, "E": 4}) == 90
    with pytest.raises(ValueError, match=r"needs \['S'\]"):
        value("T S", {"T": 3})


def test_the_page_has_a_line_for_each():
    page = cheat_sheet.cheat_sheet()
    for row in ATTENTIONS:
        lines = re.findall(rf"^\| {re.escape(row.name)} \|", page, re.M)
        assert len(lines) == 2


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("name = 'x'", "12_new.toml, row 'x': missing .*formula"),
        ("colour = 'red'", "12_new.toml, row 'number 1': .*unknown .*colour"),
    ],
)
def test_an_incomplete_row_is_refused_with_its_file(tmp_path, row, said):
    (tmp_path / "12_new.toml").write_text(f"[[attention]]\n{row}\n")
    with pytest.raises(ValueError, match=said):
        read_rows(tmp_path)
