"""Times every tile size of the kernels on a GPU: no GPU has run this yet.

    python -m workshop.unproven.tile_sweep OUT.json

Its file lists every size that was tried, with its time or why it has none, and
the fastest by kernel, precision, width and case. That table is to replace
`attnbook.flash.sizes` where it was measured; nothing is tuned as a kernel runs.

Axes: D width of query, key and value
"""

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attnbook.flash.options import Options
from attnbook.flash.sizes import SHARED, TileSizes, choose_tile_sizes
from workshop.bench.accuracy import draw_inputs, measure_error_share
from workshop.bench.rows import Row

KERNELS = "forward", "key_value_gradient", "query_gradient"
CASES = {
    "full": Options(),
    "causal": Options(causal=True),
    "window": Options(window=1024),
}
LENGTH, ROUNDS = 8192, 20
# Gradients of keys and values beside those with the sizes of today, as a share
# of the largest one.
FAR = 2**-6


def list_tiles(kernel: str, capability: tuple[int, int], D: int) -> Iterator[TileSizes]:
    """Yield the sizes to try: no warp has fewer than 16 rows of its own.

    What exceeds the shared memory with the tiles alone is left out.
    """
    sizes = 16, 32, 64, 128, 256
    room = SHARED.get(capability, 99 * 1024)
    for queries, keys, warps, stages in product(sizes, sizes, (4, 8), (1, 2, 3, 4)):
        own_keys = kernel == "key_value_gradient"
        owned, walked = (keys, queries) if own_keys else (queries, keys)
        # Two tiles are owned in the backward pass, one forwards.
        held = owned * D * (1 if kernel == "forward" else 2)
        loaded = 2 * walked * D * max(1, stages - 1)
        if owned >= 16 * warps and 2 * (held + loaded) <= room:
            yield TileSizes(queries, keys, warps, stages)


def choose_fastest(rows: list[dict]) -> dict[str, dict]:
    """Return the fastest right row by kernel, precision, width and case."""
    best: dict[str, dict] = {}
    for row in rows:
        name = "/".join(str(row[x]) for x in ("kernel", "dtype", "D", "case"))
        if row["ms"] is not None and (name not in best or row["ms"] < best[name]["ms"]):
            best[name] = row
    return best


def time_kernel(kernel: str, call: Callable[[], Any]) -> float:
    """Return the median milliseconds of one kernel in a call."""
    call()
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CUDA]
    ) as profiler:
        for _ in range(ROUNDS):
            call()
        torch.cuda.synchronize()
    times = [
        event.device_time / 1e3
        for event in profiler.events()
        if event.name.startswith(kernel)
    ]
    return sorted(times)[len(times) // 2]


def describe_row(D: int, dtype: str, case: str, direction: str) -> Row:
    """Return the benchmark's row of a case: its shapes and its mask."""
    kind = "window" if case == "window" else "plain"
    return Row(direction, dtype, D, LENGTH, case != "full", kind)


def try_tile(
    kernel: str, tile: TileSizes, row: Row, options: Options, inputs: list
) -> tuple[float | None, str]:
    """Return milliseconds; None, and the reason, if it fails or is wrong."""
    from attnbook.flash import launch

    query, key, value, upstream = inputs
    found: Any
    call: Callable[[], Any]
    try:
        if kernel == "forward":
            found = launch.forward(query, key, value, options, tile)[0]
            share = measure_error_share(row, "cuda", inputs, found)
            call = lambda: launch.forward(query, key, value, options, tile)  # noqa: E731
        else:
            output, lse = launch.forward(query, key, value, options)
            given = query, key, value, output, lse, upstream, options
            found = launch.backward(*given, tile)
            share = max(
                measure_error_share(row, "cuda", inputs, found),
                compare_gradients(found, launch.backward(*given)),
            )
            call = lambda: launch.backward(*given, tile)  # noqa: E731
        if share > 1:
            return None, f"wrong: {share:.2g} of the error budget"
        return time_kernel(kernel, call), ""
    except Exception as error:  # a size that does not fit is a result, too
        return None, f"{type(error).__name__}: {str(error)[:200]}"


def compare_gradients(found: tuple[Tensor, ...], usual: tuple[Tensor, ...]) -> float:
    """Return how far gradients are apart, as a share of what is allowed."""
    return max(
        float((a - b).abs().max() / b.abs().max()) / FAR
        for a, b in zip(found, usual, strict=True)
    )


def sweep() -> list[dict]:
    """Return a row for every kernel, case and size."""
    capability, rows = torch.cuda.get_device_capability(), []
    for dtype, D, case, kernel in product(
        ("bfloat16", "float16"), (64, 128, 256), CASES, KERNELS
    ):
        direction = "fwd" if kernel == "forward" else "bwd"
        described = describe_row(D, dtype, case, direction)
        inputs = draw_inputs(described, "cuda")
        usual = choose_tile_sizes(kernel, capability, getattr(torch, dtype), D)
        for tile in {usual, *list_tiles(kernel, capability, D)}:
            given = kernel, tile, described, CASES[case], inputs
            ms, reason = try_tile(*given)
            rows.append(
                {"kernel": kernel, "dtype": dtype, "D": D, "case": case}
                | asdict(tile)
                | {"usual": tile == usual, "ms": ms, "reason": reason}
            )
    return rows


def main(arguments: list[str]) -> int:
    """Write all rows and the fastest ones."""
    if len(arguments) != 1 or not torch.cuda.is_available():
        print(
            "python -m workshop.unproven.tile_sweep OUT.json, where PyTorch "
            "finds an NVIDIA GPU"
        )
        return 1
    rows = sweep()
    record = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "rows": rows,
        "fastest": choose_fastest(rows),
    }
    Path(arguments[0]).write_text(json.dumps(record, indent=1), "utf8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
