"""Every counted formula against the program that it counts."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from attnbook.attention.multi_head import grouped_query
from attnbook.attention.scaled_dot_product import attend
from attnbook.masks import causal
from attnbook.profiling.allocations import (
    TrafficMeter,
    make_meta_tensor,
    trace_call,
)
from attnbook.profiling.sizes import Count, Sizes, add_counts
from attnbook.profiling.steps import (
    count_backward_steps,
    count_fused,
    count_fused_backward,
    count_pairs,
    count_steps,
    count_tiled,
)

SIZES = [
    Sizes(2, 3, 5, 7, 11, 13),
    Sizes(1, 12, 4096, 4096, 64),
    Sizes(2, 4, 1, 513, 32),
    Sizes(2, 6, 64, 128, 16, 32, G=2),
    Sizes(2, 3, 5, 7, 11, 13, itemsize=2),
]
DTYPES = {2: torch.bfloat16, 4: torch.float32, 8: torch.float64}
each = pytest.mark.parametrize("sizes", SIZES, ids=repr)


def inputs(s):
    dtype = DTYPES[s.itemsize]
    shapes = (s.H, s.T, s.D), (s.G, s.S, s.D), (s.G, s.S, s.E)
    return [make_meta_tensor(s.B, *shape, dtype=dtype) for shape in shapes]


def select_attention(sizes):
    return attend if sizes.G == sizes.H else grouped_query


def prepare_backward(sizes):
    """Run the forward pass; return the backward pass as a call."""
    leaves = [x.requires_grad_() for x in inputs(sizes)]
    output = select_attention(sizes)(*leaves)
    upstream = torch.empty_like(output)
    return lambda: torch.autograd.grad(output, leaves, upstream)


def products(steps):
    elsewhere = ("scale", "softmax")
    return sum(c.flops for name, c in steps.items() if name not in elsewhere)


@each
def test_the_forward_steps_are_those_of_the_reference(sizes):
    counted = count_steps(sizes)
    found = trace_call(lambda: select_attention(sizes)(*inputs(sizes)))
    assert found.flops == products(counted)
    assert found.read == add_counts(counted.values()).read
    assert found.written == add_counts(counted.values()).written


@each
def test_the_backward_steps_are_those_of_autograd(sizes):
    counted = count_backward_steps(sizes)
    found = trace_call(prepare_backward(sizes))
    assert found.flops == products(counted)
    assert found.read == add_counts(counted.values()).read
    assert found.written == add_counts(counted.values()).written


def test_each_step_moves_what_its_operation_moves():
    sizes = SIZES[0]
    with TrafficMeter() as traffic:
        attend(*inputs(sizes))
    names = [name for name, _ in traffic.steps]
    assert names == ["mul", "bmm", "_softmax", "bmm"]
    bytes_of = [(c.read, c.written) for _, c in traffic.steps]
    counted = count_steps(sizes).values()
    assert bytes_of == [(c.read, c.written) for c in counted]


def test_elementwise_work_is_counted_by_hand():
    """A program that does each operation by itself, one number at a time."""
    done = 0

    def step(value):
        nonlocal done
        done += 1
        return value

    scores, row = [1.0, 2.0, 0.5, -1.0, 3.0], 0.0
    largest = scores[0]
    for x in scores:
        largest = step(max(largest, x))
    shifted = [step(x - largest) for x in scores]
    powers = [step(2.718281828**x) for x in shifted]
    for x in powers:
        row = step(row + x)
    weights = [step(x / row) for x in powers]
    assert sum(weights) == pytest.approx(1)
    sizes = Sizes(1, 1, 1, len(scores), 2)
    assert done == count_steps(sizes)["softmax"].flops


def flash(query, key, value):
    """Call PyTorch's fused kernel, whose sizes need no such kernel here."""
    name = torch.ops.aten._scaled_dot_product_flash_attention
    return name(query, key, value, 0.0, False, False)


def test_the_fused_operations_are_those_that_pytorch_counts():
    sizes = Sizes(2, 3, 128, 256, 64)
    query, key, value = inputs(sizes)
    counter = FlopCounterMode(display=False)
    with counter:
        flash(query, key, value)
    counted = count_fused(sizes).flops
    softmax = count_steps(sizes)["softmax"].flops + count_steps(sizes)["scale"].flops
    assert counter.get_total_flops() == counted - softmax
    ahead = counter.get_total_flops()
    name = torch.ops.aten._scaled_dot_product_flash_attention_backward
    seed = torch.empty((), dtype=torch.long)
    ends = None, None, sizes.T, sizes.S, 0.0, False, seed, seed
    with counter:
        name(query, query, key, value, query, query[..., 0].float(), *ends)
    behind = counter.get_total_flops()
    assert behind == 2.5 * ahead
    backwards = count_fused_backward(sizes).flops
    assert behind == backwards - 9 * sizes.B * sizes.H * sizes.T * sizes.S


def test_fused_moves_inputs_and_output_only():
    sizes = Sizes(2, 3, 16, 16, 8)
    shapes = (sizes.B, sizes.H, sizes.T, sizes.D)
    given = [torch.randn(shapes) for _ in range(3)]
    sdpa = torch.nn.functional.scaled_dot_product_attention
    with TrafficMeter() as traffic:
        sdpa(*given)
    found = add_counts(count for _, count in traffic.steps)
    once = count_fused(sizes)
    assert found.read == once.read
    sums = sizes.B * sizes.H * sizes.T * 4  # which it keeps for backward
    assert found.written == once.written + sums


@pytest.mark.parametrize(("T", "S"), [(1, 1), (5, 5), (3, 7), (7, 3), (1, 9)])
def test_counted_pairs_equal_the_true_entries_of_the_mask(T, S):
    assert count_pairs(T, S) == T * S
    assert count_pairs(T, S, causal=True) == int(causal(T, S).sum())


def test_a_causal_kernel_does_about_half():
    sizes = Sizes(1, 2, 1024, 1024, 64)
    share = count_fused(sizes, causal=True).flops / count_fused(sizes).flops
    assert 0.5 < share < 0.501
    assert count_fused(sizes, causal=True).bytes == count_fused(sizes).bytes
    share = count_fused_backward(sizes, True).flops / count_fused_backward(sizes).flops
    assert 0.5 < share < 0.501


def read_by_tiles(sizes, rows):
    """Return the bytes of a loop over tiles of queries, head by head."""
    query, key, value = inputs(sizes)
    read = written = 0
    for b in range(sizes.B):
        for h in range(sizes.H):
            group = h * sizes.G // sizes.H
            for tile in query[b, h].split(rows):
                met = tile, key[b, group], value[b, group]
                read += sum(x.numel() * x.element_size() for x in met)
                made = len(tile) * sizes.E
                written += made * sizes.itemsize
    return read, written


@pytest.mark.parametrize("rows", [4, 1000])
@each
def test_a_tiled_kernel_reads_the_keys_for_every_tile(sizes, rows):
    if sizes.T > 1000:
        rows *= 64
    counted = count_tiled(sizes, rows)
    assert (counted.read, counted.written) == read_by_tiles(sizes, rows)
    assert counted.flops == count_fused(sizes).flops
    if rows >= sizes.T and sizes.G == sizes.H:
        assert counted == count_fused(sizes)


def test_broadcast_inputs_are_read_once():
    key = make_meta_tensor(2, 1, 7, 11)
    with TrafficMeter() as traffic:
        make_meta_tensor(2, 3, 7, 11) + key.expand(2, 3, 7, 11)
    ((name, count),) = traffic.steps
    assert name == "add"
    assert count == Count(0, 4 * (2 * 3 * 7 * 11 + 2 * 7 * 11), 4 * 462)


def test_views_move_nothing_and_writing_in_place_does():
    x = make_meta_tensor(6, 4)
    with TrafficMeter() as traffic:
        x.T.reshape(2, 12)[:, 1:].unsqueeze(0)
        x.view(3, 8).add_(1)
    names = [name for name, _ in traffic.steps]
    assert names == ["clone", "add_"]  # the transpose had to be copied


def test_counts_add_up():
    one, two = Count(1, 2, 3), Count(10, 20, 30)
    assert one + two == add_counts([one, two]) == Count(11, 22, 33)
    assert two.bytes == 50 and two.intensity == 0.2
    assert Count(5).intensity == 0 and add_counts([]) == Count()


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Sizes(0, 1, 1, 1, 1), "B is 0; sizes are whole numbers"),
        (lambda: Sizes(1, 1, 2.5, 1, 1), "T is 2.5"),
        (lambda: Sizes(1, 1, 1, True, 1), "S is True"),
        (lambda: Sizes(1, 6, 1, 1, 1, G=4), "6 heads do not divide into 4"),
        (lambda: count_pairs(0, 3), "0 queries and 3 keys"),
        (lambda: count_tiled(SIZES[0], 0), "at least 1 row, not 0"),
    ],
)
def test_invalid_sizes_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
