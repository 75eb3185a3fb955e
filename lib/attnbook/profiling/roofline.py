"""What a machine can do at most: operations, bytes or exponentials.

`DEVICES` and `MODELS` hold published sizes and rates, each with its source;
rates are those stated for dense products, which no program reaches. A processor
computes exponentials in other units than products, and more slowly: each score
needs one, whatever the width of the head. `calculate` gives what the cost
calculator shows.

Source: Williams, Waterman and Patterson (2009),
    https://doi.org/10.1145/1498765.1498785; exponentials: section 3.1 of
    FlashAttention-3, Shah et al. (2024), https://arxiv.org/abs/2407.08608;
    sizes and rates: the addresses beside each entry
Axes: B sequences, H heads, T queries, S keys, D width of query and key, E of
    values
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from attnbook.profiling import memory
from attnbook.profiling.sizes import Count, Sizes, add_counts
from attnbook.profiling.steps import (
    Block,
    count_backward_steps,
    count_cache_bytes,
    count_fused,
    count_fused_backward,
    count_steps,
    get_attention_sizes,
)
from attnbook.profiling.timing import time_calls


@dataclass(frozen=True)
class Machine:
    """The two ceilings of a roofline model: operations and bytes a second."""

    flops: float
    bandwidth: float

    @property
    def ridge_point(self) -> float:
        """Return from which intensity on operations limit."""
        return self.flops / self.bandwidth

    def attainable_rate(self, intensity: int | float) -> float:
        """Return the operations a second that an intensity allows."""
        return min(self.flops, self.bandwidth * intensity)

    def seconds(self, count: Count) -> float:
        """Return the least time for a count in one piece."""
        return max(count.flops / self.flops, count.bytes / self.bandwidth)

    def find_bottleneck(self, count: Count) -> str:
        """Return what limits a count: "memory" or "arithmetic"."""
        return "memory" if count.intensity < self.ridge_point else "arithmetic"


@dataclass(frozen=True)
class Model:
    """A model's blocks, the length it was trained on, and where both are stated."""

    block: Block
    length: int
    repository: str

    @property
    def source(self) -> str:
        """Return the address of its configuration."""
        return f"https://huggingface.co/{self.repository}/blob/main/config.json"


@dataclass(frozen=True)
class Device:
    """A device's ceilings and memory, and the maker's document that states them.

    Attributes:
        rates: dense operations a second, by bytes of a number.
        bandwidth: bytes a second.
        memory: bytes.
        processors: how many multiprocessors it has.
        clock: cycles a second at which the rates are reached.
    """

    rates: dict[int, float]
    bandwidth: float
    memory: float
    processors: int
    clock: float
    source: str

    def machine(self, itemsize: int) -> Machine:
        """Return its ceilings for numbers of 2 or 4 bytes."""
        return Machine(self.rates[itemsize], self.bandwidth)


# C, H, G, D, hidden, gated, L
SEVEN_BILLION = Block(4096, 32, 32, 128, 11008, True, 32)
EIGHT_BILLION = Block(4096, 32, 8, 128, 14336, True, 32)
SEVENTY_BILLION = Block(8192, 64, 8, 128, 28672, True, 80)
MODELS = {
    "GPT-2 (small)": Model(
        Block(768, 12, 12, 64, 3072, False, 12), 1024, "openai-community/gpt2"
    ),
    "Llama 2 7B": Model(SEVEN_BILLION, 4096, "philschmid/Llama-2-7b-hf"),
    "Mistral 7B": Model(EIGHT_BILLION, 32768, "mlx-community/mistral-7B-v0.1"),
    "Llama 3 8B": Model(EIGHT_BILLION, 8192, "jerryzh168/llama3-8B"),
    "Llama 3.1 8B": Model(EIGHT_BILLION, 131072, "NbAiLab/nb-llama-3.1-8B"),
    "Llama 3 70B": Model(SEVENTY_BILLION, 8192, "kittn/Meta-Llama-3-70B-quant"),
}
# The makers' documents. Their numbers were read where others quote them: in
# https://glennklockwood.com/garden/processors (A100, H100, B200),
# https://zdszero.github.io/Computer/Artificial_Intelligence/Hardware.html (HGX B200),
# https://sysrqmts.com/en/gpus/nvidia/tesla/t4 and
# https://aiwiki.ai/wiki/nvidia_h200. For the T4, the white paper of its
# architecture states 320 GB/s and its data sheet 300. NVIDIA's pages on the
# H100, the H200 and the B200 state rates with sparsity, twice the dense ones.
DEVICES = {
    "T4": Device(
        {2: 65e12, 4: 8.1e12},
        320e9,
        16e9,
        40,
        1.59e9,
        "https://images.nvidia.com/aem-dam/en-zz/Solutions/"
        "design-visualization/technologies/turing-architecture/"
        "NVIDIA-Turing-Architecture-Whitepaper.pdf",
    ),
    "A100 SXM 80 GB": Device(
        {2: 312e12, 4: 19.5e12},
        2039e9,
        80e9,
        108,
        1.41e9,
        "https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/a100/"
        "pdf/nvidia-a100-datasheet-nvidia-us-2188504-web.pdf",
    ),
    "H100 SXM": Device(
        {2: 989.4e12, 4: 66.9e12},
        3350e9,
        80e9,
        132,
        1.83e9,
        "https://www.nvidia.com/en-us/data-center/h100/",
    ),
    "H200 SXM": Device(
        {2: 989.4e12, 4: 66.9e12},
        4800e9,
        141e9,
        132,
        1.83e9,
        "https://www.nvidia.com/en-us/data-center/h200/",
    ),
    "B200 (HGX)": Device(
        {2: 2250e12, 4: 75e12},
        7700e9,
        180e9,
        148,
        1.85e9,
        "https://www.nvidia.com/en-us/data-center/hgx/",
    ),
}
# Exponentials a second, as section 3.1 of FlashAttention-3 computes them: 16 in
# each multiprocessor and each cycle, on the other devices too (CUDA C++
# Programming Guide, throughput of instructions).
# https://arxiv.org/abs/2407.08608
EXPONENTIAL_RATES = {
    name: 16 * device.processors * device.clock for name, device in DEVICES.items()
}


def bound_seconds(machine: Machine, counts: Iterable[Count]) -> float:
    """Return the least time for steps that run one after the other."""
    return sum(machine.seconds(count) for count in counts)


def measure_copy_rate(
    megabytes: int = 32, rounds: int = 25, device: str = "cpu"
) -> float:
    """Return the bytes a second, read and written, of a copy beyond the cache."""
    source = torch.ones(megabytes * 250_000, device=device)
    target = torch.empty_like(source)
    taken = time_calls({"copy": lambda: target.copy_(source)}, rounds, device)
    return 2 * source.nbytes / min(taken["copy"])


def measure_product_rate(
    width: int = 512,
    rounds: int = 25,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
) -> float:
    """Return the operations a second of a square matrix product."""
    rng = torch.Generator().manual_seed(0)  # zeros can run faster
    a, b = torch.randn(2, width, width, generator=rng).to(device, dtype)
    taken = time_calls({"product": lambda: a @ b}, rounds, device)
    return 2 * width**3 / min(taken["product"])


def measure_machine(dtype: torch.dtype = torch.float32, device: str = "cpu") -> Machine:
    """Return this machine's ceilings, by a product and a copy."""
    rate = measure_product_rate(dtype=dtype, device=device)
    return Machine(rate, measure_copy_rate(device=device))


def bound_seconds_by_ceiling(
    machine: Machine, exponentials: float, sizes: Sizes
) -> dict[str, float]:
    """Return the least time of fused attention by each of three ceilings.

    The machine computes so many `exponentials` a second.
    """
    pairs = sizes.B * sizes.H * sizes.T * sizes.S
    return {
        "memory": count_fused(sizes).bytes / machine.bandwidth,
        "products": 2 * pairs * (sizes.D + sizes.E) / machine.flops,
        "exponentials": pairs / exponentials,
    }


PHASES = ("prefill", "train", "decode")


def calculate(
    block: Block, machine: Machine, phase: str, B: int, n: int, itemsize: int
) -> dict[str, int | float]:
    """Return what one layer's attention costs, step by step and fused.

    Args:
        phase: "prefill", n positions at once; "train", with gradients; or
            "decode", one position after n - 1 others, from a KV cache.
        B: sequences.
        n: their length.
        itemsize: bytes of a number.
    """
    if phase not in PHASES:
        raise ValueError(f"the phase is {phase!r}, none of {PHASES}")
    T = 1 if phase == "decode" else n
    sizes = get_attention_sizes(block, B, T, n, itemsize)
    steps, whole = [*count_steps(sizes).values()], [count_fused(sizes)]
    passes = 1
    if phase == "train":
        steps += count_backward_steps(sizes).values()
        whole.append(count_fused_backward(sizes))
        passes = 3
    held = memory.count_peak_training if phase == "train" else memory.count_peak_forward
    products = 4 * B * block.H * T * n * block.D * passes
    others = 2 * block.weights * B * T * passes
    return {
        "flops": add_counts(steps).flops,
        "flops_fused": add_counts(whole).flops,
        "bytes": add_counts(steps).bytes,
        "bytes_fused": add_counts(whole).bytes,
        "memory": held(sizes),
        "memory_fused": count_peak_fused(sizes, phase == "train"),
        "cache": count_cache_bytes(block, B, n, itemsize),
        "seconds": bound_seconds(machine, steps),
        "seconds_fused": bound_seconds(machine, whole),
        "others": others,
        "share": products / (products + others),
    }


def count_peak_fused(sizes: Sizes, training: bool) -> int:
    """Return the peak bytes of attention that never stores its scores.

    In the forward pass the output; in training also one number a query and,
    in the backward pass, the three gradients.
    """
    if not training:
        return sizes.output
    sums = sizes.B * sizes.H * sizes.T * 4
    return sizes.output + sums + sizes.query + sizes.key + sizes.value
