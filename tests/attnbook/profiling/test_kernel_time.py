import pytest

from attnbook.profiling.kernel_time import count_forward, predict_seconds
from attnbook.profiling.roofline import (
    CLOCKS,
    DEVICES,
    EXPONENTIAL_RATES,
    PROCESSORS,
)
from attnbook.profiling.sizes import Sizes
from attnbook.profiling.steps import count_fused

LONG = Sizes(1, 16, 16384, 16384, 128, itemsize=2)


def test_a_small_call_is_counted_by_hand():
    """5 queries, 6 keys, tiles of 4 by 4: 2 · 2 tiles, 64 scores a head."""
    sizes = Sizes(1, 2, 5, 6, 3, 7, G=1, itemsize=2)
    count = count_forward(sizes, 4, 4)
    assert count.exponentials == 2 * 64
    assert count.products == 2 * 128 * (3 + 7)
    # The output is rescaled in every tile: 4 tiles of 4 rows of 7 a head.
    assert count.instructions == 3.5 * 128 + 2 * 4 * 4 * 7
    query, key, value, output = 2 * 5 * 3, 6 * 3, 6 * 7, 2 * 5 * 7
    assert count.bytes == 2 * (query + key + value + output) + 4 * 10
    assert count.programs == 2 * 2


def test_whole_tiles_are_what_the_formulas_count():
    count = count_forward(LONG, 128, 128)
    assert count.products == 4 * 16 * 16384**2 * 128
    assert count.bytes == count_fused(LONG).bytes + 4 * 16 * 16384


def test_a_prediction_is_computed_by_hand():
    """H200: 990 TFLOP/s, 33.4 T instructions, 3.87 T exponentials a second."""
    count = count_forward(LONG, 128, 128)
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


def test_one_query_is_limited_by_memory():
    sizes = Sizes(64, 32, 1, 8192, 128, G=8, itemsize=2)
    found = predict_seconds(count_forward(sizes, 1, 64), "H200 SXM")
    assert found["least"] == found["memory"]


def test_clocks_are_those_of_the_stated_rates():
    """Operations of one multiprocessor's tensor cores in a cycle."""
    a_cycle = {"T4": 1024, "A100 SXM 80 GB": 2048, "B200 (HGX)": 8192}
    for name, device in DEVICES.items():
        rate = a_cycle.get(name, 4096) * PROCESSORS[name] * CLOCKS[name]
        assert rate == pytest.approx(device.rates[2], rel=0.005)
        assert EXPONENTIAL_RATES[name] == 16 * PROCESSORS[name] * CLOCKS[name]


@pytest.mark.refusal
def test_an_empty_tile_is_refused():
    with pytest.raises(ValueError, match="a tile of 0 by 4 scores is empty"):
        count_forward(LONG, 0, 4)
