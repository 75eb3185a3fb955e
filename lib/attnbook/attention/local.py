"""Global and local attention: to the whole memory, or to a window of it.

Each kind maps a query to a context vector: `key` projects the memory once for
each sentence, and calling it averages the memory with the attention weights.

Source: Luong et al. (2015), sections 3.1 and 3.2, equations 9 and 10,
    https://arxiv.org/abs/1508.04025. Departures: positions count from 0, so the
    predicted center is (S - 1) · sigmoid(...), between the first and the last
    position;
    the monotonic center stops at the last word; the window's half width D is
    `reach` here.
Axes: B batch, T queries (target steps), S keys (source symbols), M memory
    width, Dq query width
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attnbook.attention.masked_softmax import masked_softmax


def local_window(
    center: Float[Tensor, "B T"], length: int, reach: float | int
) -> Bool[Tensor, "B T S"]:
    """Return True where |s - center| <= reach, for s = 0 ... length - 1.

    Raises:
        ValueError: if the reach is negative.
    """
    if reach < 0:
        raise ValueError(f"a window's reach must be at least 0, not {reach}")
    return position_offsets(center, length).abs() <= reach


def position_offsets(
    center: Float[Tensor, "B T"], length: int
) -> Float[Tensor, "B T S"]:
    """Return s - center for every position s."""
    return torch.arange(length, device=center.device) - center[..., None]


def gaussian_window(
    center: Float[Tensor, "B T"], length: int, sigma: float | int
) -> Float[Tensor, "B T S"]:
    """Return exp(-(s - center)² / 2 sigma²), the factor of equation 10."""
    return torch.exp(-(position_offsets(center, length) ** 2) / (2 * sigma**2))


class GlobalAttention(nn.Module):
    """Global attention: to every position that is not padding."""

    def __init__(self, score: nn.Module):
        super().__init__()
        self.score = score

    def key(self, memory: Float[Tensor, "B S M"]) -> Tensor:
        """Return the keys of the score, computed once for each sentence."""
        # PyTorch declares every attribute of a module as Tensor | Module.
        return self.score.key(memory)  # type: ignore[operator]

    def forward(
        self,
        query: Float[Tensor, "B T Dq"],
        keys: Tensor,
        value: Float[Tensor, "B S M"],
        lengths: Int[Tensor, " B"],
        step: int = 0,
    ) -> tuple[Float[Tensor, "B T M"], Float[Tensor, "B T S"]]:
        """Return the context of each query, and its weights.

        Args:
            query: the decoder's states.
            keys: the memory after `key`.
            value: the memory.
            lengths: number of positions of the memory that are not padding.
            step: the target position of the first query.
        """
        real = torch.arange(value.shape[1], device=value.device)
        real = (real < lengths[:, None])[:, None]
        weights = self.compute_weights(self.score(query, keys), query, real, step)
        # A padded value may be anything, NaN included, and 0 · NaN is NaN.
        value = value.masked_fill(~real.transpose(1, 2), 0.0)
        return weights @ value, weights

    def compute_weights(
        self,
        scores: Float[Tensor, "B T S"],
        query: Float[Tensor, "B T Dq"],
        real: Bool[Tensor, "B 1 S"],
        step: int,
    ) -> Float[Tensor, "B T S"]:
        """Return the weights over all positions that are not padding."""
        return masked_softmax(scores, real.expand_as(scores))


class MonotonicAttention(GlobalAttention):
    """Monotonic local attention (local-m): the window is centered at the step.

    Args:
        score: module that computes the scores of queries and keys.
        reach: number of positions in the window on each side of its center.
    """

    def __init__(self, score: nn.Module, reach: int):
        super().__init__(score)
        self.reach = reach

    def compute_weights(
        self,
        scores: Float[Tensor, "B T S"],
        query: Float[Tensor, "B T Dq"],
        real: Bool[Tensor, "B 1 S"],
        step: int,
    ) -> Float[Tensor, "B T S"]:
        """Return the weights over the window, cut at the sentence's end."""
        length = scores.shape[2]
        steps = torch.arange(step, step + query.shape[1], device=query.device)
        last = real.sum(dim=-1) - 1
        center = torch.minimum(steps, last).to(scores.dtype)
        return masked_softmax(scores, local_window(center, length, self.reach) & real)


class PredictiveAttention(GlobalAttention):
    """Predictive local attention (local-p): the query predicts the center.

    The center is (S - 1) · sigmoid(v · tanh(W q)); the weights in the window
    are multiplied by a Gaussian around it with sigma = reach / 2. They are not
    normalized again. The center receives a gradient only through the Gaussian.

    Args:
        score: module that computes the scores of queries and keys.
        query: width of the queries.
        alignment: width of the layer that predicts the center.
        reach: size of the window on each side of its center.
    """

    def __init__(
        self, score: nn.Module, query: int, alignment: int, reach: float | int
    ):
        super().__init__(score)
        self.reach = reach
        self.predict = nn.Sequential(
            nn.Linear(query, alignment, bias=False),
            nn.Tanh(),
            nn.Linear(alignment, 1, bias=False),
        )

    def center(
        self, query: Float[Tensor, "B T Dq"], real: Bool[Tensor, "B 1 S"]
    ) -> Float[Tensor, "B T"]:
        """Return the center of each query's window, from 0 to the last word."""
        last = real.sum(dim=-1) - 1
        return last * torch.sigmoid(self.predict(query)[..., 0])

    def compute_weights(
        self,
        scores: Float[Tensor, "B T S"],
        query: Float[Tensor, "B T Dq"],
        real: Bool[Tensor, "B 1 S"],
        step: int,
    ) -> Float[Tensor, "B T S"]:
        """Return the weights over the window, times the Gaussian."""
        length = scores.shape[2]
        center = self.center(query, real)
        window = local_window(center, length, self.reach) & real
        window_weights = gaussian_window(center, length, self.reach / 2)
        return masked_softmax(scores, window) * window_weights
