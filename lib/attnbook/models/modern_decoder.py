"""A decoder-only Transformer as Llama and SmolLM2 have it, with a KV cache.

Pre-norm with RMSNorm, grouped-query attention with rotary embeddings, a SwiGLU
network, tied embeddings, no biases: chapter 9's block without QK-norm.

Source: Touvron et al. (2023), section 2.2, https://arxiv.org/abs/2302.13971;
    grouped queries in the same block: Touvron et al. (2023), Llama 2, section
    2.2, https://arxiv.org/abs/2307.09288; SmolLM2: Allal et al. (2025),
    https://arxiv.org/abs/2502.02737. Departure: the embeddings are tied, as in
    SmolLM2-135M.
    Rotary embeddings rotate neighboring columns (2i, 2i + 1), as in the papers
    and in GGUF files; weights for transformers, which rotates columns i and
    i + D / 2, have the rows of their query and key projections permuted.
Axes: B batch, T positions, S = T + those in the cache, H heads, G groups
    (key-value heads), C model width, D = C / H width of a head, F hidden width,
    V symbols
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attnbook.models.layer_norm import RMSNorm
from attnbook.models.modern_block import (
    CachedBlock,
    CachedLanguageModel,
    RotaryAttention,
    SwiGLU,
)


@dataclass(frozen=True)
class DecoderConfig:
    """The sizes of a decoder, and its two constants.

    Attributes:
        symbols: V.
        width: C.
        heads: H; each is C / H wide.
        groups: G, the key-value heads.
        hidden: F.
        blocks: how many.
        base: of the rotary frequencies, often called θ.
        eps: ε of every RMSNorm.

    Raises:
        ValueError: if a size is below 1.
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
    """Symbol embeddings as they are: not multiplied by √C, no padding symbol.

    Args:
        symbols: V.
        width: C.
    """

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

    Args:
        config: its sizes.
        attention: the class of the attention, which a variant derives from
            `RotaryAttention`; called with width, heads, groups, bias and base.
    """

    def __init__(
        self,
        config: DecoderConfig,
        attention: type[RotaryAttention] = RotaryAttention,
    ):
        width = config.width
        super().__init__(
            SymbolEmbedding(config.symbols, width),
            [
                CachedBlock(
                    attention(
                        width,
                        config.heads,
                        config.groups,
                        bias=False,
                        base=config.base,
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


@torch.no_grad()
def decode_greedily(
    model: CachedLanguageModel,
    ids: Int[Tensor, "B T"],
    count: int,
    mask: Bool[Tensor, "B 1 1 T"] | None = None,
) -> Int[Tensor, "B _"]:
    """Return ids with `count` more symbols, each the most probable one.

    Every symbol passes through the model once: the KV cache has the rest. Rotary
    embeddings depend on distances only, so padding at the beginning needs no
    other positions.

    Args:
        model: a decoder with a cache.
        ids: the beginning, at least one symbol.
        count: how many symbols to add.
        mask: True where a symbol of the beginning is not padding, which must be
            before the symbols; no symbol is padding unless given.

    Raises:
        ValueError: on an empty beginning, a negative count, a mask of another
            shape, or padding at the end.
    """
    if not ids.shape[1] or count < 0:
        raise ValueError(
            f"decoding needs at least 1 symbol and a count of at least 0, not "
            f"{ids.shape[1]} symbols and a count of {count}"
        )
    if mask is not None:
        require_left_padding(mask, ids)
    new, caches = ids, None
    for _ in range(count):
        logits, caches = model.decode(new, caches, mask)
        new = logits[:, -1:].argmax(-1)
        ids = torch.cat([ids, new], dim=1)
        if mask is not None:
            mask = nn.functional.pad(mask, (0, 1), value=True)
    return ids


def require_left_padding(
    mask: Bool[Tensor, "B 1 1 T"], ids: Int[Tensor, "B T"]
) -> None:
    """Raise ValueError unless a mask of ids has its padding at the beginning."""
    B, T = ids.shape
    if mask.shape != (B, 1, 1, T):
        raise ValueError(
            f"for ids {(B, T)} the mask must be {(B, 1, 1, T)}, but is "
            f"{tuple(mask.shape)}"
        )
    if not mask[..., -1].all() or (mask[..., :-1] & ~mask[..., 1:]).any():
        raise ValueError(
            "a sequence that goes on needs its padding at the beginning: the mask "
            "must be False, then True, and True at the end"
        )
