"""The lightning indexer of DeepSeek Sparse Attention: which keys to attend to.

A few narrow heads score every key for a query; attention then uses the keys
with the largest scores only, the same ones in all heads of a layer. The score
of key s for query t is I_ts = Σ_j w_tj ReLU(q_tj · k_s): the weights w and the
queries q depend on position t, the keys k on s, and all heads share the keys.

Source: DeepSeek-AI (2025), DeepSeek-V3.2-Exp, equations 1 and 3 (the scores;
    their training while the model stays as it is),
    https://github.com/deepseek-ai/DeepSeek-V3.2-Exp, and `Indexer` in its
    inference/model.py: LayerNorm of the keys, rotary embeddings on some of
    the columns, and the factors 1/√D and 1/√H. Departures: q comes from the
    layer's input instead of a compressed query; no Hadamard transform and no
    8-bit numbers.
Axes: B batch, H heads of the attention, J heads of the indexer, T positions, R
    the queries among them that are scored, C model width, D width of the
    indexer's heads
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attnbook.masks.rules import check_positive
from attnbook.positions.rotary import rotate_partly


class LightningIndexer(nn.Module):
    """Scores of all keys for the queries of a layer.

    Args:
        width: C.
        heads: J.
        size: D, a multiple of 4: half of the columns are rotated.
        base: of the rotary frequencies.

    Raises:
        ValueError: if there is no head, or a size that is no multiple of 4.
    """

    def __init__(self, width: int, heads: int, size: int, base: float = 10000):
        super().__init__()
        check_positive(heads=heads, size=size)
        if size % 4:
            raise ValueError(
                f"half of the columns are rotated in pairs: their number must "
                f"be a multiple of 4, not {size}"
            )
        self.query = nn.Linear(width, heads * size, bias=False)
        self.key = nn.Linear(width, size, bias=False)
        self.norm = nn.LayerNorm(size, eps=1e-6)
        self.weight = nn.Linear(width, heads, bias=False)
        self.heads, self.size, self.base = heads, size, base

    def forward(
        self, x: Float[Tensor, "B T C"], rows: Int[Tensor, "R"] | None = None
    ) -> Float[Tensor, "B R T"]:
        """Return the scores of all keys.

        Args:
            x: the input of the layer.
            rows: the positions whose queries are scored; all unless given.
        """
        positions = torch.arange(x.shape[1], device=x.device)
        rows = positions if rows is None else rows
        asked = x[:, rows]
        query = self.query(asked).unflatten(-1, (self.heads, self.size))
        query = self.rotate(query.transpose(1, 2), rows)  # (B, J, R, D)
        key = self.rotate(self.norm(self.key(x))[:, None], positions)
        products = (query @ key.mT).relu()  # (B, J, R, T)
        weight = self.weight(asked).mT[..., None]  # (B, J, R, 1)
        scale = (self.heads * self.size) ** -0.5
        return (products * weight).sum(dim=1) * scale

    def rotate(
        self, x: Float[Tensor, "B J R D"], positions: Int[Tensor, "R"]
    ) -> Float[Tensor, "B J R D"]:
        """Return x with the first half of its columns rotated."""
        return rotate_partly(x, positions, self.size // 2, self.base)


def compute_indexer_loss(
    scores: Float[Tensor, "B R T"],
    weights: Float[Tensor, "B H R T"],
    mask: Bool[Tensor, "R T"],
) -> Float[Tensor, ""]:
    """Return the mean KL divergence of scores from the attention's weights.

    The target of a query is the mean of its weights over the heads.

    Args:
        scores: of the indexer.
        weights: of the attention; each query's sum to 1.
        mask: True where a query can attend.
    """
    target = weights.mean(dim=1)
    # A masked key has the target 0; 0 · log 0 is 0, but 0 · ∞ is NaN.
    predicted = scores.masked_fill(~mask, -torch.inf).log_softmax(dim=-1)
    predicted = predicted.masked_fill(~mask, 0.0)
    terms = torch.xlogy(target, target) - target * predicted
    return terms.sum(dim=-1).mean()
