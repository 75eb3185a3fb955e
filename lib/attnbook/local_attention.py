"""Global and local attention: all of the memory, or a window of it.

Each kind takes a query and gives a context: `key` prepares the memory once a
sentence, and calling it averages the memory by the weights of its score.

Chapter: chapters/03_luong
Source: Luong et al. (2015), sections 3.1 and 3.2, equations 9 and 10,
    https://arxiv.org/abs/1508.04025. Departures: places count from 0, so the
    predicted centre is (S - 1) · sigmoid(...), between the first and the last;
    the monotonic centre stops at the last word; the window's half width D is
    `reach` here.
Axes: B batch, T queries (target steps), S keys (source symbols), M memory
    width, Dq query width
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attnbook.masked_softmax import masked_softmax


def local_window(
    centre: Float[Tensor, "B T"], places: int, reach: float | int
) -> Bool[Tensor, "B T S"]:
    """Return True where |s - centre| <= reach, for s = 0 ... places - 1.

    Raises:
        ValueError: if the reach is negative.
    """
    if reach < 0:
        raise ValueError(f"a window's reach must be at least 0, not {reach}")
    return distance(centre, places).abs() <= reach


def distance(
    centre: Float[Tensor, "B T"], places: int
) -> Float[Tensor, "B T S"]:
    """Return s - centre for every place s."""
    return torch.arange(places, device=centre.device) - centre[..., None]


def gaussian(
    centre: Float[Tensor, "B T"], places: int, sigma: float | int
) -> Float[Tensor, "B T S"]:
    """Return exp(-(s - centre)² / 2 sigma²), the factor of equation 10."""
    return torch.exp(-(distance(centre, places) ** 2) / (2 * sigma**2))


class GlobalAttention(nn.Module):
    """Every real word may be looked at."""

    def __init__(self, score: nn.Module):
        super().__init__()
        self.score = score

    def key(self, memory: Float[Tensor, "B S M"]) -> Tensor:
        """Return the keys of the score, computed once a sentence."""
        return self.score.key(memory)

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
            keys: what `key` made of the memory.
            value: the memory.
            lengths: how many of its S places are real.
            step: the target position of the first query.
        """
        real = torch.arange(value.shape[1], device=value.device)
        real = (real < lengths[:, None])[:, None]
        weights = self.weigh(self.score(query, keys), query, real, step)
        # A padded value may be anything, NaN included, and 0 · NaN is NaN.
        value = value.masked_fill(~real.transpose(1, 2), 0.0)
        return weights @ value, weights

    def weigh(
        self,
        scores: Float[Tensor, "B T S"],
        query: Float[Tensor, "B T Dq"],
        real: Bool[Tensor, "B 1 S"],
        step: int,
    ) -> Float[Tensor, "B T S"]:
        """Return the weights over all real places."""
        return masked_softmax(scores, real.expand_as(scores))


class MonotonicAttention(GlobalAttention):
    """local-m: a window around the place with the target step's number.

    Args:
        score: of query and keys.
        reach: how many places the window goes to either side.
    """

    def __init__(self, score: nn.Module, reach: int):
        super().__init__(score)
        self.reach = reach

    def weigh(self, scores, query, real, step):
        """Return the weights over the window, which ends with the sentence."""
        places = scores.shape[2]
        steps = torch.arange(step, step + query.shape[1], device=query.device)
        last = real.sum(dim=-1) - 1
        centre = torch.minimum(steps, last).to(scores.dtype)
        return masked_softmax(
            scores, local_window(centre, places, self.reach) & real
        )


class PredictiveAttention(GlobalAttention):
    """local-p: the query itself says where its window stands.

    The centre is (S - 1) · sigmoid(v · tanh(W q)); the weights in the window
    are multiplied by a Gaussian around it with sigma = reach / 2. They are not
    normalised again, and only the Gaussian tells the centre where to go.

    Args:
        score: of query and keys.
        query: width of the queries.
        alignment: width of the layer that predicts the centre.
        reach: how far the window goes to either side.
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

    def centre(
        self, query: Float[Tensor, "B T Dq"], real: Bool[Tensor, "B 1 S"]
    ) -> Float[Tensor, "B T"]:
        """Return where each query's window stands, from 0 to the last word."""
        last = real.sum(dim=-1) - 1
        return last * torch.sigmoid(self.predict(query)[..., 0])

    def weigh(self, scores, query, real, step):
        """Return the weights over the window, times the Gaussian."""
        places = scores.shape[2]
        centre = self.centre(query, real)
        window = local_window(centre, places, self.reach) & real
        near = gaussian(centre, places, self.reach / 2)
        return masked_softmax(scores, window) * near
