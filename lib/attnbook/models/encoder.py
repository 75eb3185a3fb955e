"""The recurrent encoder: source symbols to states, without padding.

Source: Cho et al. (2014), section 2.2, https://arxiv.org/abs/1406.1078; two
    directions as in Schuster and Paliwal (1997). Departure: PyTorch's GRU and
    LSTM equations.
Axes: B batch, S source symbols, M memory width
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from attnbook.data.vocabulary import PAD


class Memory(NamedTuple):
    """The output of an encoder; every tensor has the batch axis first.

    Attributes:
        states: (B, S, M) one state per source symbol, 0 at padding.
        last: (B, M) each direction's state after its last *real* symbol.
        lengths: (B,) how many of the S symbols are real.
    """

    states: Float[Tensor, "B S M"]
    last: Float[Tensor, "B M"]
    lengths: Int[Tensor, " B"]

    def padding_mask(self) -> Bool[Tensor, "B S"]:
        """Return True where a source symbol is real, False at padding."""
        positions = torch.arange(self.states.shape[1], device=self.lengths.device)
        return positions < self.lengths[:, None]


class Encoder(nn.Module):
    """A recurrent encoder of the source, in one or two directions.

    Args:
        symbols: number of source symbols, the special ones included.
        embedding: width of a symbol's vector.
        hidden: width of the state of each direction.
        directions: 1 reads left to right; 2 also right to left.
        recurrent: `nn.GRU` or `nn.LSTM`.
        limit: the longest source accepted.
    """

    def __init__(
        self,
        symbols: int,
        embedding: int,
        hidden: int,
        directions: int = 2,
        recurrent: type[nn.GRU] | type[nn.LSTM] = nn.GRU,
        limit: int = 512,
    ):
        super().__init__()
        if directions not in (1, 2):
            raise ValueError(f"directions must be 1 or 2, not {directions}")
        self.hidden, self.width = hidden, hidden * directions
        self.directions, self.limit = directions, limit
        self.embed = nn.Embedding(symbols, embedding, padding_idx=PAD)
        self.recurrent = recurrent(
            embedding, hidden, batch_first=True, bidirectional=directions == 2
        )

    def forward(self, source: Int[Tensor, "B S"], lengths: Int[Tensor, " B"]) -> Memory:
        """Read each source up to its own length.

        Packing stops each direction at the true end: the final state does
        not depend on padding, and the backward direction starts at the last
        real symbol.

        Raises:
            ValueError: on a length of zero, one beyond the tensor, or a source
                longer than the model's limit.
        """
        require_lengths(source, lengths, self.limit)
        packed = pack_padded_sequence(
            self.embed(source),
            lengths.cpu(),
            batch_first=True,
            enforce_sorted=False,
        )
        states, last = self.recurrent(packed)
        states, _ = pad_packed_sequence(
            states, batch_first=True, total_length=source.shape[1]
        )
        last = last[0] if isinstance(last, tuple) else last
        return Memory(states, last.transpose(0, 1).flatten(1), lengths)


def require_lengths(source: Tensor, lengths: Tensor, limit: int) -> None:
    """Raise ValueError unless 1 <= lengths <= width of source <= limit."""
    width = source.shape[1]
    if width > limit:
        raise ValueError(
            f"the source has {width} symbols but the model's limit is {limit}"
        )
    if lengths.min() < 1:
        raise ValueError(
            f"every length must be at least 1, not {int(lengths.min())}: "
            "an empty sequence has no final state"
        )
    if lengths.max() > width:
        raise ValueError(
            f"a length is {int(lengths.max())} but the source is only "
            f"{width} symbols wide"
        )
