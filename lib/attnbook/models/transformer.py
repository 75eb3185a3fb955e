"""The Transformer: its norms, blocks, encoder and decoder, and a language model.

Encoder and decoder work with chapter 1's `EncoderDecoder`, training and search.

Source: Vaswani et al. (2017), sections 3.1, 3.3 to 3.5,
    https://arxiv.org/abs/1706.03762; source and target have separate embeddings, as
    their vocabularies differ, and the target's is tied to the output layer. Layer
    norm: Ba, Kiros and Hinton (2016), section 3, equation 4,
    https://arxiv.org/abs/1607.06450; RMSNorm: Zhang and Sennrich (2019), section 3,
    equation 4, https://arxiv.org/abs/1910.07467; ε is under the root, as in PyTorch.
    Pre-norm: Xiong et al. (2020), section 3, https://arxiv.org/abs/2002.04745. The
    language model: Radford et al. (2018), section 3.1, with sinusoidal positions,
    https://cdn.openai.com/research-covers/language-unsupervised/language_understanding_paper.pdf
    QK-norm: Dehghani et al. (2023), section 2, https://arxiv.org/abs/2302.05442, with
    biases in the norms; the soft cap of scores: Gemma Team (2024), section 2,
    https://arxiv.org/abs/2408.00118
Axes: B batch, H heads, T queries or target symbols, S keys or source symbols, C model
    width, D width of a head, F hidden width, V symbols
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attnbook.attention.multi_head import MultiHeadAttention
from attnbook.attention.self_attention import causal_mask
from attnbook.data.vocabulary import PAD
from attnbook.models.recurrent import (
    DecoderOutput,
    EncoderDecoder,
    Memory,
    require_lengths,
)
from attnbook.positions.absolute import sinusoidal


def layer_norm(
    x: Float[Tensor, "*B C"],
    gain: Float[Tensor, " C"],
    bias: Float[Tensor, " C"],
    eps: float = 1e-5,
) -> Float[Tensor, "*B C"]:
    """Return gain · (x - mean) / √(variance + eps) + bias, vector by vector.

    The variance is the mean of the squares, divided by C and not by C - 1.
    """
    centered = x - x.mean(dim=-1, keepdim=True)
    variance = centered.square().mean(dim=-1, keepdim=True)
    return centered * (variance + eps).rsqrt() * gain + bias


class LayerNorm(nn.Module):
    """Layer normalization with a learned gain and bias; ε is added to the variance."""

    def __init__(self, width: int, eps: float = 1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.eps = eps

    def forward(self, x: Float[Tensor, "*B C"]) -> Float[Tensor, "*B C"]:
        """Return each vector normalized."""
        return layer_norm(x, self.weight, self.bias, self.eps)


class RMSNorm(nn.Module):
    """Division by the root mean square, with a learned gain; ε is under the root."""

    def __init__(self, width: int, eps: float = 1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Float[Tensor, "*B C"]) -> Float[Tensor, "*B C"]:
        """Return each vector, divided by its root mean square."""
        mean_square = x.square().mean(dim=-1, keepdim=True)
        return x * (mean_square + self.eps).rsqrt() * self.weight


Sublayer = Callable[[Tensor], Tensor]


class PostNorm(nn.Module):
    """Post-norm residual connection: norm(x + sublayer(x)), dropout on the sublayer."""

    norm: nn.Module

    def __init__(self, width: int, dropout: float = 0.0):
        super().__init__()
        self.norm, self.drop = LayerNorm(width), nn.Dropout(dropout)

    def forward(
        self, x: Float[Tensor, "B T C"], sublayer: Sublayer
    ) -> Float[Tensor, "B T C"]:
        """Return the normalized sum of x and the sublayer's output."""
        return self.norm(x + self.drop(sublayer(x)))

    @staticmethod
    def make_final_norm(width: int) -> nn.Module:
        """Return the layer after the last block: none, it ends with a norm."""
        return nn.Identity()


class PreNorm(PostNorm):
    """Pre-norm residual connection: x + sublayer(norm(x))."""

    def forward(
        self, x: Float[Tensor, "B T C"], sublayer: Sublayer
    ) -> Float[Tensor, "B T C"]:
        """Return the sum of x and the sublayer's output for normalized x."""
        return x + self.drop(sublayer(self.norm(x)))

    @staticmethod
    def make_final_norm(width: int) -> nn.Module:
        """Return the layer after the last block: a norm of the residual sum."""
        return LayerNorm(width)


class FeedForward(nn.Module):
    """Position-wise feed-forward network: C to F (4 C in the paper), ReLU, F to C."""

    def __init__(self, width: int, hidden: int, dropout: float = 0.0):
        super().__init__()
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T C"]:
        """Return each position's vector, passed through the network."""
        return self.down(self.drop(F.relu(self.up(x))))


class Block(nn.Module):
    """Attentions and a feed-forward network, each with a residual connection.

    `hidden` is F; the residual connection is `PostNorm` or `PreNorm`.
    """

    attention: MultiHeadAttention
    attentions: tuple[str, ...] = ("attention",)

    def __init__(
        self,
        width: int,
        heads: int,
        hidden: int,
        dropout: float = 0.0,
        residual: type[nn.Module] = PostNorm,
    ):
        super().__init__()
        for name in self.attentions:
            self.add_module(name, MultiHeadAttention(width, heads, dropout=dropout))
        self.feed_forward = FeedForward(width, hidden, dropout)
        sublayers = len(self.attentions) + 1
        self.residuals = nn.ModuleList(
            residual(width, dropout) for _ in range(sublayers)
        )


class EncoderBlock(Block):
    """Self-attention, then the feed-forward network."""

    def forward(
        self, x: Float[Tensor, "B T C"], mask: Bool[Tensor, "..."] | None = None
    ) -> Float[Tensor, "B T C"]:
        """Return x after both sublayers; True in the mask = can attend."""
        first, second = self.residuals
        x = first(x, lambda y: self.attention(y, mask=mask))
        return second(x, self.feed_forward)


class DecoderBlock(Block):
    """Causal self-attention, attention to the memory, feed-forward network.

    Queries of the second attention, `cross`, come from the decoder, keys and values
    from the encoder.
    """

    cross: MultiHeadAttention
    attentions = "attention", "cross"

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        memory: Float[Tensor, "B S C"],
        mask: Bool[Tensor, "..."] | None = None,
        memory_mask: Bool[Tensor, "..."] | None = None,
    ) -> tuple[Float[Tensor, "B T C"], Float[Tensor, "B H T S"]]:
        """Return x after all three sublayers, and cross-attention weights."""
        first, second, third = self.residuals
        recorded: list[Tensor] = []

        def cross_attend(y: Tensor) -> Tensor:
            output, weights = self.cross(y, memory, memory_mask, True)
            recorded.append(weights)
            return output

        x = first(x, lambda y: self.attention(y, mask=mask))
        x = second(x, cross_attend)
        return third(x, self.feed_forward), recorded[0]


@dataclass(frozen=True)
class Size:
    """The hyperparameters of a Transformer: `width` C, `heads` H, `hidden` F.

    `blocks` is their number in the encoder, and in the decoder.
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

    The entries start with standard deviation 1/√C, so that the tied output layer gives
    logits of size 1; times √C they are as large as the positional encodings.
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
        """Return the states, 0 at padding; errors as in `require_lengths`."""
        require_lengths(source, lengths, self.limit)
        x = self.embed(source)
        real = torch.arange(source.shape[1], device=x.device) < lengths[:, None]
        for block in self.blocks:
            x = block(x, real[:, None, None])
        states = self.norm(x) * real[..., None]
        return Memory(states, states.sum(1) / lengths[:, None], lengths)


class TransformerDecoder(nn.Module):
    """Causal self-attention and cross-attention blocks over the target symbols.

    Its state is the symbols generated so far, which every step processes again; a KV
    cache avoids that.
    """

    def __init__(self, symbols: int, size: Size):
        super().__init__()
        self.embed = Embedding(symbols, size.width, size.dropout)
        self.blocks = size.stack(DecoderBlock)
        self.norm = size.residual.make_final_norm(size.width)

    def forward(self, previous: Int[Tensor, "B T"], memory: Memory) -> DecoderOutput:
        """Return logits of every next symbol, and the last block's mean weights.

        The mean is over the heads; the output layer is tied to the embedding.
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


class LanguageModel(nn.Module):
    """Causal Transformer blocks with tied input and output embeddings."""

    def __init__(self, symbols: int, size: Size):
        super().__init__()
        self.embed = Embedding(symbols, size.width, size.dropout)
        self.blocks = size.stack(EncoderBlock)
        self.norm = size.residual.make_final_norm(size.width)

    def forward(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
        """Return logits: at each position, of the next symbol."""
        x = self.embed(ids)
        mask = causal_mask(ids.shape[1], ids.shape[1], x.device)
        for block in self.blocks:
            x = block(x, mask)
        return self.norm(x) @ self.embed.table.weight.T


def soft_cap(scores: Float[Tensor, "*B S"], cap: float) -> Tensor:
    """Return cap · tanh(scores / cap); raise ValueError if the cap is not above 0."""
    if not cap > 0:
        raise ValueError(f"the cap must be above 0, not {cap}")
    return cap * torch.tanh(scores / cap)


class QKNormAttention(MultiHeadAttention):
    """Multi-head attention with layer-normalized queries and keys (QK-norm)."""

    def __init__(self, width: int, heads: int):
        super().__init__(width, heads)
        self.norms = nn.ModuleList(LayerNorm(width // heads) for _ in range(2))

    def scores(
        self, query: Float[Tensor, "B H T D"], key: Float[Tensor, "B H S D"]
    ) -> Float[Tensor, "B H T S"]:
        """Return the scores of normalized queries and keys."""
        return super().scores(self.norms[0](query), self.norms[1](key))
