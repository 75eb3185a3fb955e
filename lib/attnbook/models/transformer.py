"""The Transformer: an encoder and a decoder without recurrence.

Both work with the `EncoderDecoder`, the training and the search of chapter 1.

Source: Vaswani et al. (2017), sections 3.1, 3.4 and 3.5,
    https://arxiv.org/abs/1706.03762. Departure: source and target have
    separate embeddings, as their vocabularies differ; the target's embedding is
    tied to the output layer.
Axes: B batch, S source symbols, T target symbols, C model width, V symbols,
    H heads
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnbook.attention.self_attention import causal_mask
from attnbook.data.vocabulary import PAD
from attnbook.models.encoder import Memory, require_lengths
from attnbook.models.encoder_decoder import DecoderOutput, EncoderDecoder
from attnbook.models.transformer_blocks import (
    DecoderBlock,
    EncoderBlock,
    PostNorm,
    PreNorm,
)
from attnbook.positions.absolute import sinusoidal


@dataclass(frozen=True)
class Size:
    """The hyperparameters of a Transformer.

    Attributes:
        width: C.
        heads: H.
        hidden: width of the feed-forward networks.
        blocks: number of blocks in the encoder, and in the decoder.
        dropout: dropout probability in training.
        residual: the residual connection, `PreNorm` or `PostNorm`.
    """

    width: int = 64
    heads: int = 4
    hidden: int = 256
    blocks: int = 2
    dropout: float = 0.0
    residual: type[PostNorm] = PreNorm

    def stack(self, block: type[nn.Module]) -> nn.ModuleList:
        """Return the blocks of an encoder or a decoder."""
        shape = self.width, self.heads, self.hidden, self.dropout, self.residual
        return nn.ModuleList(block(*shape) for _ in range(self.blocks))


class Embedding(nn.Module):
    """Symbol embeddings times √C plus sinusoidal positional encodings.

    The entries are initialized with standard deviation 1/√C, so that the tied
    output layer gives logits of size 1; times √C they are as large as the
    positional encodings.
    """

    def __init__(self, symbols: int, width: int, dropout: float = 0.0):
        super().__init__()
        self.table = nn.Embedding(symbols, width, padding_idx=PAD)
        nn.init.normal_(self.table.weight, std=width**-0.5)
        with torch.no_grad():
            self.table.weight[PAD] = 0
        self.drop = nn.Dropout(dropout)

    def forward(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T C"]:
        """Return the vectors of symbols at positions 0 to T - 1."""
        width = self.table.weight.shape[1]
        encodings = sinusoidal(ids.shape[1], width, device=ids.device)
        encodings = encodings.to(self.table.weight)
        return self.drop(self.table(ids) * width**0.5 + encodings)


class TransformerEncoder(nn.Module):
    """Self-attention blocks over the source symbols."""

    def __init__(self, symbols: int, size: Size, limit: int = 512):
        super().__init__()
        self.embed = Embedding(symbols, size.width, size.dropout)
        self.blocks = size.stack(EncoderBlock)
        self.norm = size.residual.make_final_norm(size.width)
        self.limit = limit

    def forward(self, source: Int[Tensor, "B S"], lengths: Int[Tensor, " B"]) -> Memory:
        """Return the states; padding is masked out, and its states are 0.

        Raises:
            ValueError: on a length of zero, one beyond the tensor, or a source
                longer than the model's limit.
        """
        require_lengths(source, lengths, self.limit)
        x = self.embed(source)
        real = torch.arange(source.shape[1], device=x.device) < lengths[:, None]
        for block in self.blocks:
            x = block(x, real[:, None, None])
        states = self.norm(x) * real[..., None]
        return Memory(states, states.sum(1) / lengths[:, None], lengths)


class TransformerDecoder(nn.Module):
    """Causal self-attention and cross-attention blocks over the target symbols.

    Its state is the symbols generated so far, which every step processes again.
    (A KV cache avoids that; it is the subject of chapter 13.)
    """

    def __init__(self, symbols: int, size: Size):
        super().__init__()
        self.embed = Embedding(symbols, size.width, size.dropout)
        self.blocks = size.stack(DecoderBlock)
        self.norm = size.residual.make_final_norm(size.width)

    def forward(self, previous: Int[Tensor, "B T"], memory: Memory) -> DecoderOutput:
        """Return logits of every next symbol, and the last block's weights.

        The weights are the mean over the heads. The output layer is tied to the
        embedding.
        """
        x = self.embed(previous)
        causal = causal_mask(previous.shape[1], previous.shape[1], x.device)
        real, weights = memory.padding_mask()[:, None, None], None
        for block in self.blocks:
            x, weights = block(x, memory.states, causal, real)
        logits = self.norm(x) @ self.embed.table.weight.T
        return DecoderOutput(logits, None if weights is None else weights.mean(1))

    def start(self, memory: Memory) -> tuple[Int[Tensor, "B 0"]]:
        """Return the first state: no symbols yet."""
        return (memory.lengths.new_empty(len(memory.lengths), 0),)

    def step(
        self,
        previous: Int[Tensor, " B"],
        state: tuple[Int[Tensor, "B P"]],
        memory: Memory,
    ) -> tuple[Float[Tensor, "B V"], tuple[Tensor], Float[Tensor, "B S"]]:
        """Return logits of the next symbol, the symbols so far, weights."""
        symbols = torch.cat([state[0], previous[:, None]], dim=1)
        logits, weights = self(symbols, memory)
        return logits[:, -1], (symbols,), weights[:, -1]


def transformer(sources: int, targets: int, size: Size) -> EncoderDecoder:
    """Return a Transformer for these numbers of source and target symbols."""
    return EncoderDecoder(
        TransformerEncoder(sources, size), TransformerDecoder(targets, size)
    )
