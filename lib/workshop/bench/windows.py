"""Windows on a CPU: `attend_window` beside PyTorch's functions.

`python -m workshop.bench.windows THREADS` prints, for each length and window, the
median processor time in turn and the middle half of the rounds, and the ratios.
"""

import sys
import time
from collections.abc import Callable
from statistics import median, quantiles

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.nn.functional import scaled_dot_product_attention

from attnbook import masks
from attnbook.attention.blocked import attend_window
from attnbook.profiling.allocations import measure_peak_bytes

LENGTHS, WINDOWS = (4096, 8192, 16384), (128, 256, 1024)
HEADS, WIDTH = 8, 64


def time_in_turn(calls: dict[str, Callable], rounds: int) -> dict[str, list[float]]:
    """Return the processor times of calls in ms, after one unmeasured round."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(rounds + 1):
        for name, call in calls.items():
            start = time.process_time()
            call()
            if turn:
                times[name].append(1e3 * (time.process_time() - start))
    return times


def describe(times: list[float]) -> str:
    """Return the median and the middle half."""
    low, _, high = quantiles(times, n=4)
    return f"{median(times):.1f} ({low:.1f}-{high:.1f})"


def go_forward_and_back(function: Callable, leaves: list[Tensor]) -> None:
    """Compute an output and the gradients of its sum."""
    torch.autograd.grad(function(*leaves).sum(), leaves)


def main(threads: int, rounds: int = 9) -> None:
    """Print a line for each length and window."""
    torch.set_num_threads(threads)
    flex = torch.compile(flex_attention)
    for T in LENGTHS:
        for size in WINDOWS:
            inputs = [torch.randn(1, HEADS, T, WIDTH) for _ in "qkv"]

            def rule(
                b: Tensor, h: Tensor, i: Tensor, j: Tensor, w: int = size
            ) -> Tensor:
                return (i >= j) & (i - j < w)

            blocks = create_block_mask(rule, None, None, T, T, "cpu")
            ways = {
                "ours": lambda *x, size=size: attend_window(*x, size),
                "flex": lambda *x, blocks=blocks: flex(*x, block_mask=blocks),
            }
            with torch.inference_mode():
                calls = {n: lambda f=f, x=inputs: f(*x) for n, f in ways.items()}
                times = time_in_turn(calls, rounds)
                held = measure_peak_bytes(calls["ours"]) / inputs[0].nbytes
                held = (held - 1) / 4  # beyond the output, of inputs and output
            ratio = median(times["flex"]) / median(times["ours"])
            line = {n: describe(x) for n, x in times.items()}
            print(T, size, line, f"{ratio:.2f} x flex; peak {held:.2f}", flush=True)
            if LENGTHS[0] == T:
                mask = masks.window(T, T, size)
                ways["sdpa"] = lambda *x, mask=mask: scaled_dot_product_attention(
                    *x, attn_mask=mask
                )
                leaves = [x.requires_grad_() for x in inputs]
                both = {
                    n: lambda f=ways[n], x=leaves: go_forward_and_back(f, x)
                    for n in ("ours", "sdpa")
                }
                times = time_in_turn(both, 5)
                ratio = median(times["sdpa"]) / median(times["ours"])
                bar = 0.5 * T / (size + 128)
                line = {n: describe(x) for n, x in times.items()}
                print(f"  and back {line}: {ratio:.1f} x, bar {bar:.1f}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
