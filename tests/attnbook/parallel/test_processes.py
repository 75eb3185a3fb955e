"""Real processes, which gloo connects: started once, for everything in this file."""

import pytest
import torch

from attnbook.parallel.ranks import Ranks, run_in_threads
from attnbook.training.loop import Recipe, Trainer
from rank_work import (
    Case,
    attend,
    attend_all,
    attend_with_some_heads,
    compare_heads,
    compare_with_one_device,
    make_attention,
    measure_peaks,
)
from small_models import make_model

pytestmark = pytest.mark.precision
CASES = [
    *(
        Case(plan, ranks, causal=causal, ragged=not causal, groups=ranks)
        for plan in ("ring", "all-to-all", "gathered keys")
        for ranks in (1, 2, 3, 4)
        for causal in (True, False)
    ),
    Case("all-to-all", 4, groups=2),
    Case("grid", 4, groups=2),
]


@pytest.fixture(scope="module")
def four():
    with Ranks(4) as ranks:
        yield ranks


def use_every_collective(group):
    """Return what each collective gives for tensors that are not contiguous."""
    grid = torch.arange(12.0).reshape(3, 4) + 100 * group.rank
    strided = grid[:, 1]
    kept = grid.clone()
    row, column = group.split(2)
    found = [
        group.shift(strided),
        group.shift(strided[: group.rank], [(group.rank - 1) % group.size]),
        group.all_reduce(strided),
        torch.cat(group.all_gather(strided)),
        torch.cat(group.all_to_all([*grid.T])),
        group.reduce_scatter([*grid.T]),
        torch.cat(row.all_gather(strided)),
        torch.cat(column.all_gather(strided)),
    ]
    assert torch.equal(grid, kept)
    print("rank", group.rank)
    return found, group.sent, group.messages


def test_processes_and_threads_exchange_the_same(four, capsys):
    found = four.run(use_every_collective)
    printed = capsys.readouterr().out
    torch.testing.assert_close(found, run_in_threads(use_every_collective, 4))
    assert printed == "".join(f"[rank {r}] rank {r}\n" for r in range(4))
    firsts = torch.tensor([1.0, 5.0, 9.0])
    (shifted, _, total, gathered, *_), sent, _ = found[0]
    assert torch.equal(shifted, firsts + 300)
    assert torch.equal(total, 4 * firsts + 600)
    assert torch.equal(gathered[:6], torch.cat([firsts, firsts + 100]))
    assert sent["all_reduce"] == 18  # 2 · 3 / 4 of 12 bytes


def test_outputs_gradients_and_bytes(four):
    found = four.run(attend_all, CASES)
    for case in CASES:
        rows = [found[rank].pop(0) for rank in range(case.ranks)]
        compare_with_one_device(case, rows)
        threads = run_in_threads(attend, case.ranks, case)
        assert [sent for _, sent in rows] == [sent for _, sent in threads]


def test_heads_over_ranks(four):
    compare_heads(12, 2, four.run(attend_with_some_heads, make_attention(12, 2)))


def test_the_peak_memory_of_a_rank_falls_with_the_number_of_ranks(four):
    width, length, block = 16, 512, 32
    peaks = four.run(measure_peaks, width, length, block)[0]
    for size, peak in peaks.items():
        shard = -(-length // size) * width * 4
        # Keys and values, sent and received; outputs before and after a merge.
        assert 4 * shard <= peak <= 8 * shard
    assert peaks[1] > peaks[2] > peaks[3] > peaks[4]


def train(group):
    """Return weights and losses; the last batch has fewer pairs than ranks."""
    pairs = [([4 + (i + j) % 7 for j in range(1 + i % 5)],) * 2 for i in range(25)]
    torch.manual_seed(0)
    recipe = Recipe(epochs=2, size=8, rate=1e-2)
    trainer = Trainer(make_model(attention=True).double(), pairs, pairs[:5], recipe)
    history = trainer.run(progress=False)
    losses = [[note["train_loss"], note["valid_loss"]] for note in history]
    return [*trainer.model.parameters()], losses


def test_training_divides_every_batch(four):
    wanted = train(None)
    for weights, losses in four.run(train):
        torch.testing.assert_close(weights, wanted[0])
        torch.testing.assert_close(losses, wanted[1], rtol=1e-6, atol=0)
