"""The exercises of the chapter on several devices.

Source: a ring with the zigzag layout and its bytes: attnbook.parallel.ring; a grid of
    ranks: Fang and Zhao (2024), section 3, https://arxiv.org/abs/2405.07719; the
    faults are those of public code, in the chapter's pitfalls
Axes: P ranks, B sequences, H heads, G key-value heads, T positions, t of one rank,
    D width of a head, E of a value
"""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnbook.attention.tiled import merge
from attnbook.exercises.declare import Case, Draw, Exercise, differ
from attnbook.parallel import alltoall, plan, ring

Link = tuple[float, float]  # seconds of a message, and of a byte


def plan_bytes(P: int, B: int, H: int, G: int, D: int, T: int, b: int) -> list[int]:
    """Return the bytes that one rank sends in the forward pass of a layer.

    In this order: ring, all-to-all, gathered keys, tensor parallelism, and a step of
    decode with the cache divided.
    """
    others = P - 1
    shard = B * (T // P) * D * b  # one head of a rank's positions
    ring = others * 2 * G * shard
    exchanged = (2 * H + 2 * max(G, P)) * shard * others // P
    reduced = 2 * others * H * shard
    decoded = others * B * H * (D + 1) * 4
    return [ring, exchanged, ring, reduced, decoded]


def bytes_cases(draw):
    def sizes(P, G, b=2):
        H = P * G * draw.whole(2, 3)
        return P, draw.whole(1, 3), H, G, draw.whole(3, 9), P * draw.whole(5, 20), b

    yield "with one rank", *sizes(1, 2)
    yield "with as many ranks as key-value heads", *sizes(3, 3, b=4)
    yield "with more key-value heads than ranks", *sizes(2, 6)
    yield "with more ranks than key-value heads", *sizes(6, 2)
    yield "with the attention of large models", 16, 1, 64, 8, 128, 2**20, 2


check_plan_bytes = Exercise(
    plan_bytes,
    bytes_cases,
    stars=1,
    minutes=15,
    section="When ring, when all-to-all? Count the bytes",
    title="bytes of five plans",
    returns=("bytes",),
    library=(
        plan.count_ring_traffic,
        plan.count_all_to_all_traffic,
        plan.count_gather_traffic,
        plan.count_heads_traffic,
        plan.count_decoding_traffic,
    ),
    mistakes={
        "one-message-more": (
            "keys are sent P times; after P - 1 messages all ranks have seen them",
            "ring = others → ring = P",
        ),
        "keys-only": (
            "a ring sends values, too, and not only keys",
            "others * 2 * G → others * G",
        ),
        "query-heads": (
            "a ring sends key-value heads; queries stay",
            "2 * G * shard → 2 * H * shard",
        ),
        "own-part-is-sent": (
            "all-to-all sends a rank's own part as well; it stays where it is",
            "* shard * others // P → * shard",
        ),
        "no-way-back": (
            "all-to-all exchanges the output, too, and not only query, key and value",
            "(2 * H + → (H +",
        ),
        "no-copies": (
            "each rank needs a key-value head, so few of them are repeated to P",
            "2 * max(G, P) → 2 * G",
        ),
        "reduced-once": (
            "an all-reduce sends sums and then results, 2 (P - 1) / P of the tensor",
            "reduced = 2 * others → reduced = others",
        ),
        "no-logsumexp": (
            "the logsumexps of a divided decode are missing",
            "(D + 1) → D",
        ),
    },
    hints=(
        "How many numbers of one head does a rank hold, and how often is it sent?",
        "All-to-all moves query, key, value and output, all but one part in P of each.",
    ),
)


class AllRanks:
    """A group whose ranks are the first axis of every tensor."""

    def __init__(self, size: int):
        self.size, self.sent = size, 0

    def shift(self, x: Tensor) -> Tensor:
        """Send to the next rank; return what the previous one sends."""
        self.sent += x.numel() // self.size * x.is_floating_point()
        return x.roll(1, 0)


def causal_ring(
    query: Float[Tensor, "*P t D"],
    key: Float[Tensor, "*P t D"],
    value: Float[Tensor, "*P t E"],
    positions: Int[Tensor, "*P t"],
    group: AllRanks,
) -> Float[Tensor, "*P t E"]:
    """Return causal attention of a rank's queries to the keys of all ranks."""
    output = lse = torch.zeros(())
    theirs = positions
    for step in range(group.size):
        if step:
            key, value = group.shift(key), group.shift(value)
            theirs = group.shift(theirs)
        mask = positions[..., :, None] >= theirs[..., None, :]
        scores = query @ key.mT / query.shape[-1] ** 0.5
        scores = scores.masked_fill(~mask, -torch.inf)
        weights = scores.softmax(-1).nan_to_num()  # a query may have no key here
        part = weights @ value, scores.logsumexp(-1)
        output, lse = merge(output, lse, *part) if step else part
    return output


def shift_last(query, key, value, positions, group):
    """Return the same, and shift once more than is needed."""
    output = causal_ring(query, key, value, positions, group)
    group.shift(key), group.shift(value)
    return output


def read_ring(returned: object, *inputs) -> object:
    """Return the output, and how many numbers a rank has sent."""
    if not isinstance(returned, Tensor):
        return returned
    return returned, torch.tensor(inputs[-1].sent)


def ring_cases(draw):
    def case(tries, P, t, D, layout, heads=()):
        """Make a case of t positions a rank, in a layout."""
        held = torch.stack([*layout(P * t, P)])
        positions = held.view(P, *[1] * len(heads), t).expand(P, *heads, t).clone()
        shards = (draw.normal(P, *heads, t, width) for width in (D, D, D + 1))
        return Case(tries, (*shards, positions, AllRanks(P)), gradient=False)

    yield case("with one rank", 1, 4, 3, ring.contiguous)
    yield case("with two ranks of one position", 2, 1, 2, ring.contiguous)
    yield case("with three ranks", 3, 2, 4, ring.zigzag)
    yield case("with contiguous positions", 4, 3, 5, ring.contiguous)
    yield case("with heads and every fourth position", 4, 3, 5, ring.striped, (2,))


check_causal_ring = Exercise(
    causal_ring,
    ring_cases,
    stars=2,
    minutes=25,
    section="Keys over devices: ring attention",
    title="the forward pass of a causal ring",
    returns=("output", "sent numbers"),
    compare=read_ring,
    library=(ring.ring_attention, ring.attend_to_shard),
    mistakes={
        "local-positions": (
            "the mask compares rows of shards; positions are global, and travel with "
            "their keys",
            [
                "theirs = group.shift(theirs) → pass",
                "positions[..., :, None] >= theirs[..., None, :] → "
                "torch.ones(query.shape[-2], key.shape[-2]).tril().bool()",
            ],
        ),
        "strictly-earlier": (
            "a query attends to its own position, too",
            ">= theirs → > theirs",
        ),
        "one-step-short": (
            "the keys of the next rank, which arrive last, are missing",
            "range(group.size) → range(max(1, group.size - 1))",
        ),
        "one-message-more": (
            "keys are sent once more than is needed; P - 1 messages are enough",
            shift_last,
        ),
        "equal-weights": (
            "parts are averaged; merge them by their logsumexps",
            "merge(output, lse, *part) if step → "
            "((output * step + part[0]) / (step + 1), lse) if step",
        ),
        "empty-part": (
            "a query without a key in this part has a softmax of NaN",
            ".nan_to_num() → ",
        ),
        "unscaled": (
            "the scores are not divided by √D",
            " / query.shape[-1] ** 0.5 → ",
        ),
    },
    hints=(
        "Keys, values and their positions travel; queries and their positions stay.",
        "Compute with what you have, then shift, P - 1 times; merge after each.",
    ),
)


FAULTS = (
    "no fault",
    "a backward pass that reuses the first keys",
    "local positions in the mask",
    "a length that is not divided",
    "parts that are averaged",
    "a last step that is missing",
)


class Ring:
    """A causal ring in the zigzag layout on P ranks, with one of `FAULTS`."""

    def __init__(self, fault: int, P: int):
        self._fault, self.P = fault, P

    def __call__(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Return attention (T, E) of queries and keys (T, D), values (T, E)."""
        output = self._run(query, key, value, self.P - (self._fault == 5))
        if self._fault != 1:
            return output
        # The value is right; the gradient is that of each rank's own keys.
        stale = self._run(query, key, value, 1)
        return output.detach() + stale - stale.detach()

    def _run(self, query: Tensor, key: Tensor, value: Tensor, steps: int) -> Tensor:
        T, runs = len(query), 2 * self.P
        if runs > T:
            raise ValueError(f"{T} positions cannot be cut into {runs} runs")
        layout = ring.zigzag(T // runs * runs if self._fault == 3 else T, self.P)
        output = value.new_zeros(T, value.shape[-1])
        for rank, rows in enumerate(layout):
            parts = [
                self._attend(query, key, value, rows, layout[rank - step])
                for step in range(steps)
            ]
            outputs, lse = (torch.stack(x) for x in zip(*parts, strict=True))
            shares = lse.softmax(0)
            if self._fault == 4:
                shares = torch.full_like(lse, 1 / len(parts))
            output = output.index_add(0, rows, (shares[..., None] * outputs).sum(0))
        return output

    def _attend(self, query, key, value, rows, columns) -> tuple[Tensor, Tensor]:
        """Return a part's output, and its logsumexp (very low without a key)."""
        places = rows, columns
        if self._fault == 2:
            places = torch.arange(len(rows)), torch.arange(len(columns))
        scores = query[rows] @ key[columns].mT / query.shape[-1] ** 0.5
        scores = scores.masked_fill(places[0][:, None] < places[1], -1e30)
        empty = (places[0][:, None] < places[1]).all(-1, keepdim=True)
        weights = scores.softmax(-1).masked_fill(empty, 0)
        return weights @ value[columns], scores.logsumexp(-1)


def ring_fault(ring: Callable, P: int) -> int:
    """Return the number of a ring's fault, 0 if there is none."""

    def run(T: int, attend: Callable) -> tuple[Tensor, ...]:
        draw = torch.Generator().manual_seed(T)
        query, key = torch.randn(2, T, 4, generator=draw).requires_grad_()
        output = attend(query, key, torch.eye(T))  # these are the weights
        upstream = torch.randn(T, T, generator=draw)
        return output.detach(), *torch.autograd.grad(output, [query, key], upstream)

    def right(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        later = torch.ones(len(query), len(query)).triu(1).bool()
        scores = (query @ key.mT / 2).masked_fill(later, -torch.inf)
        return scores.softmax(-1) @ value

    (weights, *gradients), (_, *wanted) = run(4 * P, ring), run(4 * P, right)
    if weights.triu(1).any():  # later positions
        return 2
    if not weights[torch.ones(4 * P, 4 * P).tril().bool()].all():  # missing keys
        return 5
    if differ(weights, run(4 * P, right)[0]):
        return 4
    if any(map(differ, gradients, wanted)):
        return 1
    T = 4 * P + 1
    return 3 if differ(run(T, ring)[0], run(T, right)[0]) else 0


def ring_fault_cases(draw):
    for fault, P in draw.shuffle((fault, P) for fault in range(6) for P in (2, 4)):
        tries = f"with {FAULTS[fault]}"
        yield Case(tries, (Ring(fault, P), P), gradient=False)


check_ring_fault = Exercise(
    ring_fault,
    ring_fault_cases,
    stars=3,
    minutes=30,
    section="Pitfalls",
    title="the fault of a ring",
    returns=("fault",),
    library=(ring.ring_attention,),
    mistakes={
        "forward-only": (
            "it compares outputs, but no gradients",
            "return 1 → pass",
        ),
        "lengths-that-divide": (
            "it tries only lengths that 2P divides",
            "T = 4 * P + 1 → T = 4 * P",
        ),
        "no-later-keys": (
            "it does not look whether later positions have an influence",
            "weights.triu(1).any() → False",
        ),
        "missing-or-averaged": (
            "missing keys and averaged parts are confused",
            "return 5 → return 2 + 2 ; return 4 → return 5",
        ),
    },
    hints=(
        "If the values are an identity matrix, the output is the attention weights.",
        "Which weights must be 0, and which must not? Then compare gradients, and "
        "another length.",
    ),
)


def best_grid(
    P: int, M: int, H: int, G: int, D: int, T: int, inside: Link, between: Link
) -> list[int | float]:
    """Return the columns of the fastest grid, and the seconds of its messages."""
    found = []
    for columns in range(1, P + 1):
        if P % columns or H % columns:
            continue
        ranks = P // columns  # of a ring
        shard = T // P * D * 2  # bytes of one head
        every = max(G, columns)  # key-value heads, with copies
        sent = (2 * H + 2 * every) * shard * (columns - 1) // columns
        moved = (ranks - 1) * 2 * (every // columns) * shard * columns
        latency, each = inside if columns <= M else between
        seconds = 4 * (columns - 1) * latency + sent * each
        latency, each = inside if P <= M else between
        seconds += (ranks - 1) * latency + moved * each
        found.append((seconds, columns))
    seconds, columns = min(found)
    return [columns, seconds]


def grid_cases(draw: Draw):
    fast, slow = (2e-6, 3e-12), (2e-5, 2e-11)

    def jitter(link):
        return tuple(x * (1 + draw.whole(0, 9) / 100) for x in link)

    def case(tries, P, M, H, G, T=2**16, inside=fast, between=slow):
        return tries, P, M, H, G, 128, T, jitter(inside), jitter(between)

    yield case("with two ranks in one machine", 2, 2, 4, 4)
    yield case("with 16 ranks in two machines", 16, 8, 64, 8)
    yield case("with 6 heads that 4 ranks do not divide", 4, 4, 6, 6)
    yield case("with fewer key-value heads than ranks", 8, 8, 8, 4)
    yield case("with one key-value head", 8, 8, 32, 1)
    yield case("with a short sequence", 16, 4, 32, 8, T=256)
    yield case("with links that are all equal", 32, 8, 32, 32, between=fast)
    yield case("with 64 ranks in eight machines", 64, 8, 64, 8, T=2**20)


check_best_grid = Exercise(
    best_grid,
    grid_cases,
    stars=3,
    minutes=30,
    section="Gathered keys, and a grid of both",
    title="a grid for a model and a machine",
    returns=("columns and seconds",),
    library=(plan.count_grid_traffic, plan.compare_plans, alltoall.grid_attention),
    mistakes={
        "one-machine": (
            "a row longer than a machine also uses the link between machines",
            "inside if columns <= M else between → inside",
        ),
        "ring-within": (
            "a ring crosses machines if not all ranks are in one, however short it is",
            "inside if P <= M else between → inside if ranks <= M else between",
        ),
        "no-copies": (
            "key-value heads are not repeated if a row has more ranks than there are",
            "max(G, columns) → G",
        ),
        "ring-of-all-heads": (
            "in its ring, a rank has only its columns' part of the key-value heads",
            "(every // columns) → every",
        ),
        "ring-of-own-positions": (
            "after the exchange, a rank has the positions of its whole row",
            "* shard * columns → * shard",
        ),
        "heads-not-divided": (
            "a row whose length does not divide the heads is no grid",
            " or H % columns → ",
        ),
        "bytes-only": (
            "the latency of the messages is missing",
            "4 * (columns - 1) * latency + →  ; (ranks - 1) * latency + → ",
        ),
        "least-bytes": (
            "the grid with the least bytes is chosen; the links differ in speed",
            "found.append((seconds, columns)) → "
            "found.append((sent + moved, columns, seconds)) ; "
            "seconds, columns = min(found) → _, columns, seconds = min(found)",
        ),
    },
    hints=(
        "For each number of columns, add the time of a row and that of a ring.",
        "In a row, a rank sends (columns - 1) / columns of its query, key, value and "
        "output. In a ring, it holds T / ranks positions of its row's share of heads.",
    ),
)
