"""The English help texts as ids, one id a character."""

from functools import cache

import torch
from jaxtyping import Int
from torch import Tensor

from attnbook.data import libreoffice


@cache
def alphabet() -> tuple[str, ...]:
    """Return the characters of the English training texts, in order."""
    texts = libreoffice.load_text().train
    return tuple(sorted({c for p in texts for c in p.source[0]} | {"\n"}))


@cache
def encode_characters(split: str) -> tuple[Int[Tensor, "T"], int]:
    """Return a split of the English help texts as ids, and how many ids exist.

    One sentence a line; the last id is that of characters that the training
    texts lack.
    """
    texts = libreoffice.load_text()
    known = alphabet()
    number = {c: i for i, c in enumerate(known)}
    text = "\n".join(p.source[0] for p in getattr(texts, split))
    numbers = [number.get(c, len(known)) for c in text]
    return torch.tensor(numbers), len(known) + 1
