"""The kernels in Triton's interpreter, against the reference.

`python tests/helpers/interpret.py`, or with the titles of some cases. A process
of its own, for the interpreter is chosen when Triton is imported.

Inputs and outputs lie in a field of NaN: what is read beyond them spoils the
result, what is written beyond them is seen, and so is what is not written. Every
case runs in float32, where a mistake is largest beside rounding. The cases in
IN_HALF run in float16 as well, their programs once more in a random order. What is
found is printed as JSON, a case a line.
"""

import json
import operator
import os
import random
import sys
from contextlib import contextmanager
from functools import cache

os.environ["TRITON_INTERPRET"] = "1"

import torch
from triton.language import core
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter

from attnbook.flash import launch
from attnbook.flash.options import Options
from attnbook.flash.sizes import TileSizes
from flash_cases import CASES, IN_HALF, compute_truth, draw_inputs
from precision import measure_difference

# Tiles that differ both ways, so that no axis can be taken for another.
TILES = TileSizes(16, 32, 4, 1), TileSizes(32, 16, 4, 1)
GUARD = 64
OUTPUTS = []
LIMIT = None  # what an int32 may not pass; None: what it can hold


def allocate_fenced(shape, dtype):
    """Return the whole of a field of NaN, and the room in its middle."""
    numbers = torch.Size(shape).numel()
    whole = torch.full((numbers + 2 * GUARD,), torch.nan, dtype=dtype)
    return whole, whole[GUARD : GUARD + numbers].view(shape)


def allocate(like, *shape, dtype=None):
    whole, inside = allocate_fenced(shape, dtype or like.dtype)
    OUTPUTS.append(whole)
    return inside


def surround_with_nan(x):
    """Return an input in a field of NaN; between its rows is some, too."""
    if not x.is_contiguous():
        return x
    _, wide = allocate_fenced((*x.shape[:-1], x.shape[-1] + 3), x.dtype)
    inside = wide[..., :-3]
    inside.copy_(x)
    return inside


def check_fences():
    """Tell whether every output is whole and nothing around it was written."""
    fields = [x for x in OUTPUTS]
    OUTPUTS.clear()
    around = all(x[:GUARD].isnan().all() and x[-GUARD:].isnan().all() for x in fields)
    return bool(around) and not any(x[GUARD:-GUARD].isnan().any() for x in fields)


def run(inputs, upstream, options):
    output, lse = launch.forward(*inputs, options, TILES[0])
    grads = launch.backward(*inputs, output, lse, upstream, options, TILES[1])
    return output, *grads, lse


class ShuffledPrograms:
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


def measure_case(title, dtype):
    """Return differences from the reference, and whether all else is in order."""
    inputs, upstream = draw_inputs(title, dtype)
    options = CASES[title].options(dtype)
    args = (
        [surround_with_nan(x) for x in inputs],
        surround_with_nan(upstream),
        options,
    )
    ours = run(*args)
    whole = check_fences()
    again = ours
    if dtype == torch.float16:
        with ShuffledPrograms():
            again = run(*args)
        OUTPUTS.clear()
    return {
        "differences": [
            *map(measure_difference, ours[:4], compute_truth(title, dtype))
        ],
        "unharmed": bool(whole),
        "same": all(map(torch.equal, ours, again)),
    }


def measure_far_apart():
    """The same for texts that lie 2³¹ numbers apart, few of them touched."""
    (query, key, value), upstream = draw_inputs("causal", torch.float16)
    whole = torch.empty(2**31 + 4096, dtype=torch.float16)
    far = whole.as_strided(query.shape, (2**31 + 64, *query.stride()[1:]))
    far.copy_(query)
    options = CASES["causal"].options()
    near, away = (run([x, key, value], upstream, options) for x in (query, far))
    OUTPUTS.clear()
    return {"same": all(map(torch.equal, near, away))}


@contextmanager
def limit_int32(limit):
    """In this block, an int32 larger than a limit counts as an overflow."""
    global LIMIT
    LIMIT = limit
    try:
        yield
    finally:
        LIMIT = None


def find_overflow():
    """Run kernels in which only offsets that need 64 bits pass 700.

    Heads lie 69 · 16 = 1,104 numbers apart, the last row of a head begins at
    64 · 16 = 1,024, and the last logsumexp of a head at 15 · 69 = 1,035. Within
    a tile, no offset passes 31 · 16 + 15 = 511.
    """
    rng = torch.Generator().manual_seed(0)
    shapes = [(2, heads, 69, 16) for heads in (8, 4, 4, 8)]
    *inputs, upstream = (
        torch.randn(*x, generator=rng, dtype=torch.float32) for x in shapes
    )
    try:
        with limit_int32(700):
            run(inputs, upstream, Options(causal=True))
    except interpreter.InterpreterError as error:
        if "overflows" not in str(error):
            raise
        return True
    finally:
        OUTPUTS.clear()
    return False


def check_overflow(semantic, left, right, operation):
    """Refuse an int32 that overflows.

    Triton's interpreter builds this test from some ten of its own operations
    for each sum of integers, which was two fifths of the time, and does not
    look at the result unless TRITON_DEBUG is set. Here it is NumPy's
    arithmetic, and an overflow is an error.
    """
    kind = left.type.scalar
    if kind.int_bitwidth >= 64:
        return
    compute = getattr(operator, operation.__name__)
    exact = compute(*(x.handle.data.astype("int64") for x in (left, right)))
    low, high = kind.get_int_min_value(), kind.get_int_max_value()
    if LIMIT is not None and kind.int_bitwidth == 32:
        low, high = -LIMIT, LIMIT
    assert ((low <= exact) & (exact <= high)).all(), f"{kind} overflows"


def prepare_triton():
    """Make the interpreter faster; what it computes and checks stays."""
    call = interpreter.InterpretedFunction.__call__
    prepared = set()

    def fast(self, *args, **more):
        """Prepare Triton's language once a kernel, not once a function."""
        module = self.fn.__module__
        if module.startswith("attnbook") or module in prepared:
            return self.rewrite()(*args, **more)
        prepared.add(module)
        return call(self, *args, **more)

    interpreter.InterpretedFunction.__call__ = fast
    TritonSemantic.binary_op_sanitize_overflow_impl = check_overflow
    find = interpreter._get_np_dtype
    known = cache(find)  # of numbers; pointers and blocks cannot be hashed
    interpreter._get_np_dtype = lambda kind: (
        known if type(kind) is core.dtype else find
    )(kind)


def print_cases(titles, half, measure):
    """Print, for every case and precision, what it came to, a line each."""
    for title in titles:
        for dtype in (torch.float32, torch.float16)[: 1 + (title in half)]:
            text = {"case": title, "dtype": str(dtype)[6:]}
            print(json.dumps(text | measure(title, dtype)), flush=True)


def main():
    prepare_triton()
    launch.allocate = allocate
    if not sys.argv[1:]:
        text = {"case": "far apart", "dtype": "float16"}
        print(json.dumps(text | measure_far_apart()), flush=True)
        text = {"case": "narrow", "dtype": "float32", "overflows": find_overflow()}
        print(json.dumps(text), flush=True)
    print_cases(sys.argv[1:] or CASES, IN_HALF, measure_case)


if __name__ == "__main__":
    main()
