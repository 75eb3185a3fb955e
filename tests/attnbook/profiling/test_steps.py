"""Every counted formula against the program that it counts."""

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from attnbook.attention.multi_head import GroupedQueryAttention, grouped_query
from attnbook.attention.scaled_dot_product import attend
from attnbook.profiling.allocations import (
    TrafficMeter,
    make_meta_tensor,
    trace_call,
)
from attnbook.profiling.sizes import Count, Sizes, add_counts
from attnbook.profiling.steps import (
    Block,
    count_backward_steps,
    count_block_parts,
    count_cache_bytes,
    count_decoding_step,
    count_fused,
    count_fused_backward,
    count_steps,
    count_tiled,
    find_crossover_length,
    get_attention_sizes,
)

SIZES = [
    Sizes(2, 3, 5, 7, 11, 13),
    Sizes(1, 12, 4096, 4096, 64),
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


def test_tiles_of_queries_read_the_keys_again_for_each_head():
    """3 tiles of at most 2 queries; 2 heads read their group's key and value."""
    sizes = Sizes(3, 4, 5, 7, 11, 13, G=2, itemsize=2)
    counted = count_tiled(sizes, 2)
    read = 3 * 4 * (5 * 11 + 3 * 7 * (11 + 13)) * 2
    assert (counted.read, counted.written) == (read, sizes.output)
    assert counted.flops == count_fused(sizes).flops


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


SMALL = Block(24, 6, 2, 4, 40, True, 3)
PLAIN = Block(24, 6, 6, 4, 96, False, 3)
each_block = pytest.mark.parametrize("block", [SMALL, PLAIN], ids=repr)


@each_block
def test_a_blocks_products_and_weights_are_those_of_its_modules(block):
    with torch.device("meta"):
        attention = GroupedQueryAttention(block.C, block.H, block.G, bias=False)
        made = {
            name: nn.Linear(*widths, bias=False)
            for name, widths in block.layers.items()
            if name in ("up", "down", "gate")
        }
    x = make_meta_tensor(3, 7, block.C)

    def feed_forward():
        inside = made["up"](x)
        return made["down"](inside * made["gate"](x) if block.gated else inside)

    counted = count_block_parts(block, 3, 7, 7)
    with torch.no_grad():
        found = trace_call(lambda: attention(x)).flops
        fed = trace_call(feed_forward).flops
    sizes = get_attention_sizes(block, 3, 7, 7)
    elementwise = sizes.B * sizes.H * sizes.T * (5 * sizes.S + sizes.D)
    both = counted["projections"].flops + counted["attention"].flops
    assert found == both - elementwise
    assert fed == counted["feed-forward"].flops
    weights = [*attention.parameters(), *(x.weight for x in made.values())]
    assert block.weights == sum(x.numel() for x in weights)


def test_the_usual_block_crosses_at_six_widths():
    """Four square projections, and two matrices to four times the width."""
    C = 768
    assert find_crossover_length(Block(C, 12, 12, 64, 4 * C, False, 12)) == 6 * C


def test_a_decoding_step_equals_a_block_with_a_kv_cache():
    """One position's products: every weight twice, and every cached key."""
    for B in (1, 5):
        found = count_decoding_step(SMALL, B, 512)
        seen = B * SMALL.H * 512
        products = 2 * B * SMALL.weights + 4 * seen * SMALL.D
        assert found.flops == products + 5 * seen + B * SMALL.H * SMALL.D
    # The weights are read once for the whole batch.
    assert found.bytes < 5 * count_decoding_step(SMALL, 1, 512).bytes


def test_the_cache_is_the_keys_and_values_of_all_layers():
    keys = make_meta_tensor(2, SMALL.G, 512, SMALL.D, dtype=torch.bfloat16)
    assert count_cache_bytes(SMALL, 2, 512, 2) == 2 * SMALL.L * keys.nbytes


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Sizes(0, 1, 1, 1, 1), "B is 0; sizes are whole numbers"),
        (lambda: Sizes(1, 1, 2.5, 1, 1), "T is 2.5"),
        (lambda: Sizes(1, 1, 1, True, 1), "S is True"),
        (lambda: Sizes(1, 6, 1, 1, 1, G=4), "6 heads do not divide into 4"),
        (lambda: count_tiled(SIZES[0], 0), "at least 1 row, not 0"),
        (
            lambda: Block(24, 6, 4, 4, 40, True, 3),
            "6 heads do not divide into 4 groups",
        ),
        (lambda: Block(24, 6, 2, 4, 40.5, True, 3), "hidden is 40.5"),
    ],
)
def test_invalid_sizes_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
