"""Exercise: find out what is wrong with a Transformer block, by tests.

Source: the faults are those of the chapter's pitfalls
Axes: B batch, T positions, C width, F hidden width
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from attnbook.attention.scaled_dot_product import attend
from attnbook.attention.self_attention import causal_mask
from attnbook.exercises.edit import renumber
from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.faults import describe_fault
from attnbook.exercises.inputs import draw_normal, shuffle_cases

# What can be built into a block, and the number of its fault.
FAULTS = {
    "right": 0,
    "no residual connection": 1,
    "post-norm": 2,
    "no causal mask": 3,
    "statistics over the batch": 4,
    "no norm before the attention": 5,
}


@dataclass
class Block:
    """A pre-norm decoder-only block with or without a fault.

    Called with x (B, T, C), it returns (B, T, C). Its norms have gains of 1 and
    biases of 0.
    """

    built_in: str
    seed: int

    def __call__(self, x: Tensor) -> Tensor:
        """Compute both sublayers, as far as the fault allows."""
        rng, C = torch.Generator().manual_seed(self.seed), x.shape[-1]
        W = [torch.randn(C, C, generator=rng).to(x) / C**0.5 for _ in range(6)]

        def norm(z: Tensor) -> Tensor:
            axis = 0 if self.built_in == "statistics over the batch" else -1
            z = z - z.mean(axis, keepdim=True)
            return z * (z.square().mean(axis, keepdim=True) + 1e-5).rsqrt()

        def attention(z: Tensor) -> Tensor:
            mask = causal_mask(z.shape[1], z.shape[1])
            if self.built_in == "no causal mask":
                mask = torch.ones_like(mask)
            return attend(z @ W[0].T, z @ W[1].T, z @ W[2].T, mask) @ W[3].T

        def network(z: Tensor) -> Tensor:
            return (z @ W[4].T).relu() @ W[5].T

        if self.built_in == "post-norm":
            x = norm(x + attention(x))
            return norm(x + network(x))
        bare = self.built_in == "no norm before the attention"
        y = attention(x if bare else norm(x))
        x = y if self.built_in == "no residual connection" else x + y
        return x + network(norm(x))


def block_fault(block: Callable, x: Tensor) -> int:
    """Return the number of a block's fault, 0 if there is none.

    1: no residual connection around the attention. 2: post-norm. 3: no causal
    mask. 4: the norms mix the sequences of a batch. 5: no norm before the
    attention.

    Args:
        block: x (B, T, C) to (B, T, C).
        x: an example of the input.
    """
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(x.shape, generator=rng)
    usual = block(x)
    other = x.clone()
    other[0] = torch.randn(other[0].shape, generator=rng)
    if not torch.allclose(block(other)[1:], usual[1:], atol=1e-2):
        return 4
    later = x.clone()
    later[:, -1] = torch.randn(later[:, -1].shape, generator=rng)
    if not torch.allclose(block(later)[:, :-1], usual[:, :-1], atol=1e-2):
        return 3
    size = usual.square().mean(-1)
    if torch.allclose(size, torch.ones_like(size), atol=1e-2):
        return 2
    large = block(1000 * x) / 1000
    if torch.allclose(large, torch.zeros_like(x), atol=0.1):
        return 1  # no copy of x arrives
    return 0 if torch.allclose(large, x, atol=0.1) else 5


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """A right block first, then every fault, in any order."""

    def case(built_in: str, constant: bool) -> Case:
        x = draw_normal(rng, 3, 5, 8)
        x = torch.ones_like(x) if constant else x
        what = describe_fault(built_in, FAULTS)
        given = ", given an input of ones" if constant else ""
        seed = int(torch.randint(1000, (), generator=rng))
        name = f"with a block that has {what}{given}"
        return Case(name, (Block(built_in, seed), x))

    kinds = [(kind, constant) for kind in FAULTS for constant in (False, True)]
    return shuffle_cases(tuple(case(*kind) for kind in kinds), rng)


check_block_fault = Exercise(
    title="the fault of a Transformer block",
    stars=3,
    minutes=25,
    section="The Transformer block: post-norm and pre-norm",
    solution=block_fault,
    key_line="later[:, -1] = torch.randn(later[:, -1].shape, generator=rng)",
    returns=("fault",),
    draw=draw,
    mistakes=(
        Mistake(
            "always-right",
            "no fault found",
            "it reports no fault whatever the block is",
            lambda block, x: 0,
        ),
        Mistake(
            "example-only",
            "only the example is tested",
            "it tests only the given example, which may consist of ones; an "
            "input of your own shows more",
            "torch.randn(x.shape, generator=rng) → x",
        ),
        Mistake(
            "batch-not-tested",
            "other sequences not tested",
            "it does not test whether another sequence of the batch changes the output",
            "return 4 → pass",
        ),
        Mistake(
            "future-not-tested",
            "later positions not tested",
            "it does not find out whether a later position changes the "
            "output (adding a constant is no test: the norm subtracts the "
            "mean)",
            "return 3 → pass",
        ),
        Mistake(
            "post-norm-not-tested",
            "size of the outputs not tested",
            "it does not test whether the outputs are normalized, as they are "
            "with post-norm",
            "return 2 → pass",
        ),
        Mistake(
            "norm-not-tested",
            "missing norm not tested",
            "it does not test whether the attention receives normalized "
            "vectors. If it does, its output does not grow with the input",
            "else 5 → else 0",
        ),
        Mistake(
            "small-input",
            "input not enlarged",
            "its test of the norm uses an input of ordinary size. Use a much "
            "larger one, so that nearly all of the output is the residual "
            "connection",
            "block(1000 * x) / 1000 → block(x)",
        ),
        Mistake(
            "swapped",
            "leaks from later positions and from other sequences confused",
            "it confuses faults 3 and 4: a leak from later positions and a "
            "leak from other sequences",
            renumber(block_fault, {3: 4, 4: 3}),
        ),
        Mistake(
            "any-fault",
            "all faults reported as 1",
            "it finds out that there is a fault and reports every fault as 1",
            lambda *given: min(block_fault(*given), 1),
        ),
    ),
)
