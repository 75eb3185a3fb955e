"""Ranks that fail, leave or hang, and input that does not fit: one clear error."""

import os

import pytest
import torch

from attnbook.attention.multi_head import MultiHeadAttention
from attnbook.parallel import groups
from attnbook.parallel.alltoall import (
    all_to_all_attention,
    attend_linear_divided,
    decode_divided,
    grid_attention,
)
from attnbook.parallel.heads import TensorParallelAttention
from attnbook.parallel.ranks import RankError, Ranks, run_in_threads
from attnbook.parallel.ring import contiguous, ring_attention, zigzag

pytestmark = pytest.mark.refusal


def act(group, action):
    """Do on rank 1 what no other rank expects."""
    if group.rank == 1:
        return action()
    return group.all_reduce(torch.ones(2))


def test_a_failure_ends_every_rank_and_the_next_call_starts_new_ones():
    ranks = Ranks(2, limit=2)
    for action, sentence in [
        (lambda: 1 / 0, "rank 1 raised ZeroDivisionError: division by zero"),
        (lambda: os._exit(3), r"rank 1 left \(exit code 3\) before it returned a"),
        (lambda: None, "rank 0 had not finished after 2 s; rank 1 had returned"),
    ]:
        numbers = ranks.run(lambda group: os.getpid())
        with pytest.raises(RankError, match=sentence) as caught:
            ranks.run(act, action)
        for number in numbers:
            with pytest.raises(ProcessLookupError):
                os.kill(number, 0)
        if "raised" in sentence:
            assert "in act" in caught.value.__notes__[0]


def test_threads_do_not_wait_for_a_thread_that_has_left():
    for action in (lambda: 1 / 0, lambda: None):
        with pytest.raises(RankError, match=r"by zero|rank 0, 2 had not finished"):
            run_in_threads(act, 3, action, limit=0.5)


def make_zeros(*shape):
    return [torch.zeros(shape)] * 3


def attend_ring(group, change, length=12):
    """Attend with shards that `change` makes wrong on the last rank."""
    last = group.rank == 3
    layout = contiguous(length if last else 12, 4)
    shards = make_zeros(1, 4, len(layout[group.rank]), 2)
    return ring_attention(*(change(*shards) if last else shards), group, layout)


REFUSED = {
    "on rank 3 query, key and value are .* on cpu, .* on meta, .* on cpu": (
        lambda g: attend_ring(g, lambda q, k, v: (q, k.to("meta"), v))
    ),
    r"on rank 3 .* \(1, 4, 2, 2\) .* not fit .* layout's 3 positions": (
        lambda g: attend_ring(g, lambda q, k, v: (q, k[:, :, 1:], v))
    ),
    "all ranks need the same length, but rank 0 has 12 and rank 3 has 16": (
        lambda g: attend_ring(g, lambda *x: x, 16)
    ),
    r"4 ranks need positions each, but the layout is \[1, 1, 1, 0\]": (
        lambda g: ring_attention(*make_zeros(1, 4, 1, 4), g, contiguous(3, 4))
    ),
    "4 ranks cannot divide 3 heads": (
        lambda g: all_to_all_attention(*make_zeros(1, 3, 2, 4), g, zigzag(8, 4))
    ),
    "4 ranks do not divide into rows of 3 ranks": (
        lambda g: grid_attention(*make_zeros(1, 6, 2, 4), g, 3, zigzag(8, 4))
    ),
    "4 ranks cannot divide 2 heads": (
        lambda g: TensorParallelAttention(MultiHeadAttention(6, 2), g)
    ),
    r"all ranks need the same shape, but rank 0 has \(1, 2, 8\)": (
        lambda g: TensorParallelAttention(MultiHeadAttention(8, 4), g)(
            torch.zeros(1, 2 + g.rank, 8)
        )
    ),
    "all ranks need the same sizes": (
        lambda g: decode_divided(*make_zeros(g.rank + 1, 2, 1, 4), g)
    ),
    "all ranks need the same state": (
        lambda g: attend_linear_divided(*make_zeros(1, 2, 3, 4 + g.rank), g)
    ),
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_every_rank_raises_the_same_sentence(sentence):
    with pytest.raises(RankError, match=f"each of the 4 ranks raised .*{sentence}"):
        run_in_threads(REFUSED[sentence], 4, limit=5)


def test_a_group_that_was_never_started_is_refused():
    with pytest.raises(ValueError, match="no process group has been started: call"):
        groups.DistributedGroup()


def compute_gradients(group):
    """Return gradients through each function, of the loss Σ rank · output."""
    x = torch.full((2, 1), 1.0 + group.rank, requires_grad=True)
    outputs = (
        groups.copy_to_ranks(x, group),
        groups.sum_over_ranks(x, group),
        torch.cat(groups.exchange_parts([x] * 2, [x.shape] * 2, group)),
    )
    losses = [((group.rank + 1) * y).sum() for y in outputs]
    return [float(torch.autograd.grad(loss, x)[0][0]) for loss in losses]


def test_gradients_of_collectives_are_not_local():
    assert run_in_threads(compute_gradients, 2) == [[3, 1, 3], [3, 2, 3]]
