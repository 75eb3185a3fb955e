"""The kernels in Triton's interpreter, against the law.

`python tests/interpret.py`, or with the titles of some cases. A process of its
own, for the interpreter is chosen when Triton is imported.

Inputs and outputs lie in a field of NaN: what is read beyond them spoils the
result, what is written beyond them is seen, and so is what is not written. The
programs run in order, and once more in a random one. What is found is printed
as JSON, a case a line.
"""

import json
import os
import random
import sys
from functools import partial

os.environ["TRITON_INTERPRET"] = "1"

import torch
from triton.runtime import interpreter

from attnbook.budget import share_of_budget
from attnbook.flash import launch
from attnbook.flash.sizes import Sizes
from flash_cases import CASES, drawn, law, with_gradients

# Tiles that differ both ways, so that no axis can be taken for another.
TILES = Sizes(16, 32, 4, 1), Sizes(32, 16, 4, 1)
GUARD = 64
OUTPUTS = []


def fenced(shape, dtype):
    """Return the whole of a field of NaN, and the room in its middle."""
    numbers = torch.Size(shape).numel()
    whole = torch.full((numbers + 2 * GUARD,), torch.nan, dtype=dtype)
    return whole, whole[GUARD : GUARD + numbers].view(shape)


def room(like, *shape, dtype=None):
    whole, inside = fenced(shape, dtype or like.dtype)
    OUTPUTS.append(whole)
    return inside


def among_nan(x):
    """Return an input in a field of NaN; between its rows is some, too."""
    if not x.is_contiguous():
        return x
    _, wide = fenced((*x.shape[:-1], x.shape[-1] + 3), x.dtype)
    inside = wide[..., :-3]
    inside.copy_(x)
    return inside


def unharmed():
    """Tell whether every output is whole and nothing around it was written."""
    fields = [x for x in OUTPUTS]
    OUTPUTS.clear()
    around = all(
        x[:GUARD].isnan().all() and x[-GUARD:].isnan().all() for x in fields
    )
    return bool(around) and not any(
        x[GUARD:-GUARD].isnan().any() for x in fields
    )


def run(inputs, upstream, options):
    output, lse = launch.forward(*inputs, options, TILES[0])
    grads = launch.backward(*inputs, output, lse, upstream, options, TILES[1])
    return output, *grads, lse


class Shuffled:
    """In this block, the programs of a grid run in a random order."""

    def __enter__(self):
        builder = interpreter.interpreter_builder
        self.before = builder.set_grid_idx
        orders = {}

        def place(x, y, z):
            count = builder.grid_dim[0]
            if count not in orders:
                orders[count] = random.Random(count).sample(range(count), count)
            self.before(orders[count][x], y, z)

        builder.set_grid_idx = place

    def __exit__(self, *_):
        interpreter.interpreter_builder.set_grid_idx = self.before


def share(ours, plains, truth, upstream, value):
    """Return the share of the budget, also of a gradient that is nothing.

    Of one key the scores have no gradient: two equal numbers are subtracted,
    and what is left is how each was rounded.
    """
    if truth.any():
        return min(share_of_budget(ours, plain, truth) for plain in plains)
    size = upstream.double().abs().max() * value.double().abs().sum(-1).max()
    return float(ours.abs().max() / size) / torch.finfo(torch.float32).eps


def found(title, dtype):
    """Return shares of the error budget, and whether all else is in order."""
    inputs, upstream = given = drawn(title, dtype)
    options = CASES[title].options(dtype)
    args = [among_nan(x) for x in inputs], among_nan(upstream), options
    ours = run(*args)
    whole = unharmed()
    again = ours
    if dtype == torch.float16:
        with Shuffled():
            again = run(*args)
        OUTPUTS.clear()
    plains = [
        with_gradients(partial(law, options=options, seed=seed), *given)
        for seed in (None, 0, 1, 2)
    ]
    wide = CASES[title].options(torch.float64)
    truth = with_gradients(
        lambda *x: law(*x, wide), [x.double() for x in inputs],
        upstream.double(),
    )  # fmt: skip
    orders = zip(*plains, strict=True)
    return {
        "shares": [
            share(*each, upstream, inputs[2])
            for each in zip(ours[:4], orders, truth, strict=True)
        ],
        "unharmed": bool(whole),
        "same": all(map(torch.equal, ours, again)),
    }


def far_apart():
    """The same for texts that lie 2³¹ numbers apart, few of them touched."""
    (query, key, value), upstream = drawn("causal", torch.float16)
    whole = torch.empty(2**31 + 4096, dtype=torch.float16)
    far = whole.as_strided(query.shape, (2**31 + 64, *query.stride()[1:]))
    far.copy_(query)
    options = CASES["causal"].options()
    near, away = (run([x, key, value], upstream, options) for x in (query, far))
    OUTPUTS.clear()
    return {"same": all(map(torch.equal, near, away))}


def hurry():
    """Prepare Triton's language once a kernel, not once a function of ours."""
    call = interpreter.InterpretedFunction.__call__

    def fast(self, *args, **more):
        if self.fn.__module__.startswith("attnbook"):
            return self.rewrite()(*args, **more)
        return call(self, *args, **more)

    interpreter.InterpretedFunction.__call__ = fast


def main():
    hurry()
    launch.room = room
    asked = sys.argv[1:] or CASES
    if not sys.argv[1:]:
        told = {"case": "far apart", "dtype": "float16"}
        print(json.dumps(told | far_apart()), flush=True)
    for title in asked:
        for dtype in (torch.float32, torch.float16):
            told = {"case": title, "dtype": str(dtype)[6:]}
            print(json.dumps(told | found(title, dtype)), flush=True)


if __name__ == "__main__":
    main()
