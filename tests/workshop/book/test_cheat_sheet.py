"""The cheat sheet: its costs, counted on the library's code at odd sizes."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from attnbook.attention.blocked import attend_window
from attnbook.attention.multi_head import GroupedQueryAttention, MultiHeadAttention
from attnbook.attention.recurrent import ConcatScore, GeneralScore, GlobalAttention
from attnbook.attention.scaled_dot_product import attend
from attnbook.models.transformer import EncoderBlock, PreNorm
from attnbook.profiling.roofline import MODELS
from attnbook.profiling.steps import count_cache_bytes
from workshop.book.cheat_sheet import ATTENTIONS, evaluate_cost, format_number

SIZES = {
    **{"T": 101, "S": 101, "D": 4, "E": 4, "Dq": 7, "M": 11, "A": 13, "C": 24},
    **{"H": 6, "G": 2, "w": 13, "R": 8, "F": 17},
}


def draw(*shapes):
    return [torch.randn(shape) for shape in shapes]


def call_memory(module, n):
    """Return a call of an attention of chapter 3, and its inputs."""
    lengths = torch.tensor([n.S])

    def call(query, states):
        return module(query, module.key(states), states, lengths)

    return call, draw((1, n.T, n.Dq), (1, n.S, n.M)), module.parameters()


def call_module(module, n):
    return module, draw((1, n.T, n.C)), module.parameters()


# Row -> what is called, its inputs and its parameters.
CALLS = {
    "general": lambda n: call_memory(GlobalAttention(GeneralScore(n.Dq, n.M)), n),
    "concat": lambda n: call_memory(GlobalAttention(ConcatScore(n.Dq, n.M, n.A)), n),
    "scaled dot product": lambda n: (
        attend,
        draw((1, n.T, n.D), (1, n.S, n.D), (1, n.S, n.E)),
        (),
    ),
    "multi-head": lambda n: call_module(MultiHeadAttention(n.C, n.H), n),
    "grouped-query": lambda n: call_module(GroupedQueryAttention(n.C, n.H, n.G), n),
    "window, in blocks": lambda n: (
        lambda *x: attend_window(*x, n.w, n.R),
        draw(*[(1, n.H, n.T, n.D)] * 3),
        (),
    ),
    "encoder block": lambda n: call_module(
        EncoderBlock(n.C, n.H, n.F, residual=PreNorm), n
    ),
}


def count_stored(x):
    return x.untyped_storage().nbytes() // x.element_size()


class CountedTensors(TorchDispatchMode):
    """Note how many numbers each new tensor holds, and the tanh taken."""

    def __init__(self):
        super().__init__()
        self.sizes, self.tanh = set(), 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        given = {x.untyped_storage().data_ptr() for x in find_tensors(args)}
        made = function(*args, **(kwargs or {}))
        for x in find_tensors([made]):
            if x.untyped_storage().data_ptr() not in given:  # else a view
                self.sizes.add(count_stored(x))
            if "tanh" in str(function):
                self.tanh += x.numel()
        return made


def find_tensors(given):
    return [x for x in tree_leaves(given) if isinstance(x, torch.Tensor)]


def count_matrix_vector(matrix, vector, *args, out_shape=None, **kwargs):
    """A matrix times a vector, which some versions of PyTorch leave out."""
    return 2 * matrix[0] * matrix[1]


def count_costs(row):
    """Return what a call of a row's code comes to.

    The output is not counted: every attention returns it.
    """
    call, inputs, parameters = CALLS[row.name](SimpleNamespace(**SIZES))
    counter = FlopCounterMode(
        display=False, custom_mapping={torch.ops.aten.mv: count_matrix_vector}
    )
    with torch.no_grad(), counter, CountedTensors() as made:
        output = call(*inputs)
    output = output[0] if isinstance(output, tuple) else output
    return {
        "operations": counter.get_total_flops(),
        "tanh": made.tanh,
        "parameters": sum(p.numel() for p in parameters),
        "largest": max(made.sizes - {count_stored(output)}),
    }


@pytest.mark.parametrize("name", CALLS)
def test_a_rows_costs_are_those_of_the_code(name):
    [row] = [x for x in ATTENTIONS if x.name == name]
    found = count_costs(row)
    message = {name: evaluate_cost(getattr(row, name), SIZES) for name in found}
    for name in ("operations", "largest") if row.at_most else ():
        assert message[name] / 2 <= found.pop(name) <= message.pop(name)
    assert message == found


def test_costs_are_evaluated_and_numbers_shortened():
    assert evaluate_cost("2 T^2 (D + E)", {"T": 3, "D": 1, "E": 4}) == 90
    assert format_number(536870912) == "537 million"
    assert format_number(12) == "12"


def test_the_example_of_a_cache_is_a_published_model():
    model = MODELS["Llama 3 8B"]
    size = count_cache_bytes(model.block, 1, model.length, 2)
    page = (Path(__file__).parents[3] / "chapters/cheat_sheet.md").read_text("utf8")
    assert f"{size:,} bytes, which is {size / 2**30:.3g} GiB" in page
