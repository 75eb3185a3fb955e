"""Attention kernels: ours, PyTorch's backends by name, and those that are installed.

`scaled_dot_product_attention` chooses a backend by itself and does not say
which. Here it is called as it is, and with each backend alone; one that cannot
compute a case says why, and so does a package that is missing. FlashAttention-3 and
-4 are called directly: `torch.nn.attention.activate_flash_attention_impl` would put
the same kernels in the place of PyTorch's own for the whole process.

Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.attention.sdpa_kernel.html;
    the setting (16k tokens, H · D = 2048) and the count of operations: Shah et
    al. (2024), section 4.1, https://arxiv.org/abs/2407.08608
Axes: B batch, H heads, G groups (key-value heads), T queries, S keys, D width
"""

import importlib
import inspect
import os
import random
import runpy
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from statistics import quantiles
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import DeviceType
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.profiler import profile

from attnbook.attention.scaled_dot_product import attend
from attnbook.flash import flash_attention
from attnbook.flash.decoding import attend_split_kv
from attnbook.profiling.timing import measure_seconds

BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
}
# Triton's `06-fused-attention.py`, which no wheel has.
TUTORIAL = os.environ.get("TUTORIAL", "")
PACKAGES = {"FA3": "flash_attn_interface", "FA4": "flash_attn.cute"}
# "sdpa math" writes the matrix of scores to memory.
LONGEST_MATRIX = 4096
# FlexAttention is compiled for each length, which takes half a minute.
FLEX = (4096, 16384)
# The largest error of a right result in half precision, over the largest value.
TOLERANCE = 0.03
ROUNDS = 7
find_quartiles = partial(quantiles, n=4, method="inclusive")


@dataclass(frozen=True)
class Case:
    """What is measured.

    The kind is "causal", forwards and backwards; "tutorial", the same beside the
    kernel of Triton's tutorial, which takes float16 alone; or "decoding" of one token
    with four query heads a key head, forwards.
    """

    kind: str
    D: int
    S: int
    tokens: int = 16 * 1024  # B · S
    columns: int = 2048  # H · D

    @property
    def name(self) -> str:
        return f"{self.kind}_D{self.D}_S{self.S}"

    @property
    def shape(self) -> tuple[int, int, int, int, int, int]:
        heads = self.columns // self.D
        batch = max(1, self.tokens // self.S)
        if self.kind == "decoding":
            return batch, heads, heads // 4, 1, self.S, self.D
        return batch, heads, heads, self.S, self.S, self.D

    def measure_rate(self, direction: str, seconds: float, itemsize: int) -> str:
        """Return operations a second, and where memory is the limit, bytes.

        Two products forwards and five backwards are counted, of a causal case for
        half of the pairs, as papers do; query, key, value and output once each.
        """
        B, H, G, T, S, D = self.shape
        if self.kind == "decoding":
            moved = itemsize * 2 * B * D * (H * T + G * S)
            return f"{moved / seconds / 1e12:.3g} TB/s"
        products = 2 if direction == "forward" else 5
        return f"{products * B * H * D * T * S / seconds / 1e12:.3g} TFLOP/s"


CASES = [
    Case("causal", D, S) for S in (4096, 16384, 8192, 2048, 1024) for D in (128, 64)
]
CASES[4:4] = [Case("decoding", D, 8192, tokens=32 * 8192) for D in (128, 64)]
# Last, because this kernel is tuned for a minute.
CASES += [Case("tutorial", D, 4096) for D in (128, 64) if TUTORIAL]


def draw_inputs(case: Case, device: str) -> list[Tensor]:
    """Return query, key, value and the output's gradient, normally distributed."""
    B, H, G, T, S, D = case.shape
    dtype = torch.float32
    if device == "cuda":
        new = torch.cuda.get_device_capability() >= (8, 0)
        half = case.kind == "tutorial" or not new
        dtype = torch.float16 if half else torch.bfloat16
    rng = torch.Generator(device).manual_seed(0)
    sizes = (B, H, T, D), (B, G, S, D), (B, G, S, D), (B, H, T, D)
    return [torch.randn(x, generator=rng, device=device).to(dtype) for x in sizes]


def call_backend(backend: SDPBackend, call: Callable, *inputs: Tensor) -> Tensor:
    with sdpa_kernel([backend]), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the error says why as well
        return call(*inputs)


def compile_flex(case: Case, device: str) -> Callable[..., Tensor]:
    """Return FlexAttention with a causal mask, compiled for this case alone."""
    S, run = case.S, cast(Callable, flex_attention)
    mask = create_block_mask(lambda b, h, q, k: k <= q, None, None, S, S, device)
    if device == "cuda":
        # After some recompilations of one function it would run uncompiled.
        torch._dynamo.reset()
        run = torch.compile(flex_attention, dynamic=False, fullgraph=True)
    return partial(run, block_mask=mask)


def import_flash_attention(package: str) -> Callable[..., Tensor]:
    """Return a package's function, which may return more, as one of (B, H, T, D)."""
    run = importlib.import_module(package).flash_attn_func

    def call(*inputs: Tensor) -> Tensor:
        found = run(*(x.transpose(1, 2) for x in inputs), causal=True)
        return (found[0] if isinstance(found, tuple) else found).transpose(1, 2)

    return call


def import_tutorial() -> Callable[..., Tensor]:
    """Return the function of Triton's tutorial."""
    names = runpy.run_path(TUTORIAL)
    known = inspect.signature(names["_attention"].forward).parameters
    more = [False] if "warp_specialize" in known else []  # as its own benchmark
    return lambda q, k, v: names["attention"](q, k, v, True, q.shape[-1] ** -0.5, *more)


def list_implementations(case: Case, device: str) -> dict[str, Callable]:
    """Return what makes each function of query, key and value, by name.

    On a GPU ours is strict: PyTorch's tiles are not timed in a kernel's name.
    """
    causal, strict = case.kind != "decoding", device == "cuda"
    given = {"is_causal": True} if causal else {"enable_gqa": True}
    sdpa = partial(F.scaled_dot_product_attention, **given)
    ours = partial(attend_split_kv, strict=strict)
    if causal:
        ours = partial(flash_attention, causal=True, strict=strict)
    found: dict[str, Callable] = {"ours": lambda: ours, "sdpa": lambda: sdpa}
    if case.kind == "tutorial":
        return found | {"tutorial": import_tutorial}
    for name, backend in BACKENDS.items():
        if name != "math" or not causal or case.S <= LONGEST_MATRIX:
            alone = partial(call_backend, backend, sdpa)
            found[f"sdpa {name}"] = lambda alone=alone: alone
    if causal and case.S in FLEX:
        found["flex"] = partial(compile_flex, case, device)
    if causal:
        for name, package in PACKAGES.items():
            found[name] = partial(import_flash_attention, package)
    return found


def build_calls(run: Callable, case: Case, inputs: list[Tensor]) -> dict[str, Callable]:
    *given, upstream = inputs
    calls: dict[str, Callable] = {"forward": partial(run, *given)}
    if case.kind != "decoding":
        leaves = [x.detach().requires_grad_() for x in given]
        output = run(*leaves)
        calls["backward"] = partial(
            torch.autograd.grad, output, leaves, upstream, retain_graph=True
        )
    return calls


def measure_error(inputs: list[Tensor], found: Tensor | tuple) -> float:
    """Return the largest error of some rows, over the largest value.

    Rows of the output, or of the query's gradient, are compared with `attend` in
    float64: each depends on all keys that the query attends to.
    """
    query, key, value, upstream = (x[0, 0].double() for x in inputs)
    T, S = len(query), len(key)
    rows = torch.tensor([0, 1, T // 2, T - 1], device=query.device).clamp(0, T - 1)
    query = query[rows].requires_grad_()
    keys = torch.arange(S, device=query.device)
    wanted = attend(query, key, value, mask=keys <= rows[:, None] + S - T)
    if isinstance(found, tuple):
        (wanted,) = torch.autograd.grad(wanted, query, upstream[rows])
    output = found[0] if isinstance(found, tuple) else found
    return ((output[0, 0, rows] - wanted).abs().max() / wanted.abs().max()).item()


def time_in_turns(
    calls: Mapping[str, Callable[[], object]], device: str, rounds: int
) -> dict[str, list[float]]:
    """Return the milliseconds of each call in each round; on a GPU, with an empty L2.

    The order is drawn anew in each round: a GPU that becomes slower is so for
    every call, and no call always follows the same other one.
    """
    rng = random.Random(0)
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name in rng.sample(list(calls), len(calls)):
            if device == "cpu":
                taken[name].append(1e3 * measure_seconds(calls[name]))
                continue
            from triton.testing import do_bench

            ms = do_bench(calls[name], warmup=2, rep=10, return_mode="median")
            taken[name].append(ms)
    return taken


def find_kernel(call: Callable[[], object], device: str) -> str:
    """Return the kernel, or on a CPU the operator, that takes most of a call's time."""
    with profile() as run:
        call()
        if device == "cuda":
            torch.cuda.synchronize()
    kind, unit = DeviceType.CPU, "cpu"
    if device == "cuda":
        kind, unit = DeviceType.CUDA, "device"
    events = [event for event in run.events() if event.device_type == kind]
    time = f"self_{unit}_time_total"
    longest = max(events, key=lambda event: getattr(event, time), default=None)
    return longest.name if longest else "unknown"


def measure_case(case: Case, device: str, rounds: int = ROUNDS) -> dict:
    """Return the times of the implementations that are right, and refusals.

    `ours` is our share of an implementation's speed: quartiles over the rounds.
    """
    inputs = draw_inputs(case, device)
    calls: dict[str, dict[str, Callable]] = {"forward": {}, "backward": {}}
    refused = {}
    for name, make in list_implementations(case, device).items():
        try:
            for direction, call in build_calls(make(), case, inputs).items():
                error = measure_error(inputs, call())
                if not error < TOLERANCE:
                    raise ArithmeticError(
                        f"{direction}: an error of {error:.2g} of the largest value; "
                        f"rounding explains at most {TOLERANCE}"
                    )
                calls[direction][name] = call
        except Exception as refusal:
            line = str(refusal).strip().partition("\n")[0]
            refused[name] = f"{type(refusal).__name__}: {line[:200]}"
            if device == "cuda":
                torch.cuda.synchronize()  # ends the run if the GPU is lost
    times = []
    for direction, ready in calls.items():
        taken = time_in_turns(ready, device, rounds)
        for name, ms in taken.items():
            low, median, high = find_quartiles(ms)
            size = inputs[0].element_size()
            found = {"pass": direction, "name": name, "ms": median}
            found["spread"] = (high - low) / median
            found["rate"] = case.measure_rate(direction, median / 1e3, size)
            found["kernel"] = find_kernel(ready[name], device)
            ours = zip(ms, taken.get("ours", []), strict=False)
            if ratios := [theirs / own for theirs, own in ours]:
                found["ours"] = find_quartiles(ratios)
            times.append(found)
    more = {"name": case.name, "shape": case.shape, "dtype": str(inputs[0].dtype)}
    return {**more, "times": times, "refused": refused}
