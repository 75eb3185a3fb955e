"""Exercise: predict which outputs depend on one input, without computing any.

Source: Vaswani et al. (2017), section 3.2.3, names the three kinds of layers,
    https://arxiv.org/abs/1706.03762
Axes: T positions of x, S positions of the memory
"""

from collections.abc import Sequence

import torch

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_integers, shuffle_cases


def changed_outputs(
    layers: Sequence[str], T: int, S: int, part: str, position: int
) -> list[int]:
    """Return the outputs that can change if one input vector is replaced.

    Args:
        layers: "self", "causal" or "cross", the first layer first. Each takes
            the outputs of the layer before; "cross" also takes the memory.
        T: positions of x.
        S: positions of the memory, at least 2.
        part: where a vector is replaced, in "x" or in the "memory".
        position: which one, counted from 0.
    """
    changed = {position} if part == "x" else set()
    for layer in layers:
        if layer == "cross":
            changed = set(range(T)) if part == "memory" else changed
        elif changed:
            first = 0 if layer == "self" else min(changed)
            changed = set(range(first, T))
    return sorted(changed)


STACKS: tuple[tuple[str, ...], ...] = (
    ("self",),
    ("causal",),
    ("cross",),
    ("causal", "causal"),
    ("self", "self"),
    ("causal", "cross"),
    ("cross", "causal"),
    ("self", "causal"),
    ("causal", "self"),
    ("cross", "self"),
    ("causal", "cross", "causal", "cross"),
)


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One layer and a middle position first; then every stack, any order."""

    def case(layers: tuple[str, ...], part: str, T: int, S: int, at: int):
        stack = " → ".join(layers)
        where = f"vector {at} of `{part}` replaced"
        inputs = [*layers], T, S, part, at
        some = f"layers {stack}" if len(layers) > 1 else f"one {stack} layer"
        return Case(f"with {some}, and {where}", inputs)

    cases = [case(("causal",), "x", 5, 7, 2)]
    for layers in STACKS:
        for part in "x", "memory":
            T, S = draw_integers(rng, 4, 9, 2).tolist()
            last = (T if part == "x" else S) - 1
            at = int(draw_integers(rng, 1, last - 1, 1))
            cases.append(case(layers, part, T, S, at))
    cases.append(case(("causal",), "x", 6, 3, 0))
    cases.append(case(("causal",), "x", 6, 3, 5))
    cases.append(case(("cross",), "memory", 3, 8, 7))
    return shuffle_cases(tuple(cases), rng)


check_changed_outputs = Exercise(
    title="which outputs depend on an input",
    stars=2,
    minutes=15,
    section="Self-, causal and cross-attention side by side",
    solution=changed_outputs,
    returns=("changed",),
    draw=draw,
    mistakes=(
        Mistake(
            "causal-backwards",
            "earlier outputs of a causal layer",
            "in a causal layer it lists the outputs up to the replaced "
            "position; position t attends to itself and to earlier positions, "
            "so the replaced vector reaches later outputs",
            'range(first, T) → range(T if layer == "self" else max(changed) + 1)',
        ),
        Mistake(
            "not-itself",
            "own output left out",
            "in a causal layer it lists only the outputs after the replaced "
            "position; a position also attends to itself",
            "else min(changed) → else min(changed) + 1",
        ),
        Mistake(
            "causal-as-self",
            "causal mask ignored",
            "it treats a causal layer like one without a mask, where every "
            "output depends on every input",
            '0 if layer == "self" else min(changed) → 0',
        ),
        Mistake(
            "self-as-causal",
            "causal mask where there is none",
            "it treats self-attention without a mask like causal attention",
            '0 if layer == "self" else min(changed) → min(changed)',
        ),
        Mistake(
            "own-output-only",
            "attention left out",
            "it lists only the output at the replaced position, as if no "
            "position attended to another",
            "set(range(first, T)) → changed",
        ),
        Mistake(
            "query-reaches-all",
            "queries mixed by cross-attention",
            "all outputs are listed; a query of cross-attention changes only "
            "its own output, because keys and values come from the memory",
            "else changed → else set(range(T))",
        ),
        Mistake(
            "memory-is-causal",
            "causal mask on the memory",
            "it lists only the outputs from the position of the replaced "
            "memory vector on; cross-attention has no causal mask",
            "set(range(T)) if → set(range(position, T)) if",
        ),
        Mistake(
            "memory-is-aligned",
            "memory and output aligned one to one",
            "it lists the output with the number of the replaced memory "
            "vector; every query can attend to every position of the memory",
            "set(range(T)) if → {position} & set(range(T)) if",
        ),
        Mistake(
            "memory-without-cross",
            "memory used without cross-attention",
            "outputs are listed although no layer is cross-attention; then a "
            "replaced memory vector changes nothing",
            "else set() → else set(range(T))",
        ),
        Mistake(
            "first-layer-only",
            "only the first layer followed",
            "it follows the change through the first layer only",
            "in layers → in layers[:1]",
        ),
        Mistake(
            "last-layer-only",
            "only the last layer followed",
            "it follows the change through the last layer only",
            "in layers → in layers[-1:]",
        ),
        Mistake(
            "always-all",
            "all outputs",
            "it always lists all outputs",
            lambda layers, T, S, part, position: list(range(T)),
        ),
        Mistake(
            "all-but-changed",
            "unchanged outputs listed",
            "it lists the outputs that cannot change",
            lambda layers, T, S, part, position: sorted(
                {*range(T)} - {*changed_outputs(layers, T, S, part, position)}
            ),
        ),
        Mistake(
            "memory-length",
            "S outputs instead of T",
            "it returns positions of the memory; there is one output for "
            "each of the T queries",
            lambda layers, T, S, part, position: (
                list(range(S))
                if part == "memory" and "cross" in layers
                else changed_outputs(layers, T, S, part, position)
            ),
        ),
    ),
)
