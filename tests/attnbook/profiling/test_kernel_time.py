import pytest

from attnbook import masks
from attnbook.profiling.kernel_time import (
    KERNELS,
    count_kernel,
    count_resident_programs,
    count_tile_pairs,
    predict_seconds,
)
from attnbook.profiling.presets import (
    CLOCKS,
    DEVICES,
    EXPONENTIAL_RATES,
    PROCESSORS,
)
from attnbook.profiling.sizes import Sizes
from attnbook.profiling.steps import count_fused, count_fused_backward

LONG = Sizes(1, 16, 16384, 16384, 128, itemsize=2)


@pytest.mark.parametrize(("rows", "columns"), [(1, 2), (3, 2), (8, 5)])
@pytest.mark.parametrize(("T", "S"), [(7, 7), (3, 11), (11, 3), (1, 8)])
def test_tiles_that_contain_a_pair_are_computed(T, S, rows, columns):
    """Counted in the mask itself, tile by tile."""
    sizes, mask = Sizes(1, 1, T, S, 1), masks.causal(T, S)
    for own_keys in False, True:
        seen = mask.mT if own_keys else mask
        tiles = [
            tile.any() for row in seen.split(rows) for tile in row.split(columns, dim=1)
        ]
        found = count_tile_pairs(sizes, rows, columns, True, own_keys)
        assert found == sum(tiles)
        found = count_tile_pairs(sizes, rows, columns, False, own_keys)
        assert found == len(tiles)


def test_a_small_call_is_counted_by_hand():
    """5 queries, 6 keys, tiles of 4 by 4: 2 · 2 tiles, 64 scores a head."""
    sizes = Sizes(1, 2, 5, 6, 3, 7, G=1, itemsize=2)
    forward = count_kernel("forward", sizes, 4, 4)
    assert forward.exponentials == 2 * 64
    assert forward.products == 2 * 128 * (3 + 7)
    # The output is rescaled in every tile: 4 tiles of 4 rows of 7 a head.
    assert forward.instructions == 3.5 * 128 + 2 * 4 * 4 * 7
    query, key, value, output = 2 * 5 * 3, 6 * 3, 6 * 7, 2 * 5 * 7
    assert forward.bytes == 2 * (query + key + value + output) + 4 * 10
    assert forward.programs == 2 * 2
    keys = count_kernel("key_value_gradient", sizes, 4, 4)
    assert keys.products == 2 * 128 * 2 * (3 + 7)
    assert keys.bytes == 2 * (query + output + 2 * key + 2 * value) + 8 * 10
    assert keys.programs == 2
    queries = count_kernel("query_gradient", sizes, 4, 4)
    assert queries.products == 2 * 128 * (2 * 3 + 7)
    assert queries.bytes == 2 * (2 * query + key + value + 2 * output) + 8 * 10


def test_whole_tiles_without_a_mask_are_what_the_formulas_count():
    forward = count_kernel("forward", LONG, 128, 128)
    pairs = 16 * 16384**2
    assert forward.products == 4 * pairs * 128
    assert forward.bytes == count_fused(LONG).bytes + 4 * 16 * 16384
    backward = [count_kernel(x, LONG, 128, 64) for x in [*KERNELS][1:]]
    assert sum(x.products for x in backward) == 7 * 2 * pairs * 128
    five = count_fused_backward(LONG).flops - 9 * pairs
    assert 5 * sum(x.products for x in backward) == 7 * five


def test_a_prediction_is_computed_by_hand():
    """H200: 990 TFLOP/s, 33.4 T instructions, 3.87 T exponentials a second."""
    count = count_kernel("forward", LONG, 128, 128)
    found = predict_seconds(count, "H200 SXM")
    pairs = 16 * 16384**2
    assert found["products"] == pytest.approx(512 * pairs / 989.4e12)
    assert found["exponentials"] == pytest.approx(pairs / (16 * 132 * 1.83e9))
    assert found["instructions"] == pytest.approx(4.5 * pairs / 33.45e12)
    assert found["memory"] == pytest.approx(count.bytes / 4.8e12)
    # 2,048 programs in 132 places: 16 waves, and 15.5 would be enough.
    waves = 16 * 132 / 2048
    times = [found[x] for x in ("products", "exponentials", "instructions")]
    assert found["least"] == pytest.approx(waves * max(times))
    assert found["alternating"] == pytest.approx(waves * sum(times))
    assert found["predicted"] == found["alternating"]
    two = predict_seconds(count, "H200 SXM", resident=2)
    assert two["predicted"] == two["least"]
    assert 1.5e-3 < two["products"] < found["predicted"] < 6e-3


def test_without_tensor_cores_products_share_the_other_units():
    sizes = Sizes(1, 16, 4096, 4096, 64, itemsize=2)
    count = count_kernel("forward", sizes, 32, 32)
    found = predict_seconds(count, "T4", tensor=False)
    assert found["products"] == pytest.approx(count.products / 8.1e12)
    assert found["least"] > found["products"] + found["instructions"]
    with_cores = predict_seconds(count, "T4")
    assert found["products"] > 8 * with_cores["products"]


def test_one_query_is_limited_by_memory():
    sizes = Sizes(64, 32, 1, 8192, 128, G=8, itemsize=2)
    found = predict_seconds(count_kernel("forward", sizes, 1, 64), "H200 SXM")
    assert found["predicted"] == found["memory"] > found["alternating"] / 2


def test_clocks_are_those_of_the_stated_rates():
    """Operations of one multiprocessor's tensor cores in a cycle."""
    a_cycle = {"T4": 1024, "A100 SXM 80 GB": 2048, "B200 (HGX)": 8192}
    for name, device in DEVICES.items():
        rate = a_cycle.get(name, 4096) * PROCESSORS[name] * CLOCKS[name]
        assert rate == pytest.approx(device.rates[2], rel=0.005)
        assert EXPONENTIAL_RATES[name] == 16 * PROCESSORS[name] * CLOCKS[name]


@pytest.mark.parametrize(
    ("capability", "warps", "registers", "shared", "programs"),
    [
        ((8, 0), 4, 255, 48 * 1024, 2),  # 32,768 registers each
        ((8, 0), 8, 128, 80 * 1024, 2),  # 2 · 81 KB of 164
        ((8, 0), 8, 128, 82 * 1024, 1),  # 2 · 83 KB
        ((8, 9), 8, 40, 0, 6),  # 48 warps
        ((9, 0), 8, 129, 0, 1),  # 129 are rounded up to 136
        ((9, 0), 8, 128, 113 * 1024, 2),
        ((7, 5), 4, 64, 16 * 1024, 4),
    ],
)
def test_registers_memory_and_warps_limit_the_programs(
    capability, warps, registers, shared, programs
):
    found = count_resident_programs(capability, warps, registers, shared)
    assert found == programs


@pytest.mark.refusal
def test_an_empty_tile_is_refused():
    with pytest.raises(ValueError, match="a tile of 0 by 4 scores is empty"):
        count_kernel("forward", LONG, 0, 4)
