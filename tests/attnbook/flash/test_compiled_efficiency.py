"""What kernels do not do twice, late or in vain, read from compiled code."""

from functools import cache

import pytest
import torch

from attnbook.flash.options import Options
from code_reading import count_multiplied_terms, count_terms, list_loops
from kernel_runs import COMPILED

pytestmark = COMPILED
AMPERE, HOPPER = (8, 0), (9, 0)
each_gpu = pytest.mark.parametrize("capability", [AMPERE, HOPPER])


@cache
def compiled(capability):
    """Return the three kernels of causal attention by name."""
    import compiling

    given = compiling.make_inputs(128)
    codes = [
        code
        for way in ("forward", "backward")
        for code in compiling.compile_pass(capability, way, given, Options(causal=True))
    ]
    return {code.kernel: code for code in codes}


def find_loops(code):
    """Return the innermost loops, by whether they mask without a condition."""
    loops = list_loops(code.ttgir)
    masked = [x for x in loops if x.count("arith.select", inside=False)]
    return masked, [x for x in loops if x not in masked]


@each_gpu
def test_every_product_is_computed_once(capability):
    for name, code in compiled(capability).items():
        multiplied = count_multiplied_terms(code.ptx, code.warps)
        assert multiplied == count_terms(code.ttgir) > 0, name


@each_gpu
def test_tiles_are_copied_while_others_are_multiplied(capability):
    """Two tiles a turn; the copies of the next turn are not waited for."""
    for name, code in compiled(capability).items():
        for loop in list_loops(code.ttgir):
            assert loop.copies == 2, name
            assert loop.on_their_way >= 2, name


@each_gpu
def test_tiles_inside_the_mask_are_not_masked(capability):
    """A window runs the same code: its edge is another range of tiles."""
    codes = compiled(capability)
    for name in "forward", "query_gradient":
        masked, (inner,) = find_loops(codes[name])
        assert len(masked) == 2
        for operation in "arith.select", "arith.cmpi", "arith.andi":
            assert inner.count(operation) == 0
    masked, (loop,) = find_loops(codes["key_value_gradient"])
    assert not masked
    for operation in "arith.select", "arith.cmpi":
        assert loop.count(operation, inside=False) == 0
        assert loop.count(operation, inside=True) > 0


def test_the_backward_pass_launches_two_kernels_and_nothing_else():
    """The average of a query's gradients is not computed beside them."""
    from torch.utils._python_dispatch import TorchDispatchMode

    import compiling
    from attnbook.flash import launch

    class Operations(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            called.append(function.overloadpacket._qualified_op_name)
            return function(*args, **(kwargs or {}))

    called = []
    query, key, value = compiling.make_inputs(64)
    lse = query.new_empty(query.shape[:3], dtype=torch.float32)
    with compiling.compile_for(HOPPER) as made, Operations():
        launch.backward(query, key, value, query, lse, query, Options(causal=True))
    assert [name for name, _ in made] == [
        "query_gradient",
        "key_value_gradient",
    ]
    assert set(called) == {"aten::new_empty"}
