"""Exercise: design inputs that show what kind of memory a layer has.

Source: the memories are those of the chapter: Vaswani et al. (2017), section
    3.2, https://arxiv.org/abs/1706.03762; Schlag et al. (2021), sections 3 and
    4, https://arxiv.org/abs/2102.11174; Yang et al. (2025), section 3.1,
    https://arxiv.org/abs/2412.06464
Axes: S pairs of key and value, D width of query and key, E width of values
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize

from attnbook.exercises.edit import renumber
from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.faults import differ
from attnbook.exercises.inputs import draw_normal, shuffle_cases

KINDS = {
    "softmax attention to all keys": 0,
    "softmax attention to a window": 1,
    "a state to which pairs are added": 2,
    "a state that the delta rule overwrites": 3,
    "a state that decays before a pair is added": 4,
}
LARGEST = 6  # keys of a window


@dataclass
class Memory:
    """A memory of one of five kinds.

    Called with a query (D,), keys (S, D) and values (S, E), which it gets one
    after the other, it returns the value stored for the query (E,).

    Attributes:
        kind: one of `KINDS`.
        window: keys of the window.
        decay: the factor of a state that decays.
    """

    kind: str
    window: int
    decay: float

    def __call__(
        self,
        query: Float[Tensor, " D"],
        keys: Float[Tensor, "S D"],
        values: Float[Tensor, "S E"],
    ) -> Float[Tensor, " E"]:
        """Write all pairs in order, then read.

        Raises:
            ValueError: if a key is longer than 1, or shapes do not fit.
        """
        if len(keys) != len(values) or keys.shape[1:] != query.shape:
            raise ValueError(
                f"a memory needs keys (S, D), values (S, E) and a query (D,), "
                f"but got {tuple(keys.shape)}, {tuple(values.shape)} and "
                f"{tuple(query.shape)}"
            )
        if len(keys) and (longest := float(keys.norm(dim=-1).max())) > 1.001:
            raise ValueError(f"keys have the length 1, but one has {longest:.3g}")
        number = KINDS[self.kind]
        if number < 2:
            first = max(0, len(keys) - self.window) if number else 0
            scores = keys[first:] @ query
            return scores.softmax(-1) @ values[first:]
        state = values.new_zeros(keys.shape[1], values.shape[1])
        for key, value in zip(keys, values, strict=True):
            if number == 3:
                value = value - key @ state
            if number == 4:
                state = self.decay * state
            state = state + torch.outer(key, value)
        return query @ state


def memory_kind(
    memory: Callable, keys: Float[Tensor, "S D"], values: Float[Tensor, "S E"]
) -> int:
    """Return the kind of a memory, as a number.

    0: softmax attention to all keys. 1: softmax attention to a window of at
    most 6 keys. 2: a state to which key valueᵀ is added. 3: a state that the
    delta rule overwrites, with β = 1. 4: a state that decays by a factor
    between 0.6 and 0.9 before key valueᵀ is added. No kind scales its queries.

    Args:
        memory: from a query (D,), keys (S, D) of length 1 and values (S, E),
            which are written in this order, to what it returns (E,).
        keys: an example.
        values: an example.
    """
    key = torch.tensor([1.0, 0.0])
    # One key is written twice: first with the value 1, then with the value 2.
    twice, numbers = torch.stack([key, key]), torch.tensor([[1.0], [2.0]])
    found = float(memory(key, twice, numbers))
    if found > 1.75:  # not their average: the sum is 3, the second value is 2
        return 2 if found > 2.95 else 4 if found > 2.3 else 3
    # Does the average include the first of many values?
    many, values = torch.stack([key] * 20), torch.zeros(20, 1)
    values[0] = 100.0
    return 0 if float(memory(key, many, values)) > 1 else 1


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """Each kind, for few and for many pairs, in any order."""

    def case(kind: str, S: int, window: int) -> Case:
        decay = 0.6 + 0.3 * float(torch.rand((), generator=rng))
        keys = normalize(draw_normal(rng, S, 5), dim=-1)
        inputs = Memory(kind, window, decay), keys, draw_normal(rng, S, 3)
        return Case(f"with {kind}, given {S} pairs", inputs)

    sizes = (2, 3), (9, LARGEST)
    cases = tuple(case(kind, *size) for kind in KINDS for size in sizes)
    return shuffle_cases(cases, rng)


def find_window(memory: Callable) -> int:
    """Return 0 if the first of some values still counts, 1 if it does not."""
    key, values = torch.tensor([1.0, 0.0]), torch.zeros(20, 1)
    values[0] = 100.0
    return 0 if float(memory(key, key.expand(20, 2), values)) > 1 else 1


def read_two(
    memory: Callable, first: int = 0, second: int = 0, query: int = 0
) -> float:
    """Return what a memory returns after the values 1 and 2 are written.

    Args:
        memory: the memory.
        first: the key of the value 1, one of two orthogonal ones.
        second: the key of the value 2.
        query: the key that is read.
    """
    chosen = torch.eye(2)
    values = torch.tensor([[1.0], [2.0]])
    return float(memory(chosen[query], chosen[[first, second]], values))


def write_different_keys(memory, keys, values):
    """Return a kind from two values that are written with two keys."""
    found = read_two(memory, second=1)
    if found > 1.1:
        return find_window(memory)
    return 2 if found > 0.95 else 4


def write_equal_values(memory, keys, values):
    """Return a kind from one value that is written twice."""
    key = torch.tensor([1.0, 0.0])
    found = float(memory(key, key.expand(2, 2), torch.ones(2, 1)))
    if found < 1.05:
        return find_window(memory)
    return 2 if found > 1.95 else 4


def read_unwritten(memory, keys, values):
    """Return a kind from what is read of a key that was not written."""
    return find_window(memory) if read_two(memory, query=1) > 0.5 else 2


def compare_example(memory, keys, values):
    """Return the first kind that agrees with a memory on the example."""
    found = memory(keys[0], keys, values)
    for kind, number in KINDS.items():
        for window in range(3, LARGEST + 1):
            other = Memory(kind, window, 1.0)(keys[0], keys, values)
            if not differ(found, other):
                return number
    return 4


check_memory_kind = Exercise(
    title="inputs that show what kind of memory a layer has",
    stars=3,
    minutes=20,
    section="The state as a memory: capacity and interference",
    solution=memory_kind,
    key_line="twice, numbers = torch.stack([key, key]), torch.tensor([[1.0], [2.0]])",
    returns=("kind",),
    draw=draw,
    mistakes=(
        Mistake(
            "no-input",
            "no input of one's own",
            "it answers 0 whatever the memory returns",
            lambda memory, keys, values: 0,
        ),
        Mistake(
            "example-only",
            "only the example tried",
            "it tries only the given pairs. A window that holds all of them "
            "looks like attention to all keys; write more pairs than 6",
            compare_example,
        ),
        Mistake(
            "different-keys",
            "no key written twice",
            "it writes each key once. A sum and the delta rule then return the "
            "same; write a second value with the same key",
            write_different_keys,
        ),
        Mistake(
            "same-value",
            "same value written twice",
            "it writes the same value twice. Their average and what the delta "
            "rule keeps are then equal; write two different values",
            write_equal_values,
        ),
        Mistake(
            "unwritten-key",
            "key read that was not written",
            "it reads a key that was not written. A softmax returns an average "
            "even then, but every state returns 0",
            read_unwritten,
        ),
        Mistake(
            "no-window",
            "window not tested",
            "it does not test for a window: write many pairs, and find out "
            "whether the first one still counts",
            "[key] * 20), torch.zeros(20, 1) → [key] * 2), torch.zeros(2, 1)",
        ),
        Mistake(
            "too-few-pairs",
            "too few pairs for a window",
            "it writes too few pairs: a window of 6 keys still holds the first of them",
            "[key] * 20), torch.zeros(20, 1) → [key] * 5), torch.zeros(5, 1)",
        ),
        Mistake(
            "decay-as-sum",
            "decay taken for a sum",
            "it takes a state that decays for a sum: the first value counts, "
            "but less than the second",
            renumber(memory_kind, {4: 2}),
        ),
        Mistake(
            "decay-as-overwriting",
            "decay taken for overwriting",
            "it takes a state that decays for the delta rule: with β = 1, the "
            "delta rule leaves nothing of the first value",
            renumber(memory_kind, {4: 3}),
        ),
        Mistake(
            "states-swapped",
            "sum and delta rule confused",
            "it confuses kinds 2 and 3: a sum returns both values added up, "
            "the delta rule the second one",
            renumber(memory_kind, {2: 3, 3: 2}),
        ),
        Mistake(
            "windows-swapped",
            "window and all keys confused",
            "it confuses kinds 0 and 1: in attention to all keys, the first "
            "value still counts after many pairs",
            renumber(memory_kind, {0: 1, 1: 0}),
        ),
        Mistake(
            "counted-from-one",
            "kinds counted from 1",
            "its numbers are one too high: the first kind is 0",
            lambda *given: memory_kind(*given) + 1,
        ),
    ),
)
