"""What a call of `flash_attention` asks for, beside query, key and value.

Chapter: chapters/11_flash_attention
Source: soft-cap: Gemma 2 (2024), section 2, https://arxiv.org/abs/2408.00118;
    ALiBi: Press et al. (2022), section 3, https://arxiv.org/abs/2108.12409;
    the others: `attnbook.masks`
Axes: B batch, H heads, G groups (key-value heads), R query heads a group, T
    queries, S keys
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from attnbook.tiled import Scores, wide


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
        """Return what products of so wide vectors are multiplied by."""
        return width**-0.5 if self.scale is None else float(self.scale)


class Seen(Scores):
    """Scores under options: soft-cap, ALiBi, and who may look where.

    Queries come as (B, G, R, T, D), keys as (B, G, 1, S, D).
    """

    def __init__(self, query: Tensor, key: Tensor, options: Options):
        super().__init__(key.shape[-2], options.factor(query.shape[-1]))
        self.options, self.shift = options, key.shape[-2] - query.shape[-2]
        self.lengths = self.slopes = None
        if options.key_lengths is not None:
            self.lengths = options.key_lengths.view(-1, 1, 1, 1, 1)
            self.keys = int(self.lengths.max())
        if options.alibi_slopes is not None:
            slopes = wide(options.alibi_slopes).to(wide(query))
            B, G, R = query.shape[:3]
            slopes = slopes.expand(B, G * R)
            self.slopes = slopes.reshape(B, G, R, 1, 1)

    def reach(self, first: int, stop: int) -> tuple[int, int]:
        """Return which keys queries first ... stop - 1 may see at all."""
        low, high = 0, self.keys
        if self.options.causal or self.options.window:
            high = max(0, min(high, stop + self.shift))
        if self.options.window:
            low = max(0, first + self.shift - self.options.window + 1)
        return low, high

    def tile(
        self, query: Tensor, key: Tensor, row: int, column: int
    ) -> tuple[Tensor, Tensor | float]:
        """Return a tile's scores, and their derivatives by the products."""
        scores, slope = super().tile(query, key, row, column)
        if self.options.softcap is not None:
            bent = (scores / self.options.softcap).tanh()
            scores, slope = self.options.softcap * bent, slope * (1 - bent**2)
        here = query.device
        columns = column + torch.arange(key.shape[-2], device=here)
        first = row + self.shift
        back = first + torch.arange(query.shape[-2], device=here)[:, None]
        back = back - columns
        if self.slopes is not None:
            scores = scores - self.slopes * back.abs()
        hidden = self.hidden(back, columns)
        if hidden is not None:
            scores = scores.masked_fill(hidden, -torch.inf)
        return scores, slope

    def hidden(self, back: Tensor, columns: Tensor) -> Tensor | None:
        """Return True at keys that a query of a tile may not see.

        Args:
            back: how far each key stands behind each query.
            columns: the numbers of the keys.
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
        hidden = rules[0]
        for rule in rules[1:]:
            hidden = hidden | rule
        return hidden
