"""English to French: sentences of LibreOffice's help, as subwords or characters.

No validation or test sentence has a near twin (word-Jaccard of 0.6 or more,
on either side) in any split, and lengths up to 50 words are drawn evenly, so
that BLEU can be read by length. Both splits are therefore harder than a
random draw of the same text.

Source: Debian packages of LibreOffice 7.4.7, see derive/libreoffice.py;
    subwords by Sennrich et al. (2016), https://arxiv.org/abs/1508.07909
"""

from collections.abc import Iterable
from functools import cache

import sentencepiece
import torch
from jaxtyping import Int
from torch import Tensor

from attnbook.data import Pair, Splits, Symbols, read_file, read_lines

SPACE = "▁"  # how sentencepiece marks the space before a word


@cache
def load() -> Splits:
    """Return the splits as subword pieces."""
    texts = load_text()
    return Splits(*map(_split_all, (texts.train, texts.valid, texts.test)))


@cache
def load_text() -> Splits:
    """Return the same pairs in the same order, each sentence one string.

    A sentence is then a sequence of one symbol: `pair.source[0]`.
    """
    return Splits(*map(_pairs, ("train.tsv.bz2", "valid.tsv", "test.tsv")))


def split_into_pieces(text: str, language: str) -> Symbols:
    """Cut a sentence into the pieces of its language, "en" or "fr".

    Raises:
        ValueError: if it is empty, or holds a character without a piece.
    """
    model = _model(language)
    found = tuple(model.EncodeAsPieces(text))
    if not found:
        raise ValueError(f"a sentence needs at least 1 word, but {text!r} has 0")
    for piece in found:
        if model.IsUnknown(model.PieceToId(piece)):
            raise ValueError(
                f"{piece!r} in {text!r} is none of the characters known in {language!r}"
            )
    return found


def join_pieces(pieces: Iterable[str]) -> str:
    """Return the text that was cut into these pieces."""
    return "".join(pieces).replace(SPACE, " ").strip()


@cache
def alphabet() -> tuple[str, ...]:
    """Return the characters of the English training texts, in order."""
    texts = load_text().train
    return tuple(sorted({c for p in texts for c in p.source[0]} | {"\n"}))


@cache
def encode_characters(split: str) -> tuple[Int[Tensor, "T"], int]:
    """Return a split of the English texts as ids, one a character, and their number.

    One sentence a line; the last id is that of characters that the training
    texts lack.
    """
    known = alphabet()
    number = {c: i for i, c in enumerate(known)}
    text = "\n".join(p.source[0] for p in getattr(load_text(), split))
    return torch.tensor([number.get(c, len(known)) for c in text]), len(known) + 1


@cache
def _model(language: str) -> sentencepiece.SentencePieceProcessor:
    content = read_file(f"libreoffice/{language}.model")
    return sentencepiece.SentencePieceProcessor(model_proto=content)


def _pairs(name: str) -> tuple[Pair, ...]:
    rows = (line.split("\t") for line in read_lines(f"libreoffice/{name}"))
    return tuple(Pair((english,), (french,)) for english, french in rows)


def _split_all(texts: Iterable[Pair]) -> tuple[Pair, ...]:
    return tuple(
        Pair(
            split_into_pieces(pair.source[0], "en"),
            split_into_pieces(pair.target[0], "fr"),
        )
        for pair in texts
    )
