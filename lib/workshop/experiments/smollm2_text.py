"""Passages on which SmolLM2 is measured, and what records say about the model.

They are English sentences of LibreOffice's help, in the order of its pages,
one a line. Sentences that hold code, or are very short or long, are missing
(`attnbook.data.libreoffice`). The training split is used, because its pages
are nearly complete; SmolLM2 was not trained on it by us, and whether it has
seen these pages is not known.
"""

from typing import TYPE_CHECKING

import torch
from jaxtyping import Int
from torch import Tensor

from attnbook.data import libreoffice
from attnbook.models.smollm2 import PACKAGE, SHA256

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# What a record says of the model.
SMOLLM2 = {
    "model": f"SmolLM2-135M-Instruct, Q4_1, from {PACKAGE}, Apache-2.0",
    "sha256": SHA256,
}
LENGTH = 1024  # symbols of a passage
PASSAGES = 12
# Lines between the start of a section, whose first passage is measured, and
# its other passages: two to train on, and one for the attention maps.
TRAINING = (350, 750)
MAPS = 1200


def read_lines() -> list[str]:
    """Return the English sentences of the training split, page by page."""
    return [pair.source[0] for pair in libreoffice.load_text().train]


def list_sections(lines: int, count: int = PASSAGES) -> list[int]:
    """Return the first lines of sections of equal length."""
    return [i * lines // count for i in range(count)]


def cut_passage(
    tokenizer: "Tokenizer", lines: list[str], start: int, length: int = LENGTH
) -> Int[Tensor, "T"]:
    """Return the first symbols of the text that starts at a line.

    Raises:
        ValueError: if the text is shorter.
    """
    # No line has fewer than 3 words, so `length` symbols need fewer lines.
    text = "\n".join(lines[start : start + length // 3 + 1])
    ids = tokenizer.encode(text).ids
    if len(ids) < length:
        raise ValueError(
            f"a passage needs {length} symbols, but the text from line {start} "
            f"on has {len(ids)}"
        )
    return torch.tensor(ids[:length])


def count_bytes(tokenizer: "Tokenizer", ids: Int[Tensor, "T"]) -> int:
    """Return how many bytes of text some symbols are.

    Every character of a symbol's name in a byte-level vocabulary is one byte.
    """
    return sum(len(tokenizer.id_to_token(i)) for i in ids.tolist())
