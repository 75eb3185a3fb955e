"""The kernels in Triton's interpreter, against the reference.

`python tests/helpers/interpret.py` is a process of its own, for the interpreter is
chosen when Triton is imported.

Inputs and outputs lie in a field of NaN: what is read beyond them spoils the
result, what is written beyond them is seen, and so is what is not written. Every
case runs in float32, where a mistake is largest beside rounding. The cases in
IN_HALF run in float16 as well. What is found is printed as JSON, a case a line.
"""

import json
import math
import os
from dataclasses import replace

os.environ["TRITON_INTERPRET"] = "1"

import torch
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter

import decoding_cases
import flash_cases
from attnbook.flash import decoding_kernels, launch
from attnbook.flash.options import Options
from attnbook.flash.sizes import TileSizes
from kernel_runs import list_runs
from precision import measure_difference

# Tiles that differ both ways, so that no axis can be taken for another. Where
# strides allow, as of "heads inside", descriptors load whole tiles forwards.
TILES = TileSizes(16, 32, 4, 1, descriptors=True), TileSizes(32, 16, 4, 1)
# Twenty heads a group need two tiles of 16 rows.
DECODING_TILE = TileSizes(16, 16, 4, 1)
GUARD = 64
OUTPUTS = []


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


def check_fences(whole=True):
    """Tell whether nothing around the outputs was written, and all of each was."""
    fields = list(OUTPUTS)
    OUTPUTS.clear()
    around = all(x[:GUARD].isnan().all() and x[-GUARD:].isnan().all() for x in fields)
    missing = whole and any(x[GUARD:-GUARD].isnan().any() for x in fields)
    return bool(around) and not missing


def report(case, found, truth, dtype):
    """Print the difference from the reference, and whether the fences stand."""
    difference = max(map(measure_difference, found, truth))
    text = {"case": case, "dtype": str(dtype)[6:], "difference": difference}
    print(json.dumps(text | {"unharmed": check_fences()}), flush=True)


def run_decoding(given, case, parts=None):
    query, key, value, lengths, table = given
    scale = case.D**-0.5 if case.scale is None else case.scale
    more = scale, parts or case.parts, DECODING_TILE
    return decoding_kernels.decode(query, key, value, lengths, table, *more)


def report_attention():
    """With a gradient of the logsumexp, some cases once more."""
    runs = [(*run, False) for run in list_runs(flash_cases)]
    runs += [(title, "float32", True) for title in flash_cases.WITH_LSE]
    for title, name, with_lse in runs:
        dtype = getattr(torch, name)
        inputs, upstream = flash_cases.draw_inputs(title, dtype)
        *given, upstream = map(surround_with_nan, (*inputs, upstream))
        options = flash_cases.CASES[title].options(dtype)
        output, lse = launch.forward(*given, options, TILES[0])
        more = upstream, options, TILES[1], upstream[..., 0] if with_lse else None
        grads = launch.backward(*given, output, lse, *more)
        if with_lse:
            output = torch.cat([output, lse[..., None] * math.log(2)], dim=-1)
        truth = flash_cases.compute_truth(title, dtype, with_lse)
        report("lse: " * with_lse + title, (output, *grads), truth, dtype)


def report_packed():
    """Each kernel once for all sequences; rows after the last one get zeros.

    In half precision, descriptors load whole tiles.
    """
    packing = flash_cases.QUERY_OFFSETS, flash_cases.KEY_OFFSETS
    for title, options in flash_cases.PACKED.items():
        for dtype in (torch.float32, torch.float16):
            *inputs, upstream = (
                surround_with_nan(x).transpose(0, 1)[None]
                for x in flash_cases.draw_packed(dtype, more=3)
            )
            tile = replace(TILES[0], descriptors=dtype == torch.float16)
            described = launch.describe_tile(inputs[1], tile)
            assert (described is None) == (dtype == torch.float32)
            output, lse = launch.forward(*inputs, options, tile, packing)
            more = upstream, options, TILES[1], upstream[..., 0], packing
            grads = launch.backward(*inputs, output, lse, *more)
            lse = (lse[..., None] * math.log(2)).nan_to_num(neginf=-9.0)
            found = torch.cat([output.float(), lse], dim=-1), *grads
            truth = flash_cases.compute_packed_truth(title, dtype, more=3)
            report(title, [x[0].transpose(0, 1) for x in found], truth, dtype)


def report_decoding():
    for title, name in list_runs(decoding_cases):
        dtype = getattr(torch, name)
        case = decoding_cases.CASES[title]
        query, key, value = decoding_cases.draw_inputs(title, dtype)
        lengths = None if case.lengths is None else case.known_lengths
        cached = [decoding_cases.spoil(x, case.known_lengths) for x in (key, value)]
        *pools, table = decoding_cases.scatter_into_pages(title, key, value)
        query, *cached = map(surround_with_nan, (query, *cached))
        calls = {
            "cache": (query, *cached, lengths, None),
            "pages": (query, *map(surround_with_nan, pools), case.known_lengths, table),
        }
        for way, given in calls.items():
            truth = [decoding_cases.compute_truth(title, dtype)]
            report(f"{way}: {title}", [run_decoding(given, case)], truth, dtype)


def check_bounds():
    """Tell whether numbers outside the pool and lengths outside the pages are bounded.

    The kernels read no memory outside the pool, which is surrounded by NaN.
    """
    rng = torch.Generator().manual_seed(0)
    query, key, value = (
        surround_with_nan(torch.randn(*shape, generator=rng))
        for shape in ((2, 2, 1, 16), (3, 1, 5, 16), (3, 1, 5, 16))
    )
    case = decoding_cases.CASES["page of five"]
    given = torch.tensor([99, -3]), torch.tensor([[-1, 7], [0, 1]])
    bounded = torch.tensor([10, 0]), torch.tensor([[0, 2], [0, 1]])
    found, expected = (
        run_decoding((query, key, value, *numbers), case, parts=2)
        for numbers in (given, bounded)
    )
    return torch.equal(found, expected)


def check_offsets():
    """Tell whether offsets that are no offsets leave the memory around unharmed."""
    *inputs, upstream = (
        surround_with_nan(x).transpose(0, 1)[None]
        for x in flash_cases.draw_packed(torch.float32)
    )
    offsets = torch.tensor([2**31 - 1, -(2**31), 9]), torch.tensor([-(2**31), 50, 7])
    for packing in offsets, offsets[::-1]:
        output, lse = launch.forward(*inputs, Options(), TILES[0], packing)
        more = upstream, Options(), TILES[1], None, packing
        launch.backward(*inputs, output, lse, *more)
    return check_fences(whole=False)


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
    TritonSemantic.binary_op_sanitize_overflow_impl = lambda *_: None


def main():
    prepare_triton()
    launch.allocate = allocate
    report_attention()
    report_packed()
    report_decoding()
    print(json.dumps({"case": "bounds", "unharmed": check_bounds()}))
    print(json.dumps({"case": "offsets", "unharmed": check_offsets()}))


if __name__ == "__main__":
    main()
