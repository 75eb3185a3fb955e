"""Groups of ranks: counted messages, agreement, and collectives with gradients.

A **rank** is one of P processes (or, for exercises and quick checks, threads)
that run the same code on different parts of the data. What they send each other
passes through a `Group`, which counts it. A collective of `torch.distributed` in
the middle of a graph is no part of the graph; the functions at the end are.

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
from jaxtyping import Shaped
from torch import Tensor

Shape = Sequence[int]


class Group:
    """One rank's place in a group, and what it has sent; by itself, of one rank.

    Attributes:
        rank: this rank's number, from 0.
        size: P.
        sent: bytes that this rank has sent, by the name of the operation. For an
            all-reduce they are those of a ring, 2 (P - 1) / P of the tensor.
    """

    def __init__(self, rank: int = 0, size: int = 1, parent: "Group | None" = None):
        self.rank, self.size = rank, size
        # Rows and columns of a group count for the group.
        self.sent: Counter[str] = parent.sent if parent else Counter()
        self._messages: Counter[str] = parent._messages if parent else Counter()

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

    def shift(
        self, x: Shaped[Tensor, "..."], shape: Shape | None = None
    ) -> Shaped[Tensor, "..."]:
        """Send a tensor to the next rank; return what the previous one sends.

        The last rank sends to the first. What arrives has the shape of `x`
        unless `shape` is given.
        """
        self._count("shift", x.nbytes, 1)
        return self._shift(x.contiguous(), x.shape if shape is None else shape)

    def all_to_all(
        self, parts: Sequence[Tensor], shapes: Sequence[Shape] | None = None
    ) -> list[Tensor]:
        """Send part p to rank p; return what each rank sends here.

        What arrives has the shapes of the parts unless `shapes` are given.
        """
        self._count_parts("all_to_all", parts)
        shapes = [x.shape for x in parts] if shapes is None else shapes
        return self._all_to_all([x.contiguous() for x in parts], shapes)

    def all_gather(
        self, x: Shaped[Tensor, "..."], shapes: Sequence[Shape] | None = None
    ) -> list[Tensor]:
        """Return the tensors of all ranks, of these shapes or that of `x`."""
        parts = [x.contiguous()] * self.size
        self._count_parts("all_gather", parts)
        return self._all_to_all(parts, shapes or [x.shape] * self.size)

    def reduce_scatter(self, parts: Sequence[Tensor]) -> Tensor:
        """Return the sum over the ranks of the parts for this one."""
        self._count_parts("reduce_scatter", parts)
        shapes = [parts[self.rank].shape] * self.size
        arrived = self._all_to_all([x.contiguous() for x in parts], shapes)
        return torch.stack(arrived).sum(dim=0)

    def all_reduce(self, x: Shaped[Tensor, "..."]) -> Shaped[Tensor, "..."]:
        """Return the sum of the tensors of all ranks."""
        others = self.size - 1
        self._count("all_reduce", 2 * others * x.nbytes // self.size, 2 * others)
        return self._all_reduce(x.contiguous())

    def gather_objects(self, thing: object) -> list:
        """Return a small Python value of each rank; this is not counted."""
        return [thing]

    def split(self, columns: int) -> tuple["Group", "Group"]:
        """Return this rank's row and column of a grid of the ranks.

        Rank r is in row r // columns and in column r % columns.

        Raises:
            ValueError: if the ranks do not fill such a grid.
        """
        if columns < 1 or self.size % columns:
            raise ValueError(
                f"{self.size} ranks do not divide into rows of {columns} ranks"
            )
        if columns == 1:
            return Group(parent=self), self
        if columns == self.size:
            return self, Group(parent=self)
        return self._split(columns)

    def _count(self, name: str, sent: int, messages: int) -> None:
        if self.size > 1:
            self.sent[name] += sent
            self._messages[name] += messages

    def _count_parts(self, name: str, parts: Sequence[Tensor]) -> None:
        if len(parts) != self.size:
            raise ValueError(f"{self.size} ranks need as many parts, not {len(parts)}")
        others = sum(x.nbytes for p, x in enumerate(parts) if p != self.rank)
        self._count(name, others, self.size - 1)

    def _shift(self, x: Tensor, shape: Shape) -> Tensor:
        return x.clone()

    def _all_to_all(
        self, parts: Sequence[Tensor], shapes: Sequence[Shape]
    ) -> list[Tensor]:
        return [x.clone() for x in parts]

    def _all_reduce(self, x: Tensor) -> Tensor:
        return x.clone()

    def _split(self, columns: int) -> tuple["Group", "Group"]:
        raise NotImplementedError


class DistributedGroup(Group):
    """Ranks that are processes of `torch.distributed`: gloo or NCCL.

    Args:
        handle: one of its process groups; the group of all ranks unless given.
        parent: the group of which this is a row or a column.

    Raises:
        ValueError: if no process group has been started.
    """

    def __init__(
        self, handle: dist.ProcessGroup | None = None, parent: Group | None = None
    ):
        if not (dist.is_available() and dist.is_initialized()):
            raise ValueError(
                "no process group has been started: call run_on_ranks, or "
                "torch.distributed.init_process_group in every process"
            )
        super().__init__(dist.get_rank(handle), dist.get_world_size(handle), parent)
        self.handle = handle
        self._grids: dict[int, tuple[Group, Group]] = {}

    def gather_objects(self, thing: object) -> list:
        """Return a small Python value of each rank; this is not counted."""
        found: list = [None] * self.size
        dist.all_gather_object(found, thing, group=self.handle)
        return found

    def _shift(self, x: Tensor, shape: Shape) -> Tensor:
        arrived = x.new_empty(shape)
        there, here = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        if self.handle is not None:
            there, here = (dist.get_global_rank(self.handle, r) for r in (there, here))
        if self.size == 1:
            return x.clone()
        sent = dist.P2POp(dist.isend, x, there, self.handle)
        received = dist.P2POp(dist.irecv, arrived, here, self.handle)
        for work in dist.batch_isend_irecv([sent, received]):
            work.wait()
        return arrived

    def _all_to_all(
        self, parts: Sequence[Tensor], shapes: Sequence[Shape]
    ) -> list[Tensor]:
        sizes = [prod(shape) for shape in shapes]
        sent = torch.cat([x.flatten() for x in parts])
        arrived = sent.new_empty(sum(sizes))
        counts = [x.numel() for x in parts]
        dist.all_to_all_single(arrived, sent, sizes, counts, group=self.handle)
        both = zip(arrived.split(sizes), shapes, strict=True)
        return [x.reshape(*shape) for x, shape in both]

    def _all_reduce(self, x: Tensor) -> Tensor:
        total = x.clone()
        dist.all_reduce(total, group=self.handle)
        return total

    def _split(self, columns: int) -> tuple[Group, Group]:
        if self.handle is not None:
            raise ValueError("only the group of all processes can be split")
        if columns not in self._grids:
            # Every process has to make every group, its own or not.
            grid = torch.arange(self.size).unflatten(0, (-1, columns))
            made = [dist.new_group(line.tolist()) for line in (*grid, *grid.T)]
            row, column = divmod(self.rank, columns)
            own = made[row], made[len(grid) + column]
            self._grids[columns] = tuple(DistributedGroup(x, self) for x in own)
        return self._grids[columns]


class Board:
    """Where threads leave what they send each other, for at most `limit` seconds."""

    def __init__(self, size: int, limit: float):
        self.size, self.limit = size, limit
        self.slots: list = [None] * size
        self.barrier = threading.Barrier(size, timeout=limit)
        self.lines: dict[tuple, Board] = {}
        self.lock = threading.Lock()

    def exchange(self, rank: int, thing: object) -> list:
        """Leave a thing; return those of all threads once they have left theirs."""
        self.slots[rank] = thing
        self.barrier.wait()
        found = [*self.slots]
        self.barrier.wait()
        return found

    def find_line(self, size: int, *name: object) -> "Board":
        """Return the board of a row or column, the same for all of its threads."""
        with self.lock:
            return self.lines.setdefault(name, Board(size, self.limit))

    def abort(self) -> None:
        """Let no thread wait any longer."""
        for board in (self, *self.lines.values()):
            board.barrier.abort()


class ThreadGroup(Group):
    """Ranks that are threads of one process: for exercises and quick checks."""

    def __init__(self, rank: int, board: Board, parent: Group | None = None):
        super().__init__(rank, board.size, parent)
        self.board = board

    def gather_objects(self, thing: object) -> list:
        """Return a small Python value of each rank; this is not counted."""
        return self.board.exchange(self.rank, thing)

    def _shift(self, x: Tensor, shape: Shape) -> Tensor:
        return self.board.exchange(self.rank, x)[self.rank - 1].reshape(*shape).clone()

    def _all_to_all(
        self, parts: Sequence[Tensor], shapes: Sequence[Shape]
    ) -> list[Tensor]:
        rows = zip(self.board.exchange(self.rank, parts), shapes, strict=True)
        return [row[self.rank].reshape(*shape).clone() for row, shape in rows]

    def _all_reduce(self, x: Tensor) -> Tensor:
        return torch.stack(self.board.exchange(self.rank, x)).sum(dim=0)

    def _split(self, columns: int) -> tuple[Group, Group]:
        row, column = divmod(self.rank, columns)
        own = self.board.find_line(columns, "row", columns, row)
        across = self.board.find_line(self.size // columns, "column", columns, column)
        return ThreadGroup(column, own, self), ThreadGroup(row, across, self)


def require_all(group: Group, error: str | None) -> None:
    """Raise one ValueError on every rank if any rank has an error.

    A rank that raised alone would leave the others waiting for its messages.
    """
    errors = [e for e in group.gather_objects(error) if e is not None]
    if errors:
        raise ValueError(errors[0])


def require_alike(group: Group, **facts: object) -> None:
    """Raise one ValueError on every rank if any fact differs between the ranks.

    A rank would misread a message of another shape or type.
    """
    found = group.gather_objects(facts)
    for name in facts:
        for rank, theirs in enumerate(found):
            if theirs[name] != found[0][name]:
                raise ValueError(
                    f"all ranks need the same {name}, but rank 0 has "
                    f"{found[0][name]} and rank {rank} has {theirs[name]}"
                )


class _CopyToRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, group: Group) -> Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, upstream: Tensor) -> tuple[Tensor, None]:
        return ctx.group.all_reduce(upstream), None


class _SumOverRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, group: Group) -> Tensor:
        return group.all_reduce(x)

    @staticmethod
    def backward(ctx, upstream: Tensor) -> tuple[Tensor, None]:
        return upstream, None


class _ExchangeParts(torch.autograd.Function):
    @staticmethod
    def forward(ctx, group: Group, shapes: Sequence[Shape], *parts: Tensor) -> tuple:
        ctx.group, ctx.shapes = group, [x.shape for x in parts]
        return tuple(group.all_to_all(parts, shapes))

    @staticmethod
    def backward(ctx, *upstream: Tensor) -> tuple:
        return None, None, *ctx.group.all_to_all(upstream, ctx.shapes)


class _GatherFromRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, group: Group, sizes: Sequence[int], dim: int) -> Tensor:
        ctx.group, ctx.sizes, ctx.dim = group, sizes, dim % x.ndim
        before, after = x.shape[: ctx.dim], x.shape[ctx.dim + 1 :]
        shapes = [(*before, size, *after) for size in sizes]
        return torch.cat(group.all_gather(x, shapes), dim)

    @staticmethod
    def backward(ctx, upstream: Tensor) -> tuple:
        parts = upstream.split(ctx.sizes, ctx.dim)
        return ctx.group.reduce_scatter(parts), None, None, None


def copy_to_ranks(x: Shaped[Tensor, "..."], group: Group) -> Shaped[Tensor, "..."]:
    """Return x, which is equal on all ranks; its gradient is the ranks' sum."""
    return _CopyToRanks.apply(x, group)


def sum_over_ranks(x: Shaped[Tensor, "..."], group: Group) -> Shaped[Tensor, "..."]:
    """Return the sum of all ranks' x; the gradient of each is that of the sum.

    The loss has to be computed from the sum on every rank in the same way.
    """
    return _SumOverRanks.apply(x, group)


def exchange_parts(
    parts: Sequence[Tensor], shapes: Sequence[Shape], group: Group
) -> list[Tensor]:
    """Return `Group.all_to_all` of the parts; gradients go the other way."""
    return [*_ExchangeParts.apply(group, shapes, *parts)]


def gather_from_ranks(
    x: Shaped[Tensor, "..."], group: Group, sizes: Sequence[int], dim: int = -2
) -> Shaped[Tensor, "..."]:
    """Return all ranks' x, one after the other along a dimension of these sizes.

    Its gradient is summed over the ranks, each of which may use all of it.
    """
    return _GatherFromRanks.apply(x, group, sizes, dim)
