"""The decoding kernels in Triton's interpreter, against the reference.

`python tests/helpers/interpret_decoding.py`, or with the titles of some cases.
Inputs and outputs lie in fields of NaN and the programs run twice, as in
`interpret`, which this module starts Triton with. What is found is printed as
JSON, a case a line.
"""

import json
import sys
from functools import reduce

import torch

import interpret  # chooses the interpreter before Triton is imported
from attnbook.attention.tiled import merge
from attnbook.flash import decoding_kernels, launch
from attnbook.flash.sizes import TileSizes
from decoding_cases import (
    CASES,
    IN_HALF,
    compute_truth,
    draw_inputs,
    scatter_into_pages,
    spoil,
)
from precision import measure_difference

# Twenty heads a group need two tiles of 16 rows.
TILE = TileSizes(16, 16, 4, 1)


def run(given, case, parts=None):
    """Return the output of the kernels."""
    query, key, value, lengths, table = given
    scale = case.D**-0.5 if case.scale is None else case.scale
    parts = parts or case.parts
    return decoding_kernels.decode(
        query, key, value, lengths, table, scale, parts, TILE
    )


def build_calls(title, dtype):
    """Return the arguments of a case: from a cache, and from its pages."""
    case = CASES[title]
    query, key, value = draw_inputs(title, dtype)
    lengths = None if case.lengths is None else case.known_lengths
    cached = [spoil(x, case.known_lengths) for x in (key, value)]
    *pools, table = scatter_into_pages(title, key, value)
    query, *cached = map(interpret.surround_with_nan, (query, *cached))
    pools = map(interpret.surround_with_nan, pools)
    return {
        "cache": (query, *cached, lengths, None),
        "pages": (query, *pools, case.known_lengths, table),
    }


def measure_case(title, dtype):
    """Return differences from the reference, and whether all else is in order."""
    case, found = CASES[title], {}
    for name, given in build_calls(title, dtype).items():
        ours = run(given, case)
        unharmed = interpret.check_fences()
        with interpret.ShuffledPrograms():
            again = run(given, case)
        interpret.OUTPUTS.clear()
        found[name] = {
            "difference": measure_difference(ours, compute_truth(title, dtype)),
            "unharmed": unharmed,
            "same": torch.equal(ours, again),
        }
    return found


def measure_merging(title):
    """Return how far the kernel that merges is from `merge`, part by part.

    Both start from the parts that the first kernel computes.
    """
    case = CASES[title]
    query, key, value, lengths, table = build_calls(title, torch.float32)["pages"]
    output, lse = decoding_kernels.attend_parts(
        query, key, value, lengths, table, 0.3, case.parts, TILE
    )
    ours = decoding_kernels.merge(output, lse, torch.float32)
    parts = zip(output.unbind(2), lse.unbind(2), strict=True)
    theirs, _ = reduce(lambda a, b: merge(*a, *b), parts)
    interpret.OUTPUTS.clear()
    return {
        "parts": output.shape[2],
        "difference": (ours[:, :, 0] - theirs).abs().max().item(),
    }


def measure_bounds():
    """Tell what numbers outside the pool and lengths outside the pages give.

    The kernels read no memory outside the pool: the result is that of the
    bounded numbers.
    """
    case = CASES["page of five"]
    rng = torch.Generator().manual_seed(0)
    query, key, value = (
        torch.randn(*shape, generator=rng)
        for shape in ((2, 2, 1, 16), (3, 1, 5, 16), (3, 1, 5, 16))
    )
    given = [interpret.surround_with_nan(x) for x in (query, key, value)]
    lengths, table = torch.tensor([99, -3]), torch.tensor([[-1, 7], [0, 1]])
    bounded = torch.tensor([10, 0]), torch.tensor([[0, 2], [0, 1]])
    found = [
        run((*given, *numbers), case, parts=2)
        for numbers in ((lengths, table), bounded)
    ]
    interpret.OUTPUTS.clear()
    return {
        "same": torch.equal(*found),
        "finite": bool(found[0].isfinite().all()),
    }


def find_overflow():
    """Run the kernels where only offsets that need 64 bits pass 700.

    Sequences lie 768 numbers apart, and so do pages of 48 positions. Within
    such a page, the last row begins at 47 · 16 = 752. With pages of 3, the last
    row of the table begins at 47 · 16 = 752 as well. Within a tile no offset
    passes 15 · 16 · 2 = 480.
    """
    rng = torch.Generator().manual_seed(0)
    query = torch.randn(48, 2, 1, 16, generator=rng)
    long, short = (torch.randn(48, 1, page, 16, generator=rng) for page in (48, 3))
    lengths, order = torch.full((48,), 48), torch.arange(48).flip(0)
    calls = (
        (long, None),
        (long, order[:, None]),
        (short, order[:, None].repeat(1, 16)),
    )
    try:
        with interpret.limit_int32(700):
            for keys, table in calls:
                given = query, keys, keys, lengths, table
                run(given, CASES["one part"], parts=2)
    except interpret.interpreter.InterpreterError as error:
        if "overflows" not in str(error):
            raise
        return True
    finally:
        interpret.OUTPUTS.clear()
    return False


MERGED = "several parts", "an empty sequence, and one key"


def main():
    interpret.prepare_triton()
    launch.allocate = interpret.allocate
    if not sys.argv[1:]:
        print(json.dumps({"case": "bounds"} | measure_bounds()), flush=True)
        text = {"case": "narrow", "overflows": find_overflow()}
        print(json.dumps(text), flush=True)
        for title in MERGED:
            text = {"case": f"merged: {title}"}
            print(json.dumps(text | measure_merging(title)), flush=True)
    interpret.print_cases(sys.argv[1:] or CASES, IN_HALF, measure_case)


if __name__ == "__main__":
    main()
