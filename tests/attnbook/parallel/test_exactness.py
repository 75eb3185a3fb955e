"""Divided attention equals that of one process: outputs, gradients, bytes.

Every case runs on threads, and one case of every operation on four processes,
which gloo connects. The reference is in float64.
"""

from functools import partial

import pytest
import torch

from attnbook.attention.linear import attend_linear
from attnbook.attention.multi_head import MultiHeadAttention, grouped_query
from attnbook.parallel import alltoall, plan
from attnbook.parallel.groups import Group
from attnbook.parallel.heads import TensorParallelAttention
from attnbook.parallel.ranks import Ranks, run_in_threads
from attnbook.parallel.ring import (
    contiguous,
    join_shards,
    ring_attention,
    striped,
    take_shard,
    zigzag,
)
from attnbook.profiling.allocations import measure_peak_bytes
from attnbook.profiling.sizes import Sizes
from attnbook.training.loop import Recipe, Trainer
from small_models import make_model


def attend_states(query, key, value, group, layout, causal, key_lengths):
    return alltoall.attend_linear_divided(query, key, value, group)


PLANS = {
    "ring": (ring_attention, plan.count_ring_traffic),
    "all-to-all": (alltoall.all_to_all_attention, plan.count_all_to_all_traffic),
    "gathered keys": (alltoall.gather_attention, plan.count_gather_traffic),
    "states": (attend_states, plan.count_state_traffic),
    "grid": (
        partial(alltoall.grid_attention, columns=2),
        lambda sizes, _: plan.count_grid_traffic(sizes, 2, 2),
    ),
}


@pytest.fixture(scope="module")
def four():
    with Ranks(4) as ranks:
        yield ranks


def in_threads(size):
    return lambda function, *args: run_in_threads(function, size, *args, limit=10)


def draw(*shape, seed=0):
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=rng, dtype=torch.float64)


def differentiate(function, inputs, upstream, group=None):
    """Return a function's output and gradients, and what a rank sent each way."""
    group = group or Group()
    inputs = [x.detach().requires_grad_() for x in inputs]
    group.reset()
    output = function(*inputs)
    messages, forward = group.messages, group.sent_bytes
    output.backward(upstream)
    sent = messages, forward, group.sent_bytes - forward
    return [output.detach(), *(x.grad for x in inputs)], sent


def attend(group, name, layout, inputs, upstream, causal, key_lengths):
    """Return what `differentiate` gives for this rank's shards."""
    *shards, up = (take_shard(x, layout[group.rank]) for x in (*inputs, upstream))
    rules = dict(layout=layout, causal=causal, key_lengths=key_lengths)
    return differentiate(
        partial(PLANS[name][0], group=group, **rules), shards, up, group
    )


def check(run, name, size, layout, groups, causal=True, ragged=False):
    """Assert that all ranks together give what one device does."""
    length, heads = sum(map(len, layout)), 12
    inputs = [draw(2, n, length, w) for n, w in ((heads, 3), (groups, 3), (groups, 5))]
    upstream = draw(2, heads, length, 5, seed=1)
    ends = torch.tensor([length, length // 2])
    mask = torch.ones(length, length).tril(0 if causal else length).bool()
    if ragged:
        mask = mask & (torch.arange(length) < ends[:, None, None, None])
    function = attend_linear if name == "states" else grouped_query
    wanted, _ = differentiate(lambda *x: function(*x, mask), inputs, upstream)
    given = name, layout, inputs, upstream, causal, ends if ragged else None
    found = run(attend, *given)
    parts = zip(*(tensors for tensors, _ in found), strict=True)
    torch.testing.assert_close([join_shards(part, layout) for part in parts], wanted)
    if length % size == 0:  # otherwise shards differ
        sizes = Sizes(2, heads, length, length, 3, 5, groups, itemsize=8)
        assert {sent for _, sent in found} == {PLANS[name][1](sizes, size)}


@pytest.mark.parametrize("make", [contiguous, zigzag, striped])
@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("name", ["ring", "all-to-all", "gathered keys"])
def test_outputs_gradients_and_bytes(name, size, make):
    run = in_threads(size)
    # On 3 and 4 ranks, there are fewer key heads than ranks.
    check(run, name, size, make(13, size), (12, 4, 1, 2)[size - 1], ragged=True)
    check(run, name, size, make(24, size), 12, causal=False)
    check(run, name, size, make(7, size), 12, causal=False, ragged=True)
    check(run, name, size, make(4, size), 12)


@pytest.mark.parametrize(("length", "size"), [(5, 1), (130, 2), (7, 3), (8, 4)])
def test_linear_attention_sends_states(length, size):
    check(in_threads(size), "states", size, contiguous(length, size), 12)


def attend_heads(group, attention, x, upstream, mask):
    layer = TensorParallelAttention(attention, group)
    run = partial(layer, mask=mask)
    found, (_, forward, _) = differentiate(run, [x], upstream, group)
    found += [weights.grad for weights in layer.parameters()]
    return found, layer.share, forward, group.sent["all_reduce"] - forward


def check_heads(run, heads, groups, size):
    torch.manual_seed(0)
    whole = MultiHeadAttention(24, heads, groups=groups).double()
    inputs = draw(2, 5, 24), draw(2, 5, 24, seed=1), torch.ones(5, 5).tril().bool()
    found = run(attend_heads, whole, *inputs)
    x, upstream, mask = inputs
    first, _ = differentiate(partial(whole, mask=mask), [x], upstream)
    sizes = Sizes(2, heads, 5, 5, 24 // heads, G=groups, itemsize=8)
    for tensors, share, *sent in found:
        width = 24 // heads
        rows, shared = (slice(s.start * width, s.stop * width) for s in share)
        kept = (whole.query, rows), (whole.key, shared), (whole.value, shared)
        wanted = [x.grad[r] for layer, r in kept for x in (layer.weight, layer.bias)]
        wanted += [whole.output.weight.grad[:, rows], whole.output.bias.grad]
        torch.testing.assert_close(tensors, first + wanted)
        assert (*sent,) == plan.count_heads_traffic(sizes, size)[1:]


@pytest.mark.parametrize(
    ("heads", "groups", "size"),
    [(12, 12, 1), (12, 12, 3), (12, 4, 4), (12, 2, 4), (12, 1, 3), (4, 2, 2)],
)
def test_heads_over_ranks(heads, groups, size):
    check_heads(in_threads(size), heads, groups, size)


def decode(group, query, keys, values, lengths):
    own = keys[group.rank], values[group.rank], group
    ends = lengths and lengths[group.rank]
    return alltoall.decode_divided(query, *own, ends), group.sent_bytes


def check_decoding(run, sizes, ragged):
    query = draw(2, 6, 3, 3)
    keys, values = ([draw(2, 2, n, w) for n in sizes] for w in (3, 5))
    ends = [torch.tensor([n, n // 2]) for n in sizes]
    visible = [torch.arange(n) < e[:, None] for n, e in zip(sizes, ends, strict=True)]
    mask = torch.cat(visible, dim=1)[:, None, None] if ragged else None
    wanted = grouped_query(query, torch.cat(keys, 2), torch.cat(values, 2), mask)
    whole = Sizes(2, 6, 3, sum(sizes), 3, 5, 2, itemsize=8)
    traffic = plan.count_decoding_traffic(whole, len(sizes))
    for output, sent in run(decode, query, keys, values, ends if ragged else None):
        torch.testing.assert_close(output, wanted)
        assert sent == traffic.forward


@pytest.mark.parametrize("sizes", [[7], [3, 4], [5, 0, 2], [1, 2, 3, 1]])
@pytest.mark.parametrize("ragged", [False, True])
def test_decoding_with_a_divided_cache(sizes, ragged):
    check_decoding(in_threads(len(sizes)), sizes, ragged)


@pytest.mark.precision
@pytest.mark.parametrize("length", [13, 24])
def test_processes(four, length):
    for name in ("ring", "all-to-all", "gathered keys"):
        check(four.run, name, 4, zigzag(length, 4), 2, ragged=True)
    check(four.run, "grid", 4, alltoall.grid_layout(length, 2, 2), 2)
    check(four.run, "grid", 4, alltoall.grid_layout(length, 2, 2, contiguous), 1)
    check(four.run, "states", 4, contiguous(length, 4), 12)
    check_heads(four.run, 12, 2, 4)
    check_decoding(four.run, [1, 2, 0, 1], ragged=True)


def use_every_collective(group):
    """Return what each collective gives for tensors that are not contiguous."""
    grid = torch.arange(12.0).reshape(3, 4) + 100 * group.rank
    strided, kept = grid[:, 1], grid.clone()
    found = [
        group.shift(strided),
        group.shift(strided[: group.rank], [(group.rank - 1) % group.size]),
        group.all_reduce(strided),
        torch.cat(group.all_gather(strided)),
        torch.cat(group.all_to_all([*grid.T])),
    ]
    assert torch.equal(grid, kept)
    print("rank", group.rank)
    return found, group.sent, group.messages


@pytest.mark.precision
def test_processes_and_threads_exchange_the_same(four, capsys):
    found = four.run(use_every_collective)
    printed = capsys.readouterr().out
    torch.testing.assert_close(found, run_in_threads(use_every_collective, 4))
    assert printed == "".join(f"[rank {r}] rank {r}\n" for r in range(4))
    firsts = torch.tensor([1.0, 5.0, 9.0])
    (shifted, _, total, gathered, _), sent, _ = found[0]
    assert torch.equal(shifted, firsts + 300)
    assert torch.equal(total, 4 * firsts + 600)
    assert torch.equal(gathered[:6], torch.cat([firsts, firsts + 100]))
    assert sent["all_reduce"] == 18  # 2 · 3 / 4 of 12 bytes


def measure_peaks(group):
    """Return the peaks of this rank's new tensors among 1, 2 and 4 ranks, in shards."""
    peaks = []
    for some in (Group(), group.split(2)[0], group):
        layout = zigzag(512, some.size)
        own = [torch.zeros(1, 1, len(layout[some.rank]), 16) for _ in range(3)]
        run = partial(ring_attention, *own, some, layout, causal=True, block=32)
        peaks.append(measure_peak_bytes(run) / own[0].nbytes)
    return peaks


@pytest.mark.precision
def test_the_peak_memory_of_a_rank_falls_with_the_number_of_ranks(four):
    # Keys and values, sent and received; outputs before and after a merge.
    assert all(4 <= shards <= 8 for shards in four.run(measure_peaks)[0])


def train(group):
    """Return weights and losses; the last batch has fewer pairs than ranks."""
    pairs = [([4 + (i + j) % 7 for j in range(1 + i % 5)],) * 2 for i in range(25)]
    torch.manual_seed(0)
    recipe = Recipe(epochs=2, size=8, rate=1e-2)
    trainer = Trainer(make_model(attention=True).double(), pairs, pairs[:5], recipe)
    history = trainer.run(progress=False)
    losses = [[note["train_loss"], note["valid_loss"]] for note in history]
    return [*trainer.model.parameters()], losses


@pytest.mark.precision
def test_training_divides_every_batch(four):
    wanted = train(None)
    for weights, losses in four.run(train):
        torch.testing.assert_close(weights, wanted[0])
        torch.testing.assert_close(losses, wanted[1], rtol=1e-6, atol=0)
