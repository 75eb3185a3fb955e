"""Models and devices by their published sizes, each with its source.

Rates are those stated for dense products, often by third parties: no program
reaches them.

Source: the addresses beside each entry
"""

from dataclasses import dataclass

from attnbook.profiling.block import Block
from attnbook.profiling.roofline import Machine

HUGGING_FACE = "https://huggingface.co"


@dataclass(frozen=True)
class Model:
    """A model's blocks, the length it was trained on, and their source."""

    block: Block
    length: int
    source: str


@dataclass(frozen=True)
class Device:
    """A device's ceilings and memory, and their source.

    Attributes:
        rates: dense operations a second, by bytes of a number.
        bandwidth: bytes a second.
        memory: bytes.
        source: the maker's document that states them.
    """

    rates: dict[int, float]
    bandwidth: float
    memory: float
    source: str

    def machine(self, itemsize: int) -> Machine:
        """Return its ceilings for numbers of 2 or 4 bytes.

        Raises:
            ValueError: if no rate is known for that size.
        """
        if itemsize not in self.rates:
            raise ValueError(
                f"numbers of {itemsize} bytes: known are {sorted(self.rates)}"
            )
        return Machine(self.rates[itemsize], self.bandwidth)


# C, H, G, D, hidden, gated, L
MODELS = {
    "GPT-2 (small)": Model(
        Block(768, 12, 12, 64, 3072, False, 12),
        1024,
        f"{HUGGING_FACE}/openai-community/gpt2/blob/main/config.json",
    ),
    "Llama 2 7B": Model(
        Block(4096, 32, 32, 128, 11008, True, 32),
        4096,
        f"{HUGGING_FACE}/philschmid/Llama-2-7b-hf/blob/main/config.json",
    ),
    "Mistral 7B": Model(
        Block(4096, 32, 8, 128, 14336, True, 32),
        32768,
        f"{HUGGING_FACE}/mlx-community/mistral-7B-v0.1/blob/main/config.json",
    ),
    "Llama 3 8B": Model(
        Block(4096, 32, 8, 128, 14336, True, 32),
        8192,
        f"{HUGGING_FACE}/jerryzh168/llama3-8B/blob/main/config.json",
    ),
    "Llama 3.1 8B": Model(
        Block(4096, 32, 8, 128, 14336, True, 32),
        131072,
        f"{HUGGING_FACE}/NbAiLab/nb-llama-3.1-8B/blob/main/config.json",
    ),
    "Llama 3 70B": Model(
        Block(8192, 64, 8, 128, 28672, True, 80),
        8192,
        f"{HUGGING_FACE}/kittn/Meta-Llama-3-70B-quant/blob/main/config.json",
    ),
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
        "https://images.nvidia.com/aem-dam/en-zz/Solutions/"
        "design-visualization/technologies/turing-architecture/"
        "NVIDIA-Turing-Architecture-Whitepaper.pdf",
    ),
    "A100 SXM 80 GB": Device(
        {2: 312e12, 4: 19.5e12},
        2039e9,
        80e9,
        "https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/a100/"
        "pdf/nvidia-a100-datasheet-nvidia-us-2188504-web.pdf",
    ),
    "H100 SXM": Device(
        {2: 989.4e12, 4: 66.9e12},
        3350e9,
        80e9,
        "https://www.nvidia.com/en-us/data-center/h100/",
    ),
    "H200 SXM": Device(
        {2: 989.4e12, 4: 66.9e12},
        4800e9,
        141e9,
        "https://www.nvidia.com/en-us/data-center/h200/",
    ),
    "B200 (HGX)": Device(
        {2: 2250e12, 4: 75e12},
        7700e9,
        180e9,
        "https://www.nvidia.com/en-us/data-center/hgx/",
    ),
}
# Multiprocessors: in the makers' documents above.
PROCESSORS = {
    "T4": 40,
    "A100 SXM 80 GB": 108,
    "H100 SXM": 132,
    "H200 SXM": 132,
    "B200 (HGX)": 148,
}
# Exponentials a second, as section 3.1 of FlashAttention-3 computes them: 16 in
# each of 132 multiprocessors and each cycle of 1.83 GHz. The others have as
# many a cycle (CUDA C++ Programming Guide, throughput of instructions). Clocks
# are those at which the rates above are reached.
# https://arxiv.org/abs/2407.08608
CLOCKS = {
    "T4": 1.59e9,
    "A100 SXM 80 GB": 1.41e9,
    "H100 SXM": 1.83e9,
    "H200 SXM": 1.83e9,
    "B200 (HGX)": 1.85e9,
}
EXPONENTIAL_RATES = {
    name: 16 * PROCESSORS[name] * clock for name, clock in CLOCKS.items()
}
