"""Groups of ranks: counted messages, agreement, and collectives with gradients.

A **rank** is one of P processes (or, for exercises and quick checks, threads)
that run the same code on different parts of the data. A collective in the middle
of a graph is no part of the graph; the functions at the end are.

Source: the two functions around a divided layer: Shoeybi et al. (2019),
    section 3 and figure 3, https://arxiv.org/abs/1909.08053
Axes: any; P ranks
"""

import threading
from collections import Counter
from collections.abc import Sequence
from math import prod

import torch
import torch.distributed as dist
from torch import Tensor

Parts = Sequence[Tensor]
Shapes = Sequence[Sequence[int]]


class Board:
    """Where threads leave what they send each other, for at most `limit` seconds."""

    def __init__(self, size: int = 1, limit: float | int | None = None):
        self.slots: list = [None] * size
        self.barrier = threading.Barrier(size, timeout=limit)

    def exchange(self, rank: int, thing: object) -> list:
        """Leave a thing; return those of all threads once they have left theirs."""
        self.slots[rank] = thing
        self.barrier.wait()
        found = [*self.slots]
        self.barrier.wait()
        return found


class Group:
    """One rank's place among the threads of a board; without one, a single rank.

    Attributes:
        rank: this rank's number, from 0.
        size: P.
        sent: bytes that this rank has sent, by the name of the operation. For an
            all-reduce they are those of a ring, 2 (P - 1) / P of the tensor.
    """

    def __init__(self, rank: int = 0, board: Board | None = None):
        self.board = board or Board()
        self.rank, self.size = rank, len(self.board.slots)
        self.sent: Counter[str] = Counter()
        self._messages: Counter[str] = Counter()

    def reset(self) -> None:
        """Count from 0 again."""
        self.sent.clear()
        self._messages.clear()

    @property
    def sent_bytes(self) -> int:
        """Return all bytes that this rank has sent."""
        return self.sent.total()

    @property
    def messages(self) -> int:
        """Return how many tensors this rank has sent to another one."""
        return self._messages.total()

    def shift(self, x: Tensor, shape: Sequence[int] | None = None) -> Tensor:
        """Send a tensor to the next rank; return what the previous one sends.

        The last rank sends to the first. What arrives has the shape of `x`
        unless `shape` is given.
        """
        if self.size == 1:
            return x.clone()
        self._count("shift", x.nbytes, 1)
        return self._shift(x.contiguous(), x.shape if shape is None else shape)

    def all_to_all(self, parts: Parts, shapes: Shapes | None = None) -> list[Tensor]:
        """Send part p to rank p; return what each rank sends here.

        What arrives has the shapes of the parts unless `shapes` are given.
        """
        return self._exchange("all_to_all", parts, shapes or [x.shape for x in parts])

    def all_gather(self, x: Tensor) -> list[Tensor]:
        """Return the tensors of all ranks, which have one shape."""
        return self._exchange("all_gather", [x] * self.size, [x.shape] * self.size)

    def all_reduce(self, x: Tensor) -> Tensor:
        """Return the sum of the tensors of all ranks."""
        others = self.size - 1
        self._count("all_reduce", 2 * others * x.nbytes // self.size, 2 * others)
        return self._all_reduce(x.contiguous())

    def gather_objects(self, thing: object) -> list:
        """Return a small Python value of each rank; this is not counted."""
        return self.board.exchange(self.rank, thing)

    def _count(self, name: str, sent: int, messages: int) -> None:
        self.sent[name] += sent
        self._messages[name] += messages

    def _exchange(self, name: str, parts: Parts, shapes: Shapes) -> list[Tensor]:
        if len(parts) != self.size:
            raise ValueError(f"{self.size} ranks need as many parts, not {len(parts)}")
        others = sum(x.nbytes for p, x in enumerate(parts) if p != self.rank)
        self._count(name, others, self.size - 1)
        return self._all_to_all([x.contiguous() for x in parts], shapes)

    def _shift(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        return self.board.exchange(self.rank, x)[self.rank - 1].reshape(shape).clone()

    def _all_to_all(self, parts: Parts, shapes: Shapes) -> list[Tensor]:
        rows = zip(self.board.exchange(self.rank, parts), shapes, strict=True)
        return [row[self.rank].reshape(shape).clone() for row, shape in rows]

    def _all_reduce(self, x: Tensor) -> Tensor:
        return torch.stack(self.board.exchange(self.rank, x)).sum(dim=0)


class DistributedGroup(Group):
    """Ranks that are processes of `torch.distributed`: gloo or NCCL.

    `handle` is one of its process groups, of all ranks unless given. ValueError if
    none has been started.
    """

    def __init__(self, handle: dist.ProcessGroup | None = None):
        if not (dist.is_available() and dist.is_initialized()):
            raise ValueError(
                "no process group has been started: call Ranks(P).run, or "
                "torch.distributed.init_process_group in every process"
            )
        super().__init__()
        self.rank, self.size = dist.get_rank(handle), dist.get_world_size(handle)
        self.handle = handle
        self._grids: dict[int, tuple[DistributedGroup, ...]] = {}

    def split(self, columns: int) -> tuple["DistributedGroup", ...]:
        """Return this rank's row and column of a grid of all processes.

        Rank r is in row r // columns and in column r % columns. What it sends
        there is counted here.
        """
        if columns not in self._grids:
            # Every process has to make every group, its own or not.
            grid = torch.arange(self.size).unflatten(0, (-1, columns))
            lines = [x.tolist() for x in (*grid, *grid.T)]
            made = [(dist.new_group(line), line) for line in lines]
            own = [DistributedGroup(x) for x, line in made if self.rank in line]
            for line in own:
                line.sent, line._messages = self.sent, self._messages
            self._grids[columns] = tuple(own)
        return self._grids[columns]

    def gather_objects(self, thing: object) -> list:
        """Return a small Python value of each rank; this is not counted."""
        found: list = [None] * self.size
        dist.all_gather_object(found, thing, group=self.handle)
        return found

    def _shift(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        arrived = x.new_empty(shape)
        there, here = ((self.rank + n) % self.size for n in (1, -1))
        sent = dist.P2POp(dist.isend, x, group=self.handle, group_peer=there)
        got = dist.P2POp(dist.irecv, arrived, group=self.handle, group_peer=here)
        for work in dist.batch_isend_irecv([sent, got]):
            work.wait()
        return arrived

    def _all_to_all(self, parts: Parts, shapes: Shapes) -> list[Tensor]:
        counts, sizes = [x.numel() for x in parts], [prod(shape) for shape in shapes]
        sent = torch.cat([x.flatten() for x in parts])
        arrived = sent.new_empty(sum(sizes))
        dist.all_to_all_single(arrived, sent, sizes, counts, group=self.handle)
        rows = zip(arrived.split(sizes), shapes, strict=True)
        return [x.reshape(shape) for x, shape in rows]

    def _all_reduce(self, x: Tensor) -> Tensor:
        total = x.clone()
        dist.all_reduce(total, group=self.handle)
        return total


def require_alike(group: Group, error: str | None = None, **facts: object) -> None:
    """Raise one ValueError on every rank if any has an error or another fact.

    A rank that raised alone would leave the others waiting for its messages, and
    one would misread a message of another shape or type.
    """
    found = group.gather_objects((error, facts))
    errors = [error for error, _ in found if error is not None]
    errors += [
        f"all ranks need the same {name}, but rank 0 has {found[0][1][name]} and "
        f"rank {rank} has {theirs[name]}"
        for rank, (_, theirs) in enumerate(found)
        for name in facts
        if theirs[name] != found[0][1][name]
    ]
    if errors:
        raise ValueError(errors[0])


class _CopyToRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, group: Group, copies: Sequence[int] | None) -> Tensor:
        ctx.group, ctx.copies = group, copies
        return x.view_as(x)

    @staticmethod
    def backward(ctx, upstream: Tensor) -> tuple[Tensor, None, None]:
        group, copies = ctx.group, ctx.copies
        if copies is None:
            return group.all_reduce(upstream), None, None
        parts = [upstream if r in copies else upstream[:0] for r in range(group.size)]
        arrived = group.all_to_all(parts)
        return torch.stack([arrived[r] for r in copies]).sum(dim=0), None, None


class _SumOverRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, group: Group) -> Tensor:
        return group.all_reduce(x)

    @staticmethod
    def backward(ctx, upstream: Tensor) -> tuple[Tensor, None]:
        return upstream, None


class _ExchangeParts(torch.autograd.Function):
    @staticmethod
    def forward(ctx, group: Group, shapes: Shapes, *parts: Tensor) -> tuple:
        ctx.group, ctx.shapes = group, [x.shape for x in parts]
        return tuple(group.all_to_all(parts, shapes))

    @staticmethod
    def backward(ctx, *upstream: Tensor) -> tuple:
        return None, None, *ctx.group.all_to_all(upstream, ctx.shapes)


def copy_to_ranks(
    x: Tensor, group: Group, copies: Sequence[int] | None = None
) -> Tensor:
    """Return x, which is equal on all ranks; its gradient is the ranks' sum.

    If only some ranks have copies of x, `copies` are their numbers.
    """
    return _CopyToRanks.apply(x, group, copies)


def sum_over_ranks(x: Tensor, group: Group) -> Tensor:
    """Return the sum of all ranks' x; the gradient of each is that of the sum.

    The loss has to be computed from the sum on every rank in the same way.
    """
    return _SumOverRanks.apply(x, group)


def exchange_parts(parts: Parts, shapes: Shapes, group: Group) -> list[Tensor]:
    """Return `Group.all_to_all` of the parts; gradients go the other way.

    With P times one tensor, all ranks gather it, and its gradient is their sum.
    """
    return [*_ExchangeParts.apply(group, shapes, *parts)]
