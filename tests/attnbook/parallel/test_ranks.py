"""Ranks that fail, leave or hang, and input that does not fit: one clear error."""

import os

import pytest
import torch

from attnbook.attention.multi_head import MultiHeadAttention
from attnbook.parallel.alltoall import (
    all_to_all_attention,
    attend_linear_divided,
    decode_divided,
)
from attnbook.parallel.groups import (
    DistributedGroup,
    copy_to_ranks,
    gather_from_ranks,
    start_group,
    sum_over_ranks,
)
from attnbook.parallel.heads import (
    ColumnParallelLinear,
    RowParallelLinear,
    TensorParallelAttention,
)
from attnbook.parallel.ranks import RankError, Ranks, run_in_threads
from attnbook.parallel.ring import contiguous, ring_attention, zigzag

pytestmark = pytest.mark.refusal


def raise_on_one_rank(group):
    if group.rank == 1:
        raise LookupError("the cell's own mistake")
    group.all_reduce(torch.ones(2))


def leave(group):
    if group.rank == 1:
        os._exit(3)
    group.all_reduce(torch.ones(2))


def return_early(group):
    if group.rank != 1:
        group.all_reduce(torch.ones(2))


def is_alive(number):
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    return True


def get_process(group):
    return os.getpid()


def test_a_failure_ends_every_rank_and_the_next_call_starts_new_ones():
    cell = {"__name__": "__main__"}
    exec("def divide(group):\n    return 1 / group.rank", cell)
    ranks = Ranks(2, limit=2)
    for function, sentence in [
        (cell["divide"], "rank 0 raised ZeroDivisionError: division by zero"),
        (leave, r"rank 1 left \(exit code 3\) before it returned a result"),
        (return_early, "rank 0 had not finished after 2 s; rank 1 had returned"),
    ]:
        numbers = ranks.run(get_process)
        with pytest.raises(RankError, match=sentence) as caught:
            ranks.run(function)
        assert not any(is_alive(number) for number in numbers)
        if function is cell["divide"]:
            assert "in divide" in caught.value.__notes__[0]


@pytest.mark.parametrize("function", [raise_on_one_rank, return_early])
def test_threads_do_not_wait_for_a_thread_that_has_left(function):
    with pytest.raises(RankError, match=r"own mistake|rank 0, 2 had not finished"):
        run_in_threads(function, 3, limit=0.5)


def attend_ring(group, *change):
    """Attend with shards that `change` makes wrong on the last rank."""
    length = 9
    layout = contiguous(length, group.size)
    shape = [1, 4, len(layout[group.rank]), 2]
    shards = [torch.zeros(shape) for _ in range(3)]
    if group.rank == group.size - 1:
        for make in change:
            shards, layout = make(shards, layout)
    return ring_attention(*shards, group, layout)


def put_elsewhere(shards, layout):
    return [shards[0], shards[1].to("meta"), shards[2]], layout


def drop_last_key(shards, layout):
    return [shards[0], shards[1][:, :, 1:], shards[2]], layout


def use_longer_layout(shards, layout):
    layout = contiguous(3 * len(layout[-1]) + 3, len(layout))
    return [torch.zeros(1, 4, len(layout[-1]), 2)] * 3, layout


def use_bfloat16(shards, layout):
    return [x.bfloat16() for x in shards], layout


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (put_elsewhere, "on rank 2 the query is on cpu in .* but the key on meta"),
        (drop_last_key, "on rank 2 the key has 2 positions, but the layout gives .* 3"),
        (use_longer_layout, "need the same length, but rank 0 has 9 and rank 2 has 12"),
        (use_bfloat16, "rank 0 has torch.float32 and rank 2 has torch.bfloat16"),
    ],
)
def test_every_rank_raises_the_same_sentence(change, sentence):
    with pytest.raises(RankError, match=f"each of the 3 ranks raised .*{sentence}"):
        run_in_threads(attend_ring, 3, change, limit=5)


def attend_three_heads(group):
    x = torch.zeros(1, 3, 2, 4)
    layout = zigzag(2 * group.size, group.size)
    all_to_all_attention(x, x, x, group, layout)


def attend_short(group):
    x = torch.zeros(1, 4, 1, 4)
    ring_attention(x, x, x, group, contiguous(3, group.size))


def divide_layer(group):
    TensorParallelAttention(MultiHeadAttention(6, 3), group)


def give_other_sequences(group):
    layer = TensorParallelAttention(MultiHeadAttention(24, 4), group)
    layer(torch.zeros(1, 2 + group.rank, 24))


def decode_other_batches(group):
    query, key = torch.zeros(group.rank + 1, 2, 1, 4), torch.zeros(1, 2, 3, 4)
    decode_divided(query, key.expand(len(query), -1, -1, -1), key, group)


def pass_other_states(group):
    x = torch.zeros(1, 2, 3, 4 + group.rank)
    attend_linear_divided(x, x, x, group)


def divide_into_rows(group):
    group.split(3)


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (attend_three_heads, "4 ranks cannot divide 3 heads"),
        (attend_short, "the layout is of 4, rank 3 without a position"),
        (divide_layer, "4 ranks cannot divide 3 heads"),
        (give_other_sequences, r"same shape, but rank 0 has \(1, 2, 24\)"),
        (decode_other_batches, "all ranks need the same sizes"),
        (pass_other_states, "all ranks need the same state"),
        (divide_into_rows, "4 ranks do not divide into rows of 3 ranks"),
    ],
)
def test_what_cannot_be_divided_is_refused_on_every_rank(function, sentence):
    with pytest.raises(RankError, match=f"each of the 4 ranks raised .*{sentence}"):
        run_in_threads(function, 4, limit=5)


@pytest.mark.parametrize("start", [DistributedGroup, start_group])
def test_a_group_that_was_never_started_is_refused(start):
    with pytest.raises(ValueError, match="no process group has been started: call run"):
        start()


def compute_gradients(group):
    """Return gradients through each collective, of the loss Σ rank · output."""
    x = torch.full((2, 1), 1.0 + group.rank, requires_grad=True)
    found = []
    for function in (copy_to_ranks, sum_over_ranks):
        loss = ((group.rank + 1) * function(x, group)).sum()
        found.append(float(torch.autograd.grad(loss, x)[0][0]))
    gathered = gather_from_ranks(x, group, [2, 2])
    loss = ((group.rank + 1) * gathered).sum()
    return [*found, float(torch.autograd.grad(loss, x)[0][0])]


def test_gradients_of_collectives_are_not_local():
    found = run_in_threads(compute_gradients, 2)
    assert found == [[3, 1, 3], [3, 2, 3]]


def run_feed_forward(group, up, down):
    x = torch.ones(1, 2, 6, dtype=torch.float64, requires_grad=True)
    whole = down(up(x).relu())
    divided = RowParallelLinear(down, group)(ColumnParallelLinear(up, group)(x).relu())
    return [(y, *torch.autograd.grad(y.sum(), x)) for y in (whole, divided)]


def test_a_feed_forward_network_over_ranks():
    layers = torch.nn.Linear(6, 8).double(), torch.nn.Linear(8, 6).double()
    for whole, divided in run_in_threads(run_feed_forward, 4, *layers):
        torch.testing.assert_close(divided, whole)
