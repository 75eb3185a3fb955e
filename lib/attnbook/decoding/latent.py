"""Multi-head latent attention (MLA): all heads' keys and values from one latent.

A symbol leaves a latent and one rotary key in the cache. A head's key is W_key · latent
beside the rotary key, its value W_value · latent. The naive form computes these. The
absorbed form is the same product of matrices in another order: W_key is multiplied with
the query, and W_value with the average of the latents.

Source: DeepSeek-AI (2024), DeepSeek-V2, sections 2.1.2 and 2.1.3, appendix C,
    https://arxiv.org/abs/2405.04434, with an RMSNorm of the latent as in its published
    models; departure: queries without a latent of their own, as in DeepSeek-V2-Lite
Axes: B batch, H heads, T queries, S keys, C model width, Z width of a latent, N width
    of a head's query and key without position, R of their rotary part, E of its value
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from attnbook.attention.masked_softmax import softmax_over_keys
from attnbook.attention.multi_head import merge_heads, split_heads
from attnbook.attention.self_attention import causal_mask
from attnbook.decoding.decoder import Pass
from attnbook.models.modern_decoder import (
    Cache,
    CachedBlock,
    CachedLanguageModel,
    SwiGLU,
    SymbolEmbedding,
)
from attnbook.models.transformer import RMSNorm
from attnbook.positions.rotary import apply_rotary, rotary_angles, rotary_frequencies

Query = Float[Tensor, "B H T N"]
Turned = Float[Tensor, "B H T R"]
Latent = Float[Tensor, "B 1 S Z"]
RotaryKey = Float[Tensor, "B 1 S R"]
Mask = Bool[Tensor, "..."] | None


def attend_naive(
    query: Query,
    turned: Turned,
    latent: Latent,
    rotary_key: RotaryKey,
    W_key: Float[Tensor, "H N Z"],
    W_value: Float[Tensor, "H E Z"],
    mask: Mask = None,
) -> Float[Tensor, "B H T E"]:
    """Return attention to keys and values that are computed for every head.

    `query` is the part without position, `turned` the rotated one; the scale is
    1/√(N + R).
    """
    scale = (query.shape[-1] + turned.shape[-1]) ** -0.5
    key, value = latent @ W_key.mT, latent @ W_value.mT  # (B, H, S, N), (B, H, S, E)
    scores = (query * scale) @ key.mT + (turned * scale) @ rotary_key.mT
    return softmax_over_keys(scores, mask) @ value


def attend_absorbed(
    query: Query,
    turned: Turned,
    latent: Latent,
    rotary_key: RotaryKey,
    W_key: Float[Tensor, "H N Z"],
    W_value: Float[Tensor, "H E Z"],
    mask: Mask = None,
) -> Float[Tensor, "B H T E"]:
    """Return the same as `attend_naive`, with the latents as keys and values."""
    scale = (query.shape[-1] + turned.shape[-1]) ** -0.5
    absorbed = (query * scale) @ W_key  # (B, H, T, Z)
    scores = absorbed @ latent.mT + (turned * scale) @ rotary_key.mT
    average = softmax_over_keys(scores, mask) @ latent  # (B, H, T, Z)
    return average @ W_value.mT


@dataclass(frozen=True)
class LatentSizes:
    """The sizes of a layer: C, H, Z, N, R and E."""

    width: int
    heads: int
    latent: int
    content: int
    rotary: int
    value: int

    def count_products(self, T: int, S: int) -> dict[str, int]:
        """Return the multiplications of T queries and S keys in both forms."""
        Z, N, R, E = self.latent, self.content, self.rotary, self.value
        return {
            "naive": self.heads * (S * Z * (N + E) + T * S * (N + R + E)),
            "absorbed": self.heads * (T * Z * (N + E) + T * S * (2 * Z + R)),
        }


class LatentAttention(nn.Module):
    """A layer of multi-head latent attention; neighboring columns are rotated.

    Args:
        base: of the rotary frequencies.
        form: `attend_naive` or `attend_absorbed`; unless given, for each call the one
            with fewer multiplications.
    """

    def __init__(
        self,
        sizes: LatentSizes,
        base: float | int = 10000.0,
        form: Callable[..., Tensor] | None = None,
        eps: float = 1e-6,
    ):
        super().__init__()
        self.sizes, self.base, self.form = sizes, base, form
        self.rotary, self.cached_widths = sizes.rotary, (1, sizes.latent, sizes.rotary)
        C, H, Z = sizes.width, sizes.heads, sizes.latent
        self.query = nn.Linear(C, H * (sizes.content + sizes.rotary), bias=False)
        self.down = nn.Linear(C, Z + sizes.rotary, bias=False)
        self.norm = RMSNorm(Z, eps)
        self.up = nn.Linear(Z, H * (sizes.content + sizes.value), bias=False)
        self.output = nn.Linear(H * sizes.value, C, bias=False)

    def compress(
        self, x: Float[Tensor, "B T C"], angle: Float[Tensor, "... T P"]
    ) -> tuple[Float[Tensor, "B 1 T Z"], Float[Tensor, "B 1 T R"]]:
        """Return what the cache keeps of new symbols: latents and rotary keys."""
        latent, key = self.down(x).split([self.sizes.latent, self.rotary], dim=-1)
        return self.norm(latent)[:, None], apply_rotary(key[:, None], angle)

    def attend(
        self,
        x: Float[Tensor, "B T C"],
        angle: Float[Tensor, "... T P"],
        latent: Latent,
        rotary_key: RotaryKey,
        mask: Mask = None,
    ) -> Float[Tensor, "B T C"]:
        """Return attention of new symbols to everything in the cache."""
        sizes = self.sizes
        query, turned = split_heads(self.query(x), sizes.heads).split(
            [sizes.content, sizes.rotary], dim=-1
        )
        turned = apply_rotary(turned, angle)
        W_key, W_value = self.up.weight.unflatten(0, (sizes.heads, -1)).split(
            [sizes.content, sizes.value], dim=1
        )
        form = self.form
        if form is None:
            products = sizes.count_products(x.shape[1], latent.shape[2])
            naive = products["naive"] <= products["absorbed"]
            form = attend_naive if naive else attend_absorbed
        heads = form(query, turned, latent, rotary_key, W_key, W_value, mask)
        return self.output(merge_heads(heads))

    def decode(
        self, x: Float[Tensor, "B T C"], cache: Cache | None = None, mask: Mask = None
    ) -> tuple[Float[Tensor, "B T C"], Cache]:
        """Return causal attention of new positions, and the longer cache.

        As `RotaryAttention.decode`; the cache is latents and rotary keys.
        """
        past = 0 if cache is None else cache[0].shape[2]
        positions = torch.arange(past, past + x.shape[1], device=x.device)
        rates = rotary_frequencies(x.new_empty(self.rotary), self.base)
        angle = rotary_angles(positions, rates)
        new = self.compress(x, angle)
        if cache is not None:
            new = tuple(torch.cat(pair, 2) for pair in zip(cache, new, strict=True))
        causal = causal_mask(x.shape[1], new[0].shape[2], x.device)
        mask = causal if mask is None else causal & mask
        return self.attend(x, angle, *new, mask), new

    def attend_cached(
        self, x: Float[Tensor, "B T C"], layer: int, shared: Pass
    ) -> Float[Tensor, "B T C"]:
        """Return attention of new positions in a `CachedDecoder`."""
        found = shared.cache.update(layer, *self.compress(x, shared.angle))
        return self.attend(x, shared.angle, *found, shared.mask)


class LatentDecoder(CachedLanguageModel):
    """Chapter 9's blocks with multi-head latent attention; arguments as there."""

    def __init__(
        self,
        symbols: int,
        sizes: LatentSizes,
        hidden: int,
        blocks: int,
        base: float | int = 10000.0,
        form: Callable[..., Tensor] | None = None,
        eps: float = 1e-6,
    ):
        C = sizes.width
        attentions = [LatentAttention(sizes, base, form, eps) for _ in range(blocks)]
        super().__init__(
            SymbolEmbedding(symbols, C),
            [CachedBlock(x, SwiGLU(C, hidden), C, eps) for x in attentions],
            RMSNorm(C, eps),
        )
