"""English to French: sentences of LibreOffice's help, cut into subwords.

No validation or test sentence has a near twin (word-Jaccard of 0.6 or more,
on either side) in any split, and lengths up to 50 words are drawn evenly, so
that BLEU can be read by length. Both splits are therefore harder than a
random draw of the same text.

Source: Debian packages of LibreOffice 7.4.7, see derive/libreoffice.py;
    subwords by Sennrich et al. (2016), https://arxiv.org/abs/1508.07909

The English help texts as ids, one id a character.
"""

from collections.abc import Iterable
from functools import cache

import sentencepiece
import torch
from jaxtyping import Int
from torch import Tensor

from attnbook.data import Pair, Splits, Symbols, libreoffice, read_file, read_lines

LANGUAGES = ("en", "fr")
SPACE = "▁"  # how sentencepiece marks the space before a word


@cache
def load() -> Splits:
    """Return the splits as subword pieces, for `Vocabulary(pieces("en"))`."""
    texts = load_text()
    return Splits(*map(_split_all, (texts.train, texts.valid, texts.test)))


@cache
def load_text() -> Splits:
    """Return the same pairs in the same order, each sentence one string.

    A sentence is then a sequence of one symbol: `pair.source[0]`.
    """
    return Splits(
        *map(_pairs, ("train.tsv.bz2", "valid.tsv", "test.tsv")),
    )


@cache
def list_pieces(language: str) -> Symbols:
    """Return all pieces of a language, "en" or "fr", for a `Vocabulary`."""
    model = _model(language)
    return tuple(
        model.IdToPiece(number)
        for number in range(len(model))
        if not model.IsUnknown(number)
    )


def split_into_pieces(text: str, language: str) -> Symbols:
    """Cut a sentence into the pieces of its language.

    Raises:
        ValueError: if it is empty, or holds a character without a piece.
    """
    found = tuple(_model(language).EncodeAsPieces(text))
    if not found:
        raise ValueError(f"a sentence needs at least 1 word, but {text!r} has 0")
    strange = set(found) - _known_pieces(language)
    if strange:
        raise ValueError(
            f"{min(strange)!r} in {text!r} is none of the characters known in "
            f"{language!r}"
        )
    return found


def join_pieces(pieces: Iterable[str]) -> str:
    """Return the text that was cut into these pieces."""
    return "".join(pieces).replace(SPACE, " ").strip()


@cache
def _known_pieces(language: str) -> frozenset[str]:
    return frozenset(list_pieces(language))


@cache
def _model(language: str) -> sentencepiece.SentencePieceProcessor:
    if language not in LANGUAGES:
        raise ValueError(
            f"the languages are {' and '.join(LANGUAGES)}, not {language!r}"
        )
    return sentencepiece.SentencePieceProcessor(
        model_proto=read_file(f"libreoffice/{language}.model")
    )


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
