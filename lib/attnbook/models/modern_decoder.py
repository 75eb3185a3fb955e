"""Decoders as of the 2020s: RMSNorm, rotary embeddings, SwiGLU and a KV cache.

`ModernLanguageModel` is chapter 9's, with QK-norm. `ModernDecoder` is that of Llama and
SmolLM2: no QK-norm, and embeddings that are not multiplied by √C.

Source: SwiGLU: Shazeer (2020), section 2, equation 6, https://arxiv.org/abs/2002.05202;
    pre-norm, RMSNorm, SwiGLU and rotary embeddings together: Touvron et al. (2023),
    section 2.2, https://arxiv.org/abs/2302.13971; grouped queries in the same block:
    Touvron et al. (2023), Llama 2, section 2.2, https://arxiv.org/abs/2307.09288;
    QK-norm as well: Yang et al. (2025), section 2, https://arxiv.org/abs/2505.09388;
    SmolLM2: Allal et al. (2025), https://arxiv.org/abs/2502.02737. Departures: tied
    embeddings, as in SmolLM2-135M; in `ModernLanguageModel` they are multiplied by √C,
    as in the paper of 2017.
Axes: B batch, T positions, P positions in the cache, S = P + T, H heads, G
    groups (key-value heads), C model width, D width of a head, F hidden width,
    V symbols
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attnbook.attention.multi_head import GroupedQueryAttention
from attnbook.attention.self_attention import causal_mask
from attnbook.models.transformer import Embedding, RMSNorm
from attnbook.positions.rotary import rotate

Cache = tuple[Tensor, Tensor]  # keys and values, each (B, G, P, D)


class TokenEmbedding(Embedding):
    """Symbol embeddings times √C, without positional encodings."""

    def forward(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T C"]:
        """Return the vectors of symbols."""
        return self.drop(self.table(ids) * self.table.weight.shape[1] ** 0.5)


class SwiGLU(nn.Module):
    """Gated feed-forward network: down(SiLU(gate(x)) * up(x)).

    A hidden width F of 8/3 C gives as many weights as 4 C without a gate.
    """

    def __init__(self, width: int, hidden: int, bias: bool = False):
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias)
        self.up = nn.Linear(width, hidden, bias)
        self.down = nn.Linear(hidden, width, bias)

    def forward(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T C"]:
        """Return each position's vector, passed through the network."""
        return self.down(F.silu(self.gate(x)) * self.up(x))


class RotaryAttention(GroupedQueryAttention):
    """Grouped-query self-attention with rotary embeddings of a base (often θ).

    Variants override `normalize`, which comes before the rotation.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        groups: int,
        bias: bool = True,
        base: float | int = 10000.0,
    ):
        super().__init__(width, heads, groups, bias)
        self.base = base

    def normalize(
        self, query: Float[Tensor, "B H T D"], key: Float[Tensor, "B G T D"]
    ) -> tuple[Tensor, Tensor]:
        """Return queries and keys as they are rotated: unchanged here."""
        return query, key

    def project(
        self,
        query: Float[Tensor, "B T C"],
        memory: Float[Tensor, "B T C"],
        start: int = 0,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return rotated queries and keys, and values, of positions from `start` on.

        `memory` is the same as `query`, since this is self-attention.
        """
        queries, keys, values = super().project(query, memory)
        queries, keys = self.normalize(queries, keys)
        stop = start + query.shape[1]
        positions = torch.arange(start, stop, device=query.device)
        queries, keys = (rotate(x, positions, self.base) for x in (queries, keys))
        return queries, keys, values

    def decode(
        self,
        x: Float[Tensor, "B T C"],
        cache: Cache | None = None,
        mask: Bool[Tensor, "..."] | None = None,
    ) -> tuple[Float[Tensor, "B T C"], Cache]:
        """Return causal attention of new positions, and the longer cache.

        The mask, True where a query can attend to a key that is not later, broadcasts
        to (B, H, T, S).
        """
        past = 0 if cache is None else cache[0].shape[2]
        query, key, value = self.project(x, x, past)
        if cache is not None:
            key = torch.cat([cache[0], key], dim=2)
            value = torch.cat([cache[1], value], dim=2)
        causal = causal_mask(query.shape[2], key.shape[2], x.device)
        mask = causal if mask is None else causal & mask
        output, _ = self.attend(query, key, value, mask)
        return output, (key, value)


class ModernAttention(RotaryAttention):
    """Grouped-query attention with QK-norm and rotary embeddings, no biases."""

    def __init__(self, width: int, heads: int, groups: int):
        super().__init__(width, heads, groups, bias=False)
        self.norms = nn.ModuleList(RMSNorm(width // heads) for _ in range(2))

    def normalize(
        self, query: Float[Tensor, "B H T D"], key: Float[Tensor, "B G T D"]
    ) -> tuple[Tensor, Tensor]:
        """Return queries and keys, each divided by its root mean square."""
        return self.norms[0](query), self.norms[1](key)


class CachedBlock(nn.Module):
    """Pre-norm block: attention, then the network, each after an RMSNorm.

    The attention is a module with the `decode` of `RotaryAttention`.
    """

    attention: Any

    def __init__(
        self,
        attention: nn.Module,
        feed_forward: nn.Module,
        width: int,
        eps: float = 1e-5,
    ):
        super().__init__()
        self.attention = attention
        self.feed_forward = feed_forward
        self.norms = nn.ModuleList(RMSNorm(width, eps) for _ in range(2))

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        cache: Cache | None = None,
        mask: Bool[Tensor, "..."] | None = None,
    ) -> tuple[Float[Tensor, "B T C"], Cache]:
        """Return x after both sublayers, and the longer cache."""
        output, cache = self.attention.decode(self.norms[0](x), cache, mask)
        x = x + output
        return x + self.feed_forward(self.norms[1](x)), cache


class ModernBlock(CachedBlock):
    """Pre-norm block with QK-norm: attention, then SwiGLU."""

    def __init__(self, width: int, heads: int, groups: int, hidden: int):
        attention = ModernAttention(width, heads, groups)
        super().__init__(attention, SwiGLU(width, hidden), width)


class CachedLanguageModel(nn.Module):
    """Blocks with a KV cache between a tied embedding and output layer.

    The output layer shares the weights of `embed.table`, an `nn.Embedding` (V, C).
    """

    def __init__(
        self, embed: nn.Module, blocks: Iterable[CachedBlock], norm: nn.Module
    ):
        super().__init__()
        self.embed, self.blocks = embed, nn.ModuleList(blocks)
        self.norm = norm

    def decode(
        self,
        ids: Int[Tensor, "B T"],
        caches: Sequence[Cache | None] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
    ) -> tuple[Float[Tensor, "B T V"], list[Cache]]:
        """Return logits of new symbols, and the cache of each block.

        `caches` is what the call before returned; the mask broadcasts to (B, H, T, S):
        for padding, it is real[:, None, None] of the keys, (B, 1, 1, S).
        """
        x = self.embed(ids)
        longer: list[Cache] = []
        for block, cache in zip(
            self.blocks, caches or [None] * len(self.blocks), strict=True
        ):
            x, cache = block(x, cache, mask)
            longer.append(cache)
        table = self.embed.get_parameter("table.weight")
        return self.norm(x) @ table.T, longer

    def forward(
        self, ids: Int[Tensor, "B T"], mask: Bool[Tensor, "..."] | None = None
    ) -> Float[Tensor, "B T V"]:
        """Return logits: at each position, of the next symbol."""
        return self.decode(ids, mask=mask)[0]


class ModernLanguageModel(CachedLanguageModel):
    """Modern blocks between a tied embedding and output layer."""

    def __init__(
        self,
        symbols: int,
        width: int,
        heads: int,
        groups: int,
        hidden: int,
        blocks: int,
    ):
        super().__init__(
            TokenEmbedding(symbols, width),
            [ModernBlock(width, heads, groups, hidden) for _ in range(blocks)],
            RMSNorm(width),
        )


@dataclass(frozen=True)
class DecoderConfig:
    """The sizes of a decoder; the base of the rotary frequencies; ε of every RMSNorm.

    `symbols` is V, `width` C, `heads` H, `groups` G, `hidden` F.
    """

    symbols: int
    width: int
    heads: int
    groups: int
    hidden: int
    blocks: int
    base: float = 10000.0
    eps: float = 1e-5

    def __post_init__(self) -> None:
        for name, size in vars(self).items():
            if name not in ("base", "eps") and size < 1:
                raise ValueError(f"{name} must be at least 1, not {size}")


class SymbolEmbedding(nn.Module):
    """Symbol embeddings as they are: not multiplied by √C, no padding symbol."""

    def __init__(self, symbols: int, width: int):
        super().__init__()
        self.table = nn.Embedding(symbols, width)
        # The output layer shares these weights; so small, all symbols are
        # nearly equally probable before training.
        nn.init.normal_(self.table.weight, std=0.02)

    def forward(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T C"]:
        """Return the vectors of symbols."""
        return self.table(ids)


class ModernDecoder(CachedLanguageModel):
    """Decoder-only Transformer with the architecture of Llama and SmolLM2.

    A variant derives its class of attention from `RotaryAttention`.
    """

    def __init__(
        self, config: DecoderConfig, attention: type[RotaryAttention] = RotaryAttention
    ):
        width = config.width
        super().__init__(
            SymbolEmbedding(config.symbols, width),
            [
                CachedBlock(
                    attention(
                        width, config.heads, config.groups, bias=False, base=config.base
                    ),
                    SwiGLU(width, config.hidden),
                    width,
                    config.eps,
                )
                for _ in range(config.blocks)
            ],
            RMSNorm(width, config.eps),
        )
        self.config = config
