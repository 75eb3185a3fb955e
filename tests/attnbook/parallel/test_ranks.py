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


def attend_ring(group, change, longer):
    """Attend with shards that `change` makes wrong on the last rank."""
    last = group.rank == group.size - 1
    layout = contiguous(12 if last and longer else 9, group.size)
    shards = [torch.zeros(1, 4, len(layout[group.rank]), 2) for _ in range(3)]
    return ring_attention(*(change(*shards) if last else shards), group, layout)


@pytest.mark.parametrize(
    ("change", "longer", "sentence"),
    [
        (
            lambda q, k, v: (q, k.to("meta"), v),
            False,
            "on rank 2 the query is on cpu in .* but the key on meta",
        ),
        (
            lambda q, k, v: (q, k[:, :, 1:], v),
            False,
            "on rank 2 the key has 2 positions, but the layout gives .* 3",
        ),
        (
            lambda *x: x,
            True,
            "all ranks need the same length, but rank 0 has 9 and rank 2 has 12",
        ),
        (
            lambda *x: [y.bfloat16() for y in x],
            False,
            "rank 0 has torch.float32 and rank 2 has torch.bfloat16",
        ),
    ],
)
def test_every_rank_raises_the_same_sentence(change, longer, sentence):
    with pytest.raises(RankError, match=f"each of the 3 ranks raised .*{sentence}"):
        run_in_threads(attend_ring, 3, change, longer, limit=5)


def make_zeros(*shape):
    return [torch.zeros(shape)] * 3


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (
            lambda g: all_to_all_attention(*make_zeros(1, 3, 2, 4), g, zigzag(8, 4)),
            "4 ranks cannot divide 3 heads",
        ),
        (
            lambda g: ring_attention(*make_zeros(1, 4, 1, 4), g, contiguous(3, 4)),
            "the layout is of 4, rank 3 without a position",
        ),
        (
            lambda g: TensorParallelAttention(MultiHeadAttention(6, 3), g),
            "4 ranks cannot divide 3 heads",
        ),
        (
            lambda g: TensorParallelAttention(MultiHeadAttention(24, 4), g)(
                torch.zeros(1, 2 + g.rank, 24)
            ),
            r"all ranks need the same shape, but rank 0 has \(1, 2, 24\)",
        ),
        (
            lambda g: decode_divided(*make_zeros(g.rank + 1, 2, 1, 4), g),
            "all ranks need the same sizes",
        ),
        (
            lambda g: attend_linear_divided(*make_zeros(1, 2, 3, 4 + g.rank), g),
            "all ranks need the same state",
        ),
        (lambda g: g.split(3), "4 ranks do not divide into rows of 3 ranks"),
    ],
)
def test_what_cannot_be_divided_is_refused_on_every_rank(function, sentence):
    with pytest.raises(RankError, match=f"each of the 4 ranks raised .*{sentence}"):
        run_in_threads(function, 4, limit=5)


def test_a_group_that_was_never_started_is_refused():
    with pytest.raises(ValueError, match="no process group has been started: call run"):
        DistributedGroup()


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
