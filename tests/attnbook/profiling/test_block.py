import pytest
import torch
from torch import nn

from attnbook.attention.multi_head import GroupedQueryAttention
from attnbook.profiling.allocations import make_meta_tensor, trace_call
from attnbook.profiling.sizes import add_counts
from attnbook.profiling.steps import (
    Block,
    count_block_parts,
    count_cache_bytes,
    count_decoding_step,
    count_linear,
    find_crossover_length,
    get_attention_sizes,
)

SMALL = Block(24, 6, 2, 4, 40, True, 3)
PLAIN = Block(24, 6, 6, 4, 96, False, 3)
each = pytest.mark.parametrize("block", [SMALL, PLAIN], ids=repr)


def attention(block):
    with torch.device("meta"):
        return GroupedQueryAttention(block.C, block.H, block.G, bias=False)


def feed_forward(block, x):
    made = {
        name: nn.Linear(*block.layers[name], bias=False, device="meta")
        for name in ("up", "down", "gate")
        if name in block.layers
    }
    inside = made["up"](x)
    if block.gated:
        inside = inside * made["gate"](x)
    return made["down"](inside)


@each
def test_a_blocks_products_are_those_of_its_modules(block):
    x = make_meta_tensor(3, 7, block.C)
    counted = count_block_parts(block, 3, 7, 7)
    with torch.no_grad():
        found = trace_call(lambda: attention(block)(x)).flops
        fed = trace_call(lambda: feed_forward(block, x)).flops
    sizes = get_attention_sizes(block, 3, 7, 7)
    elementwise = sizes.B * sizes.H * sizes.T * (5 * sizes.S + sizes.D)
    both = counted["projections"].flops + counted["attention"].flops
    assert found == both - elementwise
    assert fed == counted["feed-forward"].flops


@each
def test_its_weights_are_those_of_its_modules(block):
    ours = sum(p.numel() for p in attention(block).parameters())
    assert ours == sum(a * b for a, b in [*block.layers.values()][:4])
    assert block.weights == sum(a * b for a, b in block.layers.values())


def test_a_linear_layer_moves_rows_and_weights():
    layer = nn.Linear(5, 3, bias=False, device="meta")
    with torch.no_grad():
        found = trace_call(lambda: layer(make_meta_tensor(7, 5)))
    assert found == count_linear(7, 5, 3)


@each
def test_at_the_crossover_attention_is_half_of_the_products(block):
    n = round(100 * find_crossover_length(block))
    fine = Block(100 * block.C, block.H, block.G, 100 * block.D,
                 100 * block.hidden, block.gated, block.L)  # fmt: skip
    assert n == round(find_crossover_length(fine))
    sizes = get_attention_sizes(fine, 1, n, n)
    products = 4 * sizes.H * n * n * sizes.D
    assert products == pytest.approx(2 * fine.weights * n, rel=0.01)


def test_the_usual_block_crosses_at_six_widths():
    """Four square projections, and two matrices to four times the width."""
    C = 768
    assert find_crossover_length(Block(C, 12, 12, 64, 4 * C, False, 12)) == 6 * C


def test_decoding_reads_the_weights_once_for_the_whole_batch():
    one, many = (count_decoding_step(SMALL, B, 512) for B in (1, 64))
    assert many.flops == 64 * one.flops
    assert many.bytes < 64 * one.bytes
    moved = sum(count_linear(1, *x).read for x in SMALL.layers.values())
    assert add_counts(count_block_parts(SMALL, 1, 1, 512).values()).read > moved


def test_a_decoding_step_equals_a_block_with_a_kv_cache():
    """One position's products: every weight twice, and every cached key."""
    for B in (1, 5):
        found = count_decoding_step(SMALL, B, 512).flops
        seen = B * SMALL.H * 512
        products = 2 * B * SMALL.weights + 4 * seen * SMALL.D
        assert found == products + 5 * seen + B * SMALL.H * SMALL.D


def test_the_cache_is_the_keys_and_values_of_all_layers():
    keys = make_meta_tensor(2, SMALL.G, 512, SMALL.D, dtype=torch.bfloat16)
    size = keys.numel() * keys.element_size()
    assert count_cache_bytes(SMALL, 2, 512, 2) == 2 * SMALL.L * size
    assert count_cache_bytes(PLAIN, 2, 512, 2) == 3 * count_cache_bytes(
        SMALL, 2, 512, 2
    )


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((24, 6, 4, 4, 40, True, 3), "6 heads do not divide into 4 groups"),
        ((0, 6, 2, 4, 40, True, 3), "C is 0; sizes are whole numbers"),
        ((24, 6, 2, 4, 40.5, True, 3), "hidden is 40.5"),
    ],
)
def test_invalid_block_sizes_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        Block(*given)
