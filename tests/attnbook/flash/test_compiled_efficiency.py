"""What kernels do not do twice, late or in vain, read from compiled code."""

import re
from functools import cache

import pytest
import torch

from attnbook.flash.options import Options
from attnbook.flash.sizes import TileSizes
from code_reading import (
    MMA,
    count_multiplied_terms,
    count_terms,
    list_loops,
    list_products,
)
from kernel_runs import COMPILED

pytestmark = COMPILED
AMPERE, ADA, HOPPER = (8, 0), (8, 9), (9, 0)
KERNELS = "forward", "key_value_gradient", "query_gradient"


@cache
def compiled(capability, D, causal=True, kind="float16", tile=None):
    """Return the three kernels by name."""
    import compiling

    given = compiling.make_inputs(D, dtype=getattr(torch, kind), T=1024, S=1024)
    options = Options(causal=causal)
    codes = [
        code
        for way in ("forward", "backward")
        for code in compiling.compile_pass(capability, way, given, options, tile)
    ]
    return {code.kernel: code for code in codes}


def find_loops(code):
    """Return the innermost loops, by whether they mask without a condition."""
    loops = list_loops(code.ttgir)
    masked = [x for x in loops if x.count("arith.select", inside=False)]
    return masked, [x for x in loops if x not in masked]


WIDE = [(c, D) for c in (AMPERE, ADA, HOPPER) for D in (64, 128, 256)]
USUAL = [(c, D) for c in (AMPERE, HOPPER) for D in (64, 128)]


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("capability", "D"), WIDE)
def test_every_product_is_computed_once(capability, D, kernel):
    kind = "bfloat16" if D == 256 else "float16"
    code = compiled(capability, D, kind=kind)[kernel]
    multiplied = count_multiplied_terms(code.ptx, code.warps)
    assert multiplied == count_terms(code.ttgir) > 0


def test_eight_warps_on_64_rows_compute_some_products_twice():
    """The check above can fail: these are tiles that an earlier version had."""
    codes = compiled(HOPPER, 128, tile=TileSizes(64, 64, 8, 2))
    times = [
        count_multiplied_terms(codes[x].ptx, 8) / count_terms(codes[x].ttgir)
        for x in KERNELS[1:]
    ]
    # One product or two of four, two of three: Triton's versions differ.
    assert min(times) >= 5 / 4


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
@pytest.mark.parametrize(("capability", "D"), USUAL)
def test_half_precision_is_multiplied_and_single_precision_added(
    capability, D, kind, kernel
):
    """Sizes of an instruction, and kinds: of the sum, left and right."""
    code = compiled(capability, D, kind=kind)[kernel]
    wide = capability == HOPPER
    short = "f16" if kind == "float16" else "bf16"
    found = {
        (int(x[1]), int(x[3]), *re.findall(r"b?f\d+", x[4]))
        for x in MMA.finditer(code.ptx)
    }
    expected = "f32", short, short, *(() if wide else ("f32",))
    assert found == {(64 if wide else 16, 16, *expected)}


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("capability", "D"), USUAL)
def test_rows_suffice_for_the_warps(capability, D, kernel):
    """A warp multiplies 16 rows; in one group of rows or several."""
    code = compiled(capability, D)[kernel]
    for product in list_products(code.ttgir):
        enough = 16 * code.warps <= product.M
        assert enough or code.kernel in SHARED_WEIGHTS[D]


# On an A100, the warps divide the columns of these tiles instead of the rows.
SHARED_WEIGHTS = {64: (), 128: ("key_value_gradient",)}


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("capability", "D"), USUAL)
def test_weights_stay_in_registers(capability, D, kernel):
    """The left operands of the products after the softmax come from there."""
    code = compiled(capability, D)[kernel]
    shared = capability == AMPERE and kernel in SHARED_WEIGHTS[D]
    for loop in list_loops(code.ttgir):
        assert loop.passed_through_shared == (2 if shared else 0)
        if capability == HOPPER:
            computed = {"forward": [1], "query_gradient": [2]}
            held = [i for i, x in enumerate(loop.products) if x.held]
            assert held == computed.get(kernel, [1, 3])


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("capability", "D"), USUAL)
def test_tiles_are_copied_while_others_are_multiplied(capability, D, kernel):
    """Two tiles a turn; the copies of the next turn are not waited for."""
    code = compiled(capability, D)[kernel]
    assert code.stages == 3
    for loop in list_loops(code.ttgir):
        assert loop.copies == 2
        assert loop.on_their_way >= 2


def test_with_two_stages_a_turn_waits_for_its_own_copies():
    code = compiled(HOPPER, 64, tile=TileSizes(128, 64, 8, 2))["forward"]
    assert {x.on_their_way for x in list_loops(code.ttgir)} == {0}


@pytest.mark.parametrize(("capability", "D"), USUAL)
def test_tiles_inside_the_mask_are_not_masked(capability, D):
    """A window runs the same code: its edge is another range of tiles."""
    codes = compiled(capability, D)
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


@pytest.mark.parametrize(("capability", "D"), USUAL)
def test_without_a_mask_only_the_last_tile_of_keys_is_masked(capability, D):
    codes = compiled(capability, D, causal=False)
    for name in "forward", "query_gradient":
        masked, (inner,) = find_loops(codes[name])
        assert len(masked) == 1
        assert inner.count("arith.select") == 0
    masked, (loop,) = find_loops(codes["key_value_gradient"])
    assert not masked
    assert loop.count("arith.select") == 0


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("capability", "D"), USUAL)
def test_scale_and_maximum_take_one_instruction_a_score(capability, D, kernel):
    """Forwards a fused multiply-add and an exponential, then only sums.

    Backwards one more subtraction and multiplication, of the gradient.
    """
    code = compiled(capability, D, causal=False)[kernel]
    threads = 32 * code.warps
    scores = sum(x.products[0].M * x.products[0].N for x in list_loops(code.ttgir))
    fused = code.ptx.count("fma.rn.f32")
    assert fused * threads >= scores
    # What is left are numbers of a row or a column of the tile, not of a score.
    more = 0 if kernel == "forward" else scores
    assert code.ptx.count("sub.f32") * threads < more + scores / 2


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


# Programs that one multiprocessor holds at a time, by registers and memory.
RESIDENT = {
    (AMPERE, 64): (2, 1, 1),
    (AMPERE, 128): (1, 1, 1),
    (HOPPER, 64): (1, 1, 1),
    (HOPPER, 128): (1, 1, 1),
}


@pytest.mark.parametrize(("capability", "D"), RESIDENT)
def test_a_multiprocessor_holds_as_many_programs_as_designed(capability, D):
    from attnbook.profiling.kernel_time import count_resident_programs

    codes = compiled(capability, D)
    found = [
        count_resident_programs(
            capability, codes[x].warps, codes[x].registers, codes[x].shared
        )
        for x in KERNELS
    ]
    assert tuple(found) == RESIDENT[capability, D]
