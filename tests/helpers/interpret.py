"""The kernels in Triton's interpreter, against the reference.

`python tests/helpers/interpret.py`, or with the titles of some cases. A process
of its own, for the interpreter is chosen when Triton is imported.

Inputs and outputs lie in a field of NaN: what is read beyond them spoils the
result, what is written beyond them is seen, and so is what is not written. The
programs run in order, and once more in a random one. What is found is printed
as JSON, a case a line.
"""

import importlib.util
import json
import operator
import os
import random
import re
import sys
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

os.environ["TRITON_INTERPRET"] = "1"

import torch
import triton
import triton.language as tl
from triton.language import core
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter

from attnbook.flash import backward, forward, launch, tile
from attnbook.flash.options import Options
from attnbook.flash.sizes import TileSizes
from flash_cases import CASES, draw_inputs, measure_error_shares

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
    """Return shares of the error budget, and whether all else is in order."""
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
        "shares": measure_error_shares(title, dtype, ours[:4]),
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


CAST = re.compile(r"tl\.cast\((\w+), tl\.int64\)|\.to\(tl\.int64\)")


def list_casts(modules=(forward, backward, tile)):
    """Yield a name of every conversion to 64 bits, and the kernels without it.

    The kernels are the module, and its text in which only this one is left out.
    """
    for module in modules:
        text = Path(module.__file__).read_text("utf8")
        for found in CAST.finditer(text):
            line = text.count("\n", 0, found.start())
            name = f"{module.__name__}: {text.splitlines()[line].strip()}"
            rest = text[found.end() :]
            yield (
                f"{name}, at {found.start()}",
                module,
                text[: found.start()] + (found[1] or "") + rest,
            )


@contextmanager
def replace_functions(module, text):
    """In this block, a module's functions are those of another text."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / f"{module.__name__.rpartition('.')[2]}.py"
        file.write_text(text, "utf8")
        spec = importlib.util.spec_from_file_location(module.__name__, file)
        other = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(other)
        kept = []
        for name, function in vars(module).items():
            if isinstance(function, interpreter.InterpretedFunction):
                kept.append((function, function.fn, function.rewriter))
                changed = getattr(other, name)
                function.fn, function.rewriter = changed.fn, changed.rewriter
        try:
            yield
        finally:
            for function, before, rewriter in kept:
                function.fn, function.rewriter = before, rewriter


def measure_narrow():
    """Tell whether offsets overflow, and whether they do without each cast."""
    without = {}
    for name, module, text in list_casts():
        with replace_functions(module, text):
            without[name] = find_overflow()
    return {"overflows": find_overflow(), "without": without}


@triton.jit
def store_ranges(
    out, first, T, S, length, window,
    BLOCK_T: tl.constexpr, BLOCK_S: tl.constexpr, CAUSAL: tl.constexpr,
    OWN_KEYS: tl.constexpr,
):  # fmt: skip
    ranges = tile.query_ranges if OWN_KEYS else tile.key_ranges
    found = ranges(first, T, S, length, window, BLOCK_T, BLOCK_S, CAUSAL)
    for i in tl.static_range(4):
        tl.store(out + i, found[i])


def find_wrong_ranges(T, S, length, window, causal, own_keys):
    """Yield what is wrong about the ranges of tiles, from the mask itself.

    Tiles are of 4 queries and 3 keys. A tile without a mask must contain
    allowed pairs only; if a whole tile does, it must not be masked; and no
    allowed pair may be left out.
    """
    position, key = torch.arange(T)[:, None] + S - T, torch.arange(S)
    allowed = torch.ones(T, S, dtype=torch.bool)
    if causal:
        allowed = (key <= position) & (key > position - window)
    # Keys that are padding are no concern of the programs that own keys.
    seen = (allowed if own_keys else allowed & (key < length)).int()
    seen = seen.mT if own_keys else seen
    rows, columns = (3, 4) if own_keys else (4, 3)
    out = torch.zeros(4, dtype=torch.int32)
    for first in range(0, len(seen), rows):
        store_ranges[(1,)](out, first, T, S, length, window, 4, 3, causal, own_keys)
        begin, inside, outside, end = out.tolist()
        some = seen[first : first + rows]
        if own_keys and first >= length:
            if end > begin:
                yield first, "padding is computed"
            continue
        if some[:, :begin].any() or some[:, max(end, 0) :].any():
            yield first, "pairs are left out"
        for low in range(begin, end, columns):
            pairs = some[:, low : low + columns]
            whole = pairs.numel() == rows * columns or not own_keys
            whole = whole and pairs.shape[1] == columns
            if inside <= low < outside:
                if not (pairs.all() and pairs.shape[1] == columns):
                    yield first, low, "no mask, but a pair is forbidden"
            elif whole and pairs.all():
                yield first, low, "a mask that is not needed"


def measure_ranges():
    wrong = [
        (T, S, length, window, causal, own_keys, *found)
        for T, S in ((13, 13), (5, 17), (17, 5), (12, 24), (1, 9))
        for length in (0, 1, S - 2, S)
        for window in (1, 4, S)
        for causal in (True, False)
        for own_keys in (True, False)
        for found in find_wrong_ranges(T, S, length, window, causal, own_keys)
    ]
    return {"wrong": wrong}


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


def print_cases(titles, measure):
    """Print, for every case and precision, what it came to, a line each."""
    for title in titles:
        for dtype in (torch.float32, torch.float16):
            text = {"case": title, "dtype": str(dtype)[6:]}
            print(json.dumps(text | measure(title, dtype)), flush=True)


def main():
    prepare_triton()
    launch.allocate = allocate
    asked = sys.argv[1:] or CASES
    if not sys.argv[1:]:
        text = {"case": "far apart", "dtype": "float16"}
        print(json.dumps(text | measure_far_apart()), flush=True)
        text = {"case": "ranges", "dtype": "int32"}
        print(json.dumps(text | measure_ranges()), flush=True)
        text = {"case": "narrow", "dtype": "float32"}
        print(json.dumps(text | measure_narrow()), flush=True)
    print_cases(asked, measure_case)


if __name__ == "__main__":
    main()
