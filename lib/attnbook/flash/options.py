"""Options of `flash_attention`, and scores of tiles under these options.

Source: soft-cap: Gemma 2 (2024), section 2, https://arxiv.org/abs/2408.00118;
    ALiBi: Press et al. (2022), section 3, https://arxiv.org/abs/2108.12409;
    the others: `attnbook.masks`
Axes: B batch, H heads, G groups (key-value heads), R query heads a group, T
    queries, S keys
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from attnbook.attention.tiled import TileScores, promote_to_float32


@dataclass(frozen=True)
class Options:
    """The arguments of `flash_attention` of the same names."""

    causal: bool = False
    window: int | None = None
    key_lengths: Tensor | None = None
    alibi_slopes: Tensor | None = None
    softcap: float | None = None
    scale: float | None = None

    def factor(self, width: int) -> float:
        """Return the scale of the dot products of vectors of this width."""
        return width**-0.5 if self.scale is None else float(self.scale)

    def numbers(
        self, width: int, keys: int
    ) -> tuple[bool, int | None, float | None, float]:
        """Return causal, window, soft-cap and scale for the operators.

        A window is reduced to the number of keys, which has the same effect and
        fits into the 32 or 64 bits of a kernel's integers.
        """
        window = self.window and min(self.window, keys)
        softcap = None if self.softcap is None else float(self.softcap)
        return bool(self.causal), window, softcap, self.factor(width)


class MaskedTileScores(TileScores):
    """Scores of a tile with soft-cap, ALiBi and mask.

    Queries have the shape (B, G, R, T, D), keys (B, G, 1, S, D).
    """

    def __init__(self, query: Tensor, key: Tensor, options: Options):
        super().__init__(key.shape[-2], options.factor(query.shape[-1]))
        self.options, self.shift = options, key.shape[-2] - query.shape[-2]
        self.lengths = self.slopes = None
        if options.key_lengths is not None:
            self.lengths = options.key_lengths.view(-1, 1, 1, 1, 1)
            # Tiles beyond every length are skipped where that needs no sync.
            if self.lengths.device.type == "cpu":
                self.keys = int(self.lengths.max())
        if options.alibi_slopes is not None:
            slopes = promote_to_float32(options.alibi_slopes).to(
                promote_to_float32(query)
            )
            B, G, R = query.shape[:3]
            slopes = slopes.expand(B, G * R)
            self.slopes = slopes.reshape(B, G, R, 1, 1)

    def key_range(self, first: int, stop: int) -> tuple[int, int]:
        """Return which keys queries first ... stop - 1 can attend to."""
        low, high = 0, self.keys
        if self.options.causal or self.options.window:
            high = max(0, min(high, stop + self.shift))
        if self.options.window:
            low = max(0, first + self.shift - self.options.window + 1)
        return low, high

    def compute(
        self, query: Tensor, key: Tensor, row: int, column: int
    ) -> tuple[Tensor, Tensor | float]:
        """Return a tile's scores, and their derivatives by the dot products."""
        scores, slope = super().compute(query, key, row, column)
        if self.options.softcap is not None:
            squashed = (scores / self.options.softcap).tanh()
            scores = self.options.softcap * squashed
            slope = slope * (1 - squashed**2)
        device = query.device
        columns = column + torch.arange(key.shape[-2], device=device)
        first = row + self.shift
        back = first + torch.arange(query.shape[-2], device=device)[:, None]
        back = back - columns
        if self.slopes is not None:
            scores = scores - self.slopes * back.abs()
        masked_out = self.masked_out(back, columns)
        if masked_out is not None:
            scores = scores.masked_fill(masked_out, -torch.inf)
        return scores, slope

    def masked_out(self, back: Tensor, columns: Tensor) -> Tensor | None:
        """Return True at keys that a query of the tile cannot attend to.

        Args:
            back: query position minus key position.
            columns: the positions of the keys.
        """
        rules = []
        if self.options.causal or self.options.window:
            rules.append(back < 0)
        if self.options.window:
            rules.append(back >= self.options.window)
        if self.lengths is not None:
            rules.append(columns >= self.lengths)
        if not rules:
            return None
        masked_out = rules[0]
        for rule in rules[1:]:
            masked_out = masked_out | rule
        return masked_out
