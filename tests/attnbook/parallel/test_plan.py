"""Plans: balance of work, memory and rounding of each rank, models of time."""

import pytest
import torch

from attnbook.attention.scaled_dot_product import attend
from attnbook.parallel import plan
from attnbook.parallel.ranks import run_in_threads
from attnbook.parallel.ring import (
    contiguous,
    count_scores,
    join_shards,
    ring_attention,
    striped,
    take_shard,
    zigzag,
)
from attnbook.profiling.sizes import Sizes


@pytest.mark.parametrize("size", [1, 2, 3, 4, 8])
def test_a_causal_ring_waits_unless_it_is_zigzag(size):
    length = 48 * size
    uneven = plan.describe_balance(contiguous(length, size))
    assert uneven.shares[-1] == pytest.approx(2 - 1 / size, rel=0.02)
    assert uneven.waiting == pytest.approx(2 - 1 / size, rel=0.02)
    even = plan.describe_balance(zigzag(length, size))
    assert even.shares == [1.0] * size
    assert even.waiting == pytest.approx(1)
    assert plan.describe_balance(striped(length, size)).waiting < 1.05


@pytest.mark.parametrize("make", [contiguous, zigzag, striped])
@pytest.mark.parametrize("length", [1, 5, 17])
def test_every_position_is_held_once_and_every_pair_counted(make, length):
    layout = make(length, 5)
    assert torch.equal(torch.cat([*layout]).sort().values, torch.arange(length))
    assert count_scores(layout, causal=True).sum() == length * (length + 1) // 2
    assert count_scores(layout).sum() == length**2
    assert max(map(len, layout)) - min(map(len, layout)) <= 1


def attend_in_half(group, inputs, partials):
    """Return one rank's output, for inputs in bfloat16."""
    layout = contiguous(inputs[0].shape[2], group.size)
    shards = [take_shard(x, layout[group.rank]).bfloat16() for x in inputs]
    return ring_attention(*shards, group, layout, partials=partials).float()


def test_partial_results_in_bfloat16_lose_digits_with_the_number_of_ranks():
    rng = torch.Generator().manual_seed(0)
    inputs = torch.randn(3, 1, 2, 256, 16, generator=rng).bfloat16().float()
    wanted = attend(*inputs)

    def measure_error(size, partials):
        found = run_in_threads(attend_in_half, size, inputs, partials)
        joined = join_shards(found, contiguous(256, size))
        return float((joined - wanted).norm() / wanted.norm())

    wide, narrow = (
        [measure_error(size, partials) for size in (1, 8)]
        for partials in (None, torch.bfloat16)
    )
    assert wide[1] == pytest.approx(wide[0], rel=0.1)
    assert narrow[1] > narrow[0] and narrow[1] > 2 * wide[1]


def test_a_line_through_messages_predicts_others():
    sent = [100, 10_000, 10**6]
    link = plan.fit_link(sent, [2e-4 + n * 1e-9 for n in sent])
    assert link.predict(3, 5 * 10**6) == pytest.approx(6e-4 + 5e-3)
    with pytest.raises(ValueError, match=r"needs two sizes .* not 1 sizes"):
        plan.fit_link([5, 5], [1.0, 1.0])
    assert min(run_in_threads(plan.measure_shifts, 2, sent, 3)[1]) > 0


def test_all_to_all_sends_less_than_a_ring_with_many_ranks():
    sizes = Sizes(1, 32, 2**16, 2**16, 128, G=32, itemsize=2)
    found = plan.compare_plans(sizes, 16)
    ring, heads = (found[name].forward for name in ("ring", "all-to-all"))
    assert heads * 7 < ring  # about P / 2 times fewer
    assert heads < plan.count_grid_traffic(sizes, 4, 4).forward < ring


def test_an_impossible_plan_says_why():
    found = plan.compare_plans(Sizes(1, 4, 64, 64, 8, G=2), 8)
    assert found["all-to-all"] == found["heads"]
    assert found["heads"].startswith("8 ranks cannot divide 4 heads")
    assert found["ring"].messages == found["gathered keys"].messages == 7
    with pytest.raises(ValueError, match="6 queries and 6 keys do not divide over 4"):
        plan.count_grid_traffic(Sizes(1, 4, 6, 6, 2), 2, 2)


def test_the_bytes_of_a_published_model():
    assert plan.LLAMA_70B.cache(10**6) == 327_680_000_000
    assert plan.LLAMA_8B.activations(1) == 32 * 4096 * 2
