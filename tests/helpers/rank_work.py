"""What the ranks of the tests run: every plan, forwards and backwards."""

from dataclasses import dataclass
from functools import partial

import torch
import torch.distributed as dist

from attnbook.attention.multi_head import MultiHeadAttention, grouped_query
from attnbook.parallel.alltoall import (
    all_to_all_attention,
    attend_linear_divided,
    decode_divided,
    gather_attention,
    grid_attention,
    grid_layout,
)
from attnbook.parallel.groups import DistributedGroup
from attnbook.parallel.heads import TensorParallelAttention
from attnbook.parallel.ring import (
    contiguous,
    join_shards,
    ring_attention,
    striped,
    take_shard,
    zigzag,
)
from attnbook.profiling.allocations import measure_peak_bytes

PLANS = {
    "ring": ring_attention,
    "all-to-all": all_to_all_attention,
    "gathered keys": gather_attention,
    "grid": partial(grid_attention, columns=2),
}
LAYOUTS = {"contiguous": contiguous, "zigzag": zigzag, "striped": striped}
WIDTH, VALUE_WIDTH = 3, 5


@dataclass(frozen=True)
class Case:
    """One way to divide attention, and what is divided."""

    plan: str
    ranks: int
    layout: str = "zigzag"
    length: int = 13
    causal: bool = True
    ragged: bool = False
    heads: int = 12
    groups: int = 12

    def make_layout(self):
        make = LAYOUTS[self.layout]
        if self.plan == "grid":
            return grid_layout(self.length, self.ranks // 2, 2, make)
        return make(self.length, self.ranks)

    def make_inputs(self):
        """Return query, key, value and the gradient on the output."""
        rng = torch.Generator().manual_seed(0)
        sizes = [(self.heads, WIDTH), (self.groups, WIDTH), (self.groups, VALUE_WIDTH)]
        sizes.append((self.heads, VALUE_WIDTH))
        return [
            torch.randn(2, n, self.length, width, generator=rng, dtype=torch.float64)
            for n, width in sizes
        ]

    def make_key_lengths(self):
        return torch.tensor([self.length, self.length // 2]) if self.ragged else None

    def attend_on_one_device(self):
        """Return the output of one process, and the gradients on its inputs."""
        *inputs, upstream = self.make_inputs()
        inputs = [x.requires_grad_() for x in inputs]
        positions = torch.arange(self.length)
        mask = torch.ones(1, 1, self.length, self.length, dtype=torch.bool)
        if self.causal:
            mask = mask & (positions <= positions[:, None])
        if self.ragged:
            mask = mask & (positions < self.make_key_lengths()[:, None, None, None])
        output = grouped_query(*inputs, mask)
        output.backward(upstream)
        return [output.detach(), *(x.grad for x in inputs)]


def attend(group, case):
    """Return a rank's output and gradients, and what it sent each way."""
    layout = case.make_layout()
    shards = [take_shard(x, layout[group.rank]) for x in case.make_inputs()]
    *inputs, upstream = shards
    inputs = [x.requires_grad_() for x in inputs]
    group.reset()
    output = PLANS[case.plan](
        *inputs,
        group=group,
        layout=layout,
        causal=case.causal,
        key_lengths=case.make_key_lengths(),
    )
    messages, forward = group.messages, group.sent_bytes
    output.backward(upstream)
    sent = messages, forward, group.sent_bytes - forward
    return [output.detach(), *(x.grad for x in inputs)], sent


def compare_with_one_device(case, found):
    """Assert that the ranks' outputs and gradients are those of one process."""
    parts = zip(*(tensors for tensors, _ in found), strict=True)
    joined = [join_shards(part, case.make_layout()) for part in parts]
    torch.testing.assert_close(joined, case.attend_on_one_device())


def make_groups(group):
    """Return groups of the first processes, by their size: those with this rank."""
    groups = {group.size: group}
    for size in range(1, group.size):
        handle = dist.new_group([*range(size)])
        if group.rank < size:
            groups[size] = DistributedGroup(handle)
    return groups


def attend_all(group, cases):
    """Return what each case gives, on as many of the first processes as it needs."""
    groups = make_groups(group)
    return [attend(groups[case.ranks], case) for case in cases if case.ranks in groups]


def measure_peaks(group, width, length, block):
    """Return the peak of this rank's new tensors, by the number of ranks."""
    peaks = {}
    for size, some in make_groups(group).items():
        layout = zigzag(length, size)
        shards = [torch.zeros(1, 1, len(layout[some.rank]), width) for _ in range(3)]
        peaks[size] = measure_peak_bytes(
            lambda x=shards, g=some, to=layout: ring_attention(
                *x, g, to, causal=True, block=block
            )
        )
    return peaks


def make_attention(heads, groups):
    torch.manual_seed(0)
    return MultiHeadAttention(24, heads, groups=groups).double()


def make_sequence(seed=1):
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(2, 5, 24, generator=rng, dtype=torch.float64)


def attend_with_some_heads(group, attention):
    """Return a rank's output, gradients, share of the heads, and bytes."""
    layer = TensorParallelAttention(attention, group)
    x, mask = make_sequence().requires_grad_(), torch.ones(5, 5).tril().bool()
    group.reset()
    output = layer(x, mask)
    forward = group.sent_bytes
    output.backward(make_sequence(seed=2))
    grads = {name: p.grad for name, p in layer.named_parameters()}
    sent = forward, group.sent.get("all_reduce", 0) - forward
    return output.detach(), x.grad, grads, layer.share, sent


def compare_heads(heads, groups, found):
    """Assert that each rank has its rows of the whole layer's gradients."""
    whole, x = make_attention(heads, groups), make_sequence().requires_grad_()
    output = whole(x, mask=torch.ones(5, 5).tril().bool())
    output.backward(make_sequence(seed=2))
    width = 24 // heads
    for rank_output, x_grad, grads, share, _ in found:
        torch.testing.assert_close((rank_output, x_grad), (output.detach(), x.grad))
        rows, shared = (slice(s.start * width, s.stop * width) for s in share)
        for name, kept in (("query", rows), ("key", shared), ("value", shared)):
            layer = getattr(whole, name)
            torch.testing.assert_close(grads[f"{name}.weight"], layer.weight.grad[kept])
            torch.testing.assert_close(grads[f"{name}.bias"], layer.bias.grad[kept])
        weight = whole.output.weight.grad[:, rows]
        torch.testing.assert_close(grads["output.weight"], weight)
        torch.testing.assert_close(grads["output.bias"], whole.output.bias.grad)


def decode(group, query, keys, values, lengths):
    """Return attention to a cache of which each rank has other keys."""
    ends = None if lengths is None else lengths[group.rank]
    group.reset()
    rank = group.rank
    return decode_divided(
        query, keys[rank], values[rank], group, ends
    ), group.sent_bytes


def attend_linearly(group, inputs, upstream, layout):
    """Return a rank's linear attention and gradients, and bytes each way."""
    positions = layout[group.rank]
    shards = [take_shard(x, positions).requires_grad_() for x in inputs]
    group.reset()
    output = attend_linear_divided(*shards, group)
    forward = group.sent_bytes
    output.backward(take_shard(upstream, positions))
    sent = forward, group.sent_bytes - forward
    return [output.detach(), *(x.grad for x in shards)], sent
