"""Every call of an answer meets inputs of its own."""

import copy

import pytest
import torch
from torch import nn

from attnbook.exercises.copying import PLAIN, copy_input
from attnbook.exercises.exercise import FIRST
from workshop.book.mistakes import list_entries

pytestmark = pytest.mark.exact("compares copies with their originals")


def test_a_copied_input_keeps_its_layout():
    rows = torch.arange(6.0).view(2, 3)
    for x in (rows, rows.mT, rows[:1].expand(4, 3), torch.ones(())):
        copied = copy_input(x)
        assert torch.equal(copied, x)
        assert copied.stride() == x.stride()
        assert copied.data_ptr() != x.data_ptr()


class Counted(nn.Module):
    """Defines its own `__deepcopy__`, which counts the copies."""

    def __init__(self):
        super().__init__()
        self.copies = 0

    def __deepcopy__(self, memo):
        made = Counted()
        made.copies = self.copies + 1
        return made


class Whole(nn.Module):
    """Has everything that a module can hold."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.second = nn.Linear(4, 3)
        self.again = self.first
        self.absent = None
        self.register_module("missing", None)
        self.register_parameter("none", None)
        self.nothing = nn.ModuleList()
        self.counted = Counted()
        self.register_buffer("table", torch.arange(6.0).view(2, 3).mT)
        self.register_buffer("scratch", torch.ones(2), persistent=False)
        self.tied = nn.Linear(3, 4)
        self.tied.weight = self.first.weight
        self.frozen = nn.Parameter(torch.ones(2), requires_grad=False)
        self.named = {"table": self.table, "width": (3, [4])}
        self.one = self.other = []
        self.second.eval()


def list_attributes(module):
    """Return the attributes of a module and its parts, ready to compare."""

    def read(held):
        if isinstance(held, torch.Tensor):
            return held.stride(), held.requires_grad, type(held), held.tolist()
        if isinstance(held, dict):
            return type(held), {key: read(x) for key, x in held.items()}
        if isinstance(held, list | tuple):
            return type(held), [*map(read, held)]
        return held if isinstance(held, (*PLAIN, set)) else type(held)

    return [(type(x), read(vars(x))) for x in module.modules()]


def test_a_copied_module_holds_what_copy_deepcopy_copies():
    module = Whole()
    made, right = copy_input(module), copy.deepcopy(module)
    assert list_attributes(made) == list_attributes(right)
    assert made.again is made.first and made.tied.weight is made.first.weight
    assert made.named["table"] is made.table and made.one is made.other
    assert made.counted.copies == 1
    assert [*made.state_dict()] == [*right.state_dict()]


def test_changing_a_copied_module_leaves_the_original_alone():
    module = Whole()
    before = list_attributes(copy.deepcopy(module))
    made = copy_input(module)
    made.register_forward_hook(lambda *given: None)
    made.nothing.append(nn.Linear(1, 1))
    made.one.append(1)
    made.named["width"][1].append(5)
    made.train().first.register_buffer("more", torch.ones(1))
    for held in (*made.parameters(), *made.buffers()):
        held.data.zero_()
    module.counted.copies += 1  # `before` comes from a copy, which counts one
    assert list_attributes(module) == before


@pytest.mark.parametrize("entry", [*list_entries()], ids=lambda x: x.name)
def test_models_in_exercises_are_copied_as_deepcopy_does(entry):
    for case in entry.exercise.draw_cases(FIRST):
        for x in case.inputs:
            if isinstance(x, nn.Module):
                made, right = copy_input(x), copy.deepcopy(x)
                assert list_attributes(made) == list_attributes(right)
