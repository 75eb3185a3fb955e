"""Tensors are found and replaced as PyTorch's own functions do it."""

from collections import OrderedDict

import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils._pytree import tree_leaves, tree_map_only

from attnbook.attention.tensor_trees import collect_tensors, map_tensors

A, B, C = (torch.arange(float(n)) for n in (1, 2, 3))
TREES = {
    "a tensor": A,
    "a number": 3,
    "nothing": None,
    "an empty tuple": (),
    "a list": [A, 2, B],
    "nested": (A, [B, (C, "mean"), []], {"scale": 2.0, "mask": A}),
    "an ordered dictionary": OrderedDict(b=B, a=[A]),
    "a named tuple": [pack_padded_sequence(torch.ones(2, 3, 1), [3, 2], True)],
    "a result of PyTorch's": torch.ones(2, 3).max(0),
    "a size": C.shape,
}
each = pytest.mark.parametrize("tree", TREES.values(), ids=TREES)


@each
def test_tensors_are_found_in_their_order(tree):
    found = [x for x in tree_leaves(tree) if isinstance(x, torch.Tensor)]
    assert [*map(id, collect_tensors(tree))] == [*map(id, found)]


@each
def test_tensors_are_replaced_and_the_rest_is_kept(tree):
    def change(x):
        return x + 1

    made, right = (
        map_tensors(change, tree),
        tree_map_only(torch.Tensor, change, tree),
    )
    assert type(made) is type(right)
    assert str(made) == str(right)
