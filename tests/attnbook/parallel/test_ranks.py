"""Ranks that fail, leave or hang, and input that does not fit: one clear error."""

import os

import pytest
import torch

from attnbook.attention.multi_head import MultiHeadAttention
from attnbook.parallel.alltoall import (
    all_to_all_attention,
    attend_linear_divided,
    decode_divided,
    grid_attention,
)
from attnbook.parallel.groups import (
    DistributedGroup,
    copy_to_ranks,
    exchange_parts,
    sum_over_ranks,
)
from attnbook.parallel.heads import TensorParallelAttention
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


def make_zeros(*shape):
    return [torch.zeros(shape)] * 3


def attend_ring(group, change, length=12):
    """Attend with shards that `change` makes wrong on the last rank."""
    last = group.rank == 3
    layout = contiguous(length if last else 12, 4)
    shards = make_zeros(1, 4, len(layout[group.rank]), 2)
    return ring_attention(*(change(*shards) if last else shards), group, layout)


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (
            lambda g: attend_ring(g, lambda q, k, v: (q, k.to("meta"), v)),
            "on rank 3 query, key and value are .* on cpu, .* on meta, .* on cpu",
        ),
        (
            lambda g: attend_ring(g, lambda q, k, v: (q, k[:, :, 1:], v)),
            r"on rank 3 .*\(1, 4, 2, 2\).* do not fit .* the layout's 3 positions",
        ),
        (
            lambda g: attend_ring(g, lambda *x: x, 16),
            "all ranks need the same length, but rank 0 has 12 and rank 3 has 16",
        ),
        (
            lambda g: attend_ring(g, lambda *x: [y.bfloat16() for y in x]),
            "rank 0 has torch.float32 on cpu and rank 3 has torch.bfloat16 on cpu",
        ),
        (
            lambda g: ring_attention(*make_zeros(1, 4, 1, 4), g, contiguous(3, 4)),
            r"each of 4 ranks needs positions, but the layout is \[1, 1, 1, 0\]",
        ),
        (
            lambda g: all_to_all_attention(*make_zeros(1, 3, 2, 4), g, zigzag(8, 4)),
            "4 ranks cannot divide 3 heads",
        ),
        (
            lambda g: grid_attention(*make_zeros(1, 6, 2, 4), g, 3, zigzag(8, 4)),
            "4 ranks do not divide into rows of 3 ranks",
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
    ],
)
def test_every_rank_raises_the_same_sentence(function, sentence):
    with pytest.raises(RankError, match=f"each of the 4 ranks raised .*{sentence}"):
        run_in_threads(function, 4, limit=5)


def test_a_group_that_was_never_started_is_refused():
    with pytest.raises(ValueError, match="no process group has been started: call"):
        DistributedGroup()


def compute_gradients(group):
    """Return gradients through each function, of the loss Σ rank · output."""
    x = torch.full((2, 1), 1.0 + group.rank, requires_grad=True)
    found = []
    for function in (
        copy_to_ranks,
        sum_over_ranks,
        lambda x, group: torch.cat(exchange_parts([x] * 2, [x.shape] * 2, group)),
    ):
        loss = ((group.rank + 1) * function(x, group)).sum()
        found.append(float(torch.autograd.grad(loss, x)[0][0]))
    return found


def test_gradients_of_collectives_are_not_local():
    assert run_in_threads(compute_gradients, 2) == [[3, 1, 3], [3, 2, 3]]
