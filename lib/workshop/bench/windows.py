"""Windows and layouts on a CPU, beside PyTorch's functions.

`python -m workshop.bench.windows THREADS [LENGTHS [WAYS]]` (say, 1 4096,8192
forward,back,layouts) prints for each length, and each window or size of a block,
the median processor time and wall time in turn, the middle half of the rounds,
and ratios of the medians. The forward pass is compared with compiled
FlexAttention, which has no backward pass on a CPU; forward and back with
`scaled_dot_product_attention` and a mask. Run it with OMP_WAIT_POLICY=PASSIVE:
threads that wait must not count.
"""

import sys
import time
from collections import defaultdict
from collections.abc import Callable
from statistics import median, quantiles

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import (
    BlockMask,
    create_block_mask,
    flex_attention,
)
from torch.nn.functional import scaled_dot_product_attention

from attnbook import masks
from attnbook.attention.blocked import attend_window
from attnbook.attention.sparse import attend_block_sparse, select_top_keys
from attnbook.masks import rules
from attnbook.profiling.allocations import measure_peak_bytes

LENGTHS, WINDOWS = (4096, 8192, 16384), (128, 256, 1024)
BLOCKS, CHOSEN = (128, 256), 3  # MoBA: the own block and the best of the others
HEADS, WIDTH = 8, 64
CLOCKS = {"processor": time.process_time, "wall": time.perf_counter}


def compare(calls: dict[str, Callable], rounds: int, title: str) -> None:
    """Print the times of calls in ms, after one unmeasured round, and ratios."""
    times: dict[tuple[str, str], list] = defaultdict(list)
    for _ in range(rounds + 1):
        for name, call in calls.items():
            start = {clock: read() for clock, read in CLOCKS.items()}
            call()
            for clock, read in CLOCKS.items():
                times[clock, name].append(1e3 * (read() - start[clock]))
    for clock in CLOCKS:
        line, middle = [], []
        for name in calls:
            _, *kept = times[clock, name]
            low, _, high = quantiles(kept, n=4) if rounds > 1 else kept * 3
            middle.append(median(kept))
            line.append(f"{name} {middle[-1]:.1f} ({low:.1f}-{high:.1f})")
        ratio = f"{middle[1] / middle[0]:.2f} x"
        print(f"{title}, {clock}: {', '.join(line)}: {ratio}", flush=True)


def compare_windows(T: int, size: int, inputs: list[Tensor], ways: list[str]) -> None:
    """Compare a window with FlexAttention, and with PyTorch's function and a mask."""
    if "forward" in ways:
        blocks = create_block_mask(
            lambda b, h, i, j: (i >= j) & (i - j < size), None, None, T, T, "cpu"
        )
        with torch.inference_mode():
            calls = {
                "ours": lambda: attend_window(*inputs, size),
                "flex": lambda: flex(*inputs, block_mask=blocks),
            }
            compare(calls, 9, f"{T}, window {size}")
            held = measure_peak_bytes(calls["ours"]) / inputs[0].nbytes
        print(f"  peak {(held - 1) / 4:.2f} of inputs and output, beyond them")
    if "back" in ways:
        mask = masks.window(T, T, size)
        leaves = [x.clone().requires_grad_() for x in inputs]
        outputs = {
            "ours": lambda: attend_window(*leaves, size),
            "sdpa": lambda: scaled_dot_product_attention(*leaves, attn_mask=mask),
        }
        calls = {
            name: lambda output=output: torch.autograd.grad(output().sum(), leaves)
            for name, output in outputs.items()
        }
        compare(calls, max(1, 20480 // T), f"{T}, window {size}, and back")
        print(f"  bar {0.5 * T / (size + 128):.1f}")


def compare_layouts(T: int, size: int, inputs: list[Tensor]) -> None:
    """Compare a layout for each head, causal inside its blocks."""
    N = T // size
    earlier = torch.ones(N, N).tril(-1).bool()
    chosen = select_top_keys(torch.randn(HEADS, N, N), earlier, CHOSEN)
    layout = chosen | torch.eye(N).bool()
    own = torch.arange(N).view(1, 1, N, 1).expand(1, HEADS, N, N)
    blocks = BlockMask.from_kv_blocks(
        torch.ones(1, HEADS, N, dtype=torch.int32),
        own.int(),
        chosen.sum(-1, dtype=torch.int32)[None],
        chosen.int().argsort(-1, descending=True).int()[None],
        BLOCK_SIZE=size,
        mask_mod=lambda b, h, i, j: i >= j,
    )
    calls = {
        "ours": lambda: attend_block_sparse(*inputs, layout, rules.causal(T, T)),
        "flex": lambda: flex(*inputs, block_mask=blocks),
    }
    with torch.inference_mode():
        torch.testing.assert_close(calls["ours"](), calls["flex"]())
        compare(calls, 9, f"{T}, layouts of blocks of {size}")


if __name__ == "__main__":
    torch.set_num_threads(int(sys.argv[1]))
    lengths = [int(x) for x in sys.argv[2].split(",")] if sys.argv[2:] else LENGTHS
    asked = sys.argv[3] if sys.argv[3:] else "forward,back,layouts"
    flex = torch.compile(flex_attention)
    for length in lengths:
        given = [torch.randn(1, HEADS, length, WIDTH) for _ in "qkv"]
        for window in WINDOWS:
            compare_windows(length, window, given, asked.split(","))
        for side in BLOCKS if "layouts" in asked else ():
            compare_layouts(length, side, given)
