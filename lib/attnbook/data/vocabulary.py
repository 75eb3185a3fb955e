"""Symbols to integers and back, and sequences of integers to one tensor.

Source: the four special symbols are what most toolkits use.
Axes: B batch, S the longest sequence of the batch, T an output
"""

from collections.abc import Iterable, Sequence

import torch
from jaxtyping import Int64
from torch import Tensor

PAD, START, END, UNKNOWN = range(4)
SPECIAL = ("<pad>", "<start>", "<end>", "<unk>")


class Vocabulary:
    """A numbering of symbols; the first four numbers are `SPECIAL`.

    Attributes:
        symbols: every symbol in the order of its number, special ones first.
    """

    def __init__(self, symbols: Iterable[str]):
        """Number the symbols, which must be distinct and not special."""
        self.symbols = SPECIAL + tuple(symbols)
        self._numbers: dict[str, int] = {}
        for symbol in self.symbols:
            if symbol in self._numbers:
                raise ValueError(
                    f"the {len(self.symbols)} symbols of a vocabulary (4 of them "
                    f"special) must differ, but {symbol!r} occurs twice"
                )
            self._numbers[symbol] = len(self._numbers)

    @classmethod
    def of(cls, sequences: Iterable[Iterable[str]]) -> "Vocabulary":
        """Return the sorted vocabulary of all symbols that occur."""
        return cls(sorted({symbol for seq in sequences for symbol in seq}))

    def __len__(self) -> int:
        """Count the symbols, special ones included."""
        return len(self.symbols)

    def encode(self, symbols: Iterable[str]) -> list[int]:
        """Return each symbol's number; start and end are not added.

        Raises:
            ValueError: if a symbol is not in the vocabulary.
        """
        symbols = list(symbols)
        for symbol in symbols:
            if symbol not in self._numbers:
                raise ValueError(
                    f"{symbol!r} is not one of the {len(self)} symbols of "
                    f"this vocabulary (in {' '.join(symbols)!r})"
                )
        return [self._numbers[symbol] for symbol in symbols]

    def encode_known(self, symbols: Iterable[str]) -> list[int]:
        """Return each symbol's number, or UNKNOWN for those without one."""
        return [self._numbers.get(symbol, UNKNOWN) for symbol in symbols]

    def decode(self, numbers: Iterable[int] | Int64[Tensor, "T"]) -> tuple[str, ...]:
        """Return the symbols up to END, without START and PAD.

        Raises:
            ValueError: if a number has no symbol.
        """
        symbols = []
        for number in map(int, numbers):
            if number == END:
                break
            if not 0 <= number < len(self):
                raise ValueError(
                    f"{number} is not a number of this vocabulary, which "
                    f"goes from 0 to {len(self) - 1}"
                )
            if number not in (PAD, START):
                symbols.append(self.symbols[number])
        return tuple(symbols)


def pad_sequences(
    sequences: Sequence[Sequence[int]],
) -> tuple[Int64[Tensor, "B S"], Int64[Tensor, "B"]]:
    """Return the sequences as rows padded with PAD, and their lengths.

    Raises:
        ValueError: if there is no sequence, or one of length 0.
    """
    lengths = [len(sequence) for sequence in sequences]
    if not lengths:
        raise ValueError("a batch needs at least 1 sequence, but got 0")
    if min(lengths) == 0:
        raise ValueError(
            "a batch needs sequences of length 1 or more, but sequence "
            f"{lengths.index(0)} of {len(lengths)} has length 0"
        )
    tokens = torch.full((len(lengths), max(lengths)), PAD)
    for row, sequence in zip(tokens, sequences, strict=True):
        row[: len(sequence)] = torch.tensor(sequence)
    return tokens, torch.tensor(lengths)
