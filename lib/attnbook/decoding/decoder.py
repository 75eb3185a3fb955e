"""A decoder of chapter 9 that keeps its keys and values in any cache.

Rotation angles and mask depend on positions only: they are made once for all layers of
a pass. In a layer, only the new symbols are projected, and their queries attend to what
the cache returns.

Axes: B sequences, T new symbols, S keys, C model width, P rotary pairs, V symbols
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attnbook.attention.multi_head import MultiHeadAttention
from attnbook.decoding.caches import Cache
from attnbook.models.modern_decoder import CachedLanguageModel, RotaryAttention
from attnbook.positions.rotary import apply_rotary, rotary_angles, rotary_frequencies


def mark_visible(
    query_positions: Int[Tensor, "_ T"],
    key_positions: Int[Tensor, "_ S"],
    window: int | None = None,
    sinks: int = 0,
) -> Bool[Tensor, "_ 1 T S"]:
    """Return True where a query can attend to a key, both by their positions.

    Keys are not later than the query; with a window, they are among the last `window`
    positions, the query's included, or among the first `sinks`. Position -1 is none.
    """
    query, key = query_positions[:, None, :, None], key_positions[:, None, None]
    visible = (key >= 0) & (key <= query)
    if window is not None:
        visible &= (key > query - window) | (key < sinks)
    return visible


class Pass(NamedTuple):
    """What all layers of a pass share: rotation angles, mask, and the cache."""

    angle: Float[Tensor, "_ 1 T P"]
    mask: Bool[Tensor, "_ 1 T S"] | None
    cache: Cache


def attend_rotary(
    attention: RotaryAttention, x: Float[Tensor, "B T C"], layer: int, shared: Pass
) -> Float[Tensor, "B T C"]:
    """Return a layer's attention of new positions, whose keys go to the cache."""
    query, key, value = MultiHeadAttention.project(attention, x, x)  # not yet rotated
    query, key = attention.normalize(query, key)
    query, key = (apply_rotary(y, shared.angle) for y in (query, key))
    keys, values = shared.cache.update(layer, key, value)
    return attention.attend(query, keys, values, shared.mask)[0]


def choose_attend(attention: nn.Module) -> Callable[..., Tensor]:
    """Return what computes a layer; refuse a class that `attend_rotary` bypasses."""
    if hasattr(attention, "attend_cached"):
        return attention.attend_cached
    kind = type(attention)
    for name in "project", "decode":
        if getattr(kind, name, None) is not getattr(RotaryAttention, name):
            raise ValueError(
                f"{kind.__name__} has its own {name}: a cached decoder knows only that "
                "of RotaryAttention"
            )
    return partial(attend_rotary, attention)


class CachedDecoder:
    """A decoder, and the positions that its queries can attend to.

    Args:
        model: a decoder of chapter 9, or one with multi-head latent attention.
        window: how many keys a query can attend to, itself included; all unless given.
        sinks: how many first keys it can attend to besides.
    """

    def __init__(
        self, model: CachedLanguageModel, window: int | None = None, sinks: int = 0
    ):
        if sinks < 0 or (window is not None and window < 1):
            raise ValueError(
                f"a window has at least 1 key and 0 sinks, not {window} and {sinks}"
            )
        self.model, self.window, self.sinks = model, window, sinks
        self.table = model.embed.get_parameter("table.weight")
        self.symbols = len(self.table)
        attentions = [block.attention for block in model.blocks]
        self.attend = [choose_attend(x) for x in attentions]
        self.feed_forward = [block.feed_forward for block in model.blocks]
        first, bases = attentions[0], {x.base for x in attentions}
        if len(bases) > 1:
            raise ValueError(f"all layers need one rotary base, not {sorted(bases)}")
        width = getattr(first, "rotary", None) or first.key.out_features // first.groups
        like = self.table.new_empty(width)
        self.frequencies = rotary_frequencies(like, first.base)

    def __call__(
        self,
        ids: Int[Tensor, "B T"],
        cache: Cache,
        mask: Bool[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B T V"]:
        """Return logits of new symbols; everything else as in `run`."""
        return self.predict(self.run(ids, cache, mask))

    @torch.no_grad()
    def predict(self, hidden: Float[Tensor, "*B C"]) -> Float[Tensor, "*B V"]:
        """Return the logits of what `run` returns."""
        return hidden @ self.table.T

    @torch.no_grad()
    def run(
        self,
        ids: Int[Tensor, "B T"],
        cache: Cache,
        mask: Bool[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B T C"]:
        """Add symbols to the cache; return their vectors, normalized.

        What is returned at padding has no meaning.

        Args:
            mask: True where a symbol is not padding, which is on either side.

        Raises:
            ValueError: if ids, mask and cache do not fit each other, or there is no
                room; the cache is then as before.
        """
        self.require_fit(ids, cache, mask)
        x = self.model.embed(ids)  # which refuses unknown symbols
        positions = cache.reserve(ids.shape[1], mask)
        visible = mark_visible(positions, cache.key_positions, self.window, self.sinks)
        visible = None if visible.all() else visible.to(ids.device)
        # At padding, too, there must be an angle.
        places = positions.clamp(min=0)[:, None].to(ids.device)
        shared = Pass(rotary_angles(places, self.frequencies), visible, cache)
        for layer, block in enumerate(self.model.blocks):
            x = x + self.attend[layer](block.norms[0](x), layer, shared)
            x = x + self.feed_forward[layer](block.norms[1](x))
        return self.model.norm(x)

    def require_fit(self, ids: Tensor, cache: Cache, mask: Tensor | None) -> None:
        """Raise ValueError unless ids, mask and cache fit each other."""
        if len(cache.lengths) != len(ids):
            raise ValueError(
                f"there are {len(ids)} rows of symbols, but the cache has "
                f"{len(cache.lengths)} sequences"
            )
        if mask is not None and mask.shape != ids.shape:
            raise ValueError(
                f"symbols are {tuple(ids.shape)}, but their mask {tuple(mask.shape)}"
            )
        kept, sinks = cache.window, cache.sinks
        if kept and (not self.window or self.window > kept or self.sinks > sinks):
            raise ValueError(
                f"the decoder attends to {self.window or 'all'} keys and {self.sinks} "
                f"sinks, but the cache keeps the newest {kept} and {sinks}"
            )
