"""Exercise: find out what is wrong with chunked linear attention, by tests.

Source: the faults are those of the chapter's pitfalls
Axes: T positions, D width of query and key, E width of values
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from attnbook.attention.feature_maps import elu_plus_one
from attnbook.exercises.edit import renumber
from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.faults import (
    NEVER_FOUND,
    describe_fault,
    differ,
    list_number_mistakes,
)
from attnbook.exercises.inputs import draw_normal, shuffle_cases

# What can be built in, and the number of its fault.
FAULTS = {
    "right": 0,
    "divisor from all keys": 1,
    "new token not counted": 2,
    "divisor summed over the features": 3,
    "state not carried into the next chunk": 4,
    "state of the last call kept": 5,
    "state detached between chunks": 6,
}
LONGEST = 8  # positions of a chunk


@dataclass
class ChunkedAttention:
    """Causal linear attention in chunks, with or without a fault.

    Called with query (T, D), key (T, D) and value (T, E), it returns (T, E).

    Attributes:
        built_in: one of `FAULTS`.
        chunk: positions of a chunk.
        memory: state and normalizer of the last call.
    """

    built_in: str
    chunk: int
    memory: tuple[Tensor, ...] = field(default=(), compare=False)

    def __call__(
        self,
        query: Float[Tensor, "T D"],
        key: Float[Tensor, "T D"],
        value: Float[Tensor, "T E"],
    ) -> Float[Tensor, "T E"]:
        """Attend chunk by chunk, as far as the fault allows.

        Raises:
            ValueError: if there is not one query, key and value a position.
        """
        if query.shape != key.shape or len(value) != len(key):
            raise ValueError(
                f"queries and keys need the same shape (T, D), and there is "
                f"one value a key, but the shapes are {tuple(query.shape)}, "
                f"{tuple(key.shape)} and {tuple(value.shape)}"
            )
        phi_query, phi_key = elu_plus_one(query), elu_plus_one(key)
        everything = phi_key.sum(dim=0)
        state = phi_key.new_zeros(key.shape[1], value.shape[1])
        normalizer = torch.zeros_like(everything)
        kept = self.built_in == "state of the last call kept" and self.memory
        if kept and self.memory[0].shape == state.shape:
            state, normalizer = self.memory
        outputs = [value[:0]]
        for q, k, v in zip(
            *(x.split(self.chunk) for x in (phi_query, phi_key, value)),
            strict=True,
        ):
            sums = normalizer + k.cumsum(dim=0)
            if self.built_in == "divisor from all keys":
                sums = everything.expand_as(k)
            outputs.append(self.attend_chunk(q, k, v, state, sums))
            state, normalizer = self.carry(state + k.mT @ v, normalizer + k.sum(dim=0))
        self.memory = state.detach(), normalizer.detach()
        return torch.cat(outputs)

    def attend_chunk(
        self, q: Tensor, k: Tensor, v: Tensor, state: Tensor, sums: Tensor
    ) -> Tensor:
        """Return the outputs of one chunk, from features and values."""
        counted = 0
        if self.built_in == "new token not counted":
            counted, sums = -1, sums - k
        summed = q @ state + (q @ k.mT).tril(counted) @ v
        divisor = (q * sums).sum(dim=-1, keepdim=True)
        if self.built_in == "divisor summed over the features":
            divisor = q.sum(-1, keepdim=True) * sums.sum(-1, keepdim=True)
        empty = divisor.abs() < 1e-6
        return (summed / divisor.masked_fill(empty, 1.0)).masked_fill(empty, 0)

    def carry(self, state: Tensor, normalizer: Tensor) -> tuple[Tensor, Tensor]:
        """Return what the next chunk begins with."""
        if self.built_in == "state not carried into the next chunk":
            return torch.zeros_like(state), torch.zeros_like(normalizer)
        if self.built_in == "state detached between chunks":
            return state.detach(), normalizer.detach()
        return state, normalizer


def linear_fault(
    attention: Callable,
    query: Float[Tensor, "T D"],
    key: Float[Tensor, "T D"],
    value: Float[Tensor, "T E"],
) -> int:
    """Return the number of the fault of causal linear attention, 0 if none.

    1: the divisor sums over all keys, later ones too. 2: a position's own
    token is not counted. 3: the divisor sums over the features of query and
    key separately. 4: the state is not carried into the next chunk. 5: the
    state of the last call is kept. 6: the state is detached between chunks, so
    no gradient reaches earlier chunks.

    Args:
        attention: from query (T, D), key (T, D) and value (T, E) to the output
            (T, E). It works in chunks of at most 8 positions.
        query: an example.
        key: an example.
        value: an example.
    """
    # With queries and keys of zeros, all weights are equal, and values that are
    # an identity matrix make the output the weights.
    n, width = 20, 3
    zero, one = torch.zeros(n, width), torch.eye(n, requires_grad=True)
    weights = attention(zero, zero, one)
    if differ(attention(zero, zero, one)[0], weights[0]):
        return 5
    own = {1: 1 / n, 2: 0.0, 3: 1 / width}  # the first position's; else 1
    for number, weight in own.items():
        if not differ(weights[0, 0], torch.tensor(weight)):
            return number
    if differ(weights[-1], torch.full((n,), 1 / n)):
        return 4
    (gradient,) = torch.autograd.grad(weights[-1].sum(), one)
    return 0 if gradient[0].any() else 6


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """Right attention first, then every fault, for a short and a long input."""

    def case(built_in: str, T: int) -> Case:
        chunk = int(torch.randint(4, LONGEST + 1, (), generator=rng))
        D = int(torch.randint(2, 6, (), generator=rng))
        numbers = (draw_normal(rng, T, width) for width in (D, D, 4))
        what = describe_fault(built_in, FAULTS)
        inputs = ChunkedAttention(built_in, chunk), *numbers
        return Case(f"with {what}, given {T} positions", inputs)

    cases = tuple(case(kind, T) for kind in FAULTS for T in (3, 12))
    return shuffle_cases(cases, rng)


check_linear_fault = Exercise(
    title="the fault of chunked linear attention",
    stars=3,
    minutes=25,
    section="Recurrent and chunked linear attention",
    solution=linear_fault,
    key_line="zero, one = torch.zeros(n, width), torch.eye(n, requires_grad=True)",
    returns=("fault",),
    draw=draw,
    mistakes=(
        Mistake(
            "example-length",
            "only the example's length tried",
            "it tries only as many positions as the example has. Where they "
            "fit into one chunk, nothing is carried from chunk to chunk; make "
            "an input of more than 8 positions",
            "n, width = 20, 3 → n, width = len(query), 2",
        ),
        Mistake(
            "one-call",
            "function called once",
            "it does not find out whether two calls with the same inputs give "
            "the same output, so it cannot notice a state that is kept",
            "return 5 → pass",
        ),
        Mistake(
            "no-gradient",
            "gradient not tested",
            "it compares only outputs. A detached state has the right outputs; "
            "only the gradient of an early value shows it",
            "else 6 → else 0",
        ),
        Mistake(
            "divisor-not-tested",
            "divisor not tested",
            "it does not test the divisor: the weights of each position should "
            "sum to 1, those of the first position as well",
            "own = {1: 1 / n, 2: 0.0, 3: 1 / width} → own = {2: 0.0}",
        ),
        Mistake(
            "own-token-not-tested",
            "own token not tested",
            "it does not test whether a position attends to its own token. "
            "The first position has no other",
            "2: 0.0, → ",
        ),
        Mistake(
            "last-position-only",
            "only the last position compared",
            "it compares only the weights of the last position. There, all "
            "keys are past keys, so a divisor from all keys is right",
            "own = {1: 1 / n, 2: 0.0, 3: 1 / width} → own = {}",
        ),
        Mistake(
            "values-not-compared",
            "weights of earlier chunks not compared",
            "it does not compare the weights of earlier chunks. The gradient "
            "is zero for a state that is detached, and for one that is not "
            "carried",
            "return 4 → pass",
        ),
        Mistake(
            "first-chunk-only",
            "only the first chunk tested",
            "it tests only the first chunk, in which no state is carried",
            ("return 4 → pass", "else 6 → else 0"),
        ),
        Mistake(
            "divisors-swapped",
            "two divisors confused",
            "it confuses faults 1 and 3: a sum over all keys depends on the "
            "length, a sum over the features on the width",
            renumber(linear_fault, {1: 3, 3: 1}),
        ),
        Mistake(
            "states-swapped",
            "dropped and detached state confused",
            "it confuses faults 4 and 6: without the state the outputs are "
            "wrong; with a detached state only gradients are",
            renumber(linear_fault, {4: 6, 6: 4}),
        ),
        NEVER_FOUND,
        *list_number_mistakes(linear_fault),
    ),
)
