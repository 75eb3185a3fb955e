"""Exercise: predict KV cache, batch size and bytes of decoding.

Source: the step of decoding that the chapter counts
Axes: L blocks, G groups (key-value heads), D width of a head, S positions
"""

import torch

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_integers


def decoding_cost(
    weights: int,
    L: int,
    G: int,
    D: int,
    S: int,
    itemsize: int,
    memory: int,
) -> list[int]:
    """Return what decoding costs in bytes.

    In this order: bytes of the KV cache of one sequence; how many such
    sequences fit into memory beside the weights; bytes that a step must read
    to generate one token of each of them.
    """
    cache = 2 * L * G * D * S * itemsize
    sequences = (memory - weights * itemsize) // cache
    return [cache, sequences, weights * itemsize + sequences * cache]


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One head of width 1; a small model; a large one; other precisions."""

    def drawn(low: int, high: int) -> int:
        return int(draw_integers(rng, low, high, 1))

    def case(name: str, itemsize: int) -> Case:
        L, G, D, S = drawn(5, 9), drawn(2, 5), drawn(10, 20), drawn(50, 90)
        weights, cache = drawn(9000, 20_000), 2 * L * G * D * S * itemsize
        room = drawn(20, 60) * cache + drawn(cache // 4, cache // 2)
        memory = weights * itemsize + room
        return Case(name, (weights, L, G, D, S, itemsize, memory))

    return (
        Case(
            "with one weight and one head of width 1",
            (1, 1, 1, 1, 1, 1, 7),
        ),
        case("with 1 byte per number", 1),
        case("with 2 bytes per number", 2),
        case("with 4 bytes per number", 4),
        Case(
            "with a model of 8 billion weights",
            (8 * 10**9, 32, 8, 128, 8192, 2, 80 * 10**9),
        ),
    )


check_decoding_cost = Exercise(
    title="KV cache, batch size and bytes of decoding",
    stars=2,
    minutes=15,
    section="Prefill, decode and the KV cache",
    solution=decoding_cost,
    returns=("costs",),
    draw=draw,
    allowed="Everything is allowed but `attnbook.profiling`.",
    mistakes=(
        Mistake(
            "cache-of-keys",
            "only keys cached",
            "the cache is counted for keys alone; the values are cached too",
            "2 * L * G → L * G",
        ),
        Mistake(
            "cache-of-one-block",
            "cache of one block",
            "the cache is counted for one block; each of the L blocks has its own",
            "2 * L * G → 2 * G",
        ),
        Mistake(
            "elements",
            "elements instead of bytes",
            "the elements of the cache are counted, not its bytes",
            "D * S * itemsize → D * S",
        ),
        Mistake(
            "no-room-for-weights",
            "weights take no memory",
            "the weights are not subtracted from the memory, but they lie in "
            "the same memory as the cache",
            "memory - weights * itemsize → memory",
        ),
        Mistake(
            "weights-as-bytes",
            "one byte for each weight",
            "every weight is assumed to take one byte",
            (
                "memory - weights * itemsize → memory - weights",
                "sequences, weights * itemsize → sequences, weights",
            ),
        ),
        Mistake(
            "rounded-up",
            "one sequence too many",
            "the number of sequences is rounded up; the last one does not fit",
            "(memory - weights * itemsize) // cache "
            "→ -((weights * itemsize - memory) // cache)",
        ),
        Mistake(
            "cache-not-read",
            "only the weights read",
            "the last number counts only the weights; each step reads the "
            "whole KV cache as well",
            "itemsize + sequences * cache → itemsize",
        ),
        Mistake(
            "weights-not-read",
            "only the cache read",
            "the last number counts only the cache; each step reads all "
            "weights as well",
            "weights * itemsize + sequences → sequences",
        ),
        Mistake(
            "weights-for-every-sequence",
            "weights read for every sequence",
            "the weights are counted once for every sequence; one step reads "
            "them once for the whole batch",
            "sequences, weights → sequences, sequences * weights",
        ),
        Mistake(
            "one-sequence",
            "cache of one sequence read",
            "the last number counts the cache of one sequence; a step reads "
            "those of all sequences",
            "itemsize + sequences * cache → itemsize + cache",
        ),
        Mistake(
            "one-position",
            "cache of one position read",
            "the last number counts one position of the cache; a query "
            "attends to all S positions",
            "sequences * cache] → sequences * cache // S]",
        ),
    ),
)
