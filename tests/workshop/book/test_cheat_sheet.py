"""The cheat sheet: its costs, counted on the library's code at odd sizes."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

import cost_calls
from attnbook.profiling.roofline import MODELS
from attnbook.profiling.steps import count_cache_bytes
from workshop.book.cheat_sheet import ATTENTIONS, evaluate_cost, format_number

SIZES = (
    {"T": 101, "S": 103, "D": 4, "E": 5, "Dq": 7, "M": 11, "A": 13, "C": 24}
    | {"H": 6, "G": 2, "r": 5, "w": 13, "R": 8, "b": 6, "F": 17},
    {"T": 131, "S": 137, "D": 6, "E": 3, "Dq": 13, "M": 7, "A": 11, "C": 12}
    | {"H": 2, "G": 1, "r": 3, "w": 17, "R": 16, "b": 10}
    | {"F": 19},
)


def choose_sizes(row, which):
    """Return the sizes for a row, with what it needs otherwise."""
    n = dict(SIZES[which])
    return n | cost_calls.SIZES.get(row.name, lambda n: {})(n)


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


def count_costs(row, which):
    """Return a row's sizes, and what a call of its code comes to.

    The output is not counted: every attention returns it.
    """
    n = choose_sizes(row, which)
    call, inputs, parameters = cost_calls.CALLS[row.name](SimpleNamespace(**n))
    counter = FlopCounterMode(
        display=False, custom_mapping={torch.ops.aten.mv: count_matrix_vector}
    )
    with torch.no_grad(), counter, CountedTensors() as made:
        output = call(*inputs)
    output = output[0] if isinstance(output, tuple) else output
    return n, {
        "operations": counter.get_total_flops(),
        "tanh": made.tanh,
        "parameters": sum(p.numel() for p in parameters),
        "largest": max(made.sizes - {count_stored(output)}),
    }


@pytest.mark.parametrize("which", range(len(SIZES)))
@pytest.mark.parametrize("row", ATTENTIONS, ids=lambda row: row.name)
def test_a_rows_costs_are_those_of_the_code(row, which):
    n, found = count_costs(row, which)
    message = {name: evaluate_cost(getattr(row, name), n) for name in found}
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
