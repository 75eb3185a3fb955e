"""Attention of recurrent decoders: additive and multiplicative, global and local.

A score has a `key` projection, applied once for each sentence, and maps queries
and projected keys to scores. `GlobalAttention` and the two kinds of local
attention take a score and return context vectors and weights.

Source: additive: Bahdanau et al. (2015), section 3.1, equations 5 and 6, and
    appendix A.1.2, https://arxiv.org/abs/1409.0473 (the paper's W_a, U_a, v_a
    are W_query, W_key and v). Multiplicative and local: Luong et al. (2015),
    sections 3.1 and 3.2, equations 7 to 10, https://arxiv.org/abs/1508.04025.
    Departures: query and key may differ in width; a location score for S
    positions uses the first S of its rows; positions count from 0, so the
    predicted center is (S - 1) · sigmoid(...); the monotonic center stops at the
    last word; the window's half width D is `reach` here. Scores in blocks are
    this book's addition.
Axes: B batch, T queries (target steps), S keys (source symbols), Dq and Dk
    width of query and key, A alignment width, E value width, M memory width, P
    positions of a location score
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attnbook.attention.masked_softmax import masked_softmax


def additive_scores(
    query: Float[Tensor, "B T Dq"],
    key: Float[Tensor, "B S Dk"],
    W_query: Float[Tensor, "A Dq"],
    W_key: Float[Tensor, "A Dk"],
    v: Float[Tensor, " A"],
) -> Float[Tensor, "B T S"]:
    """Return v · tanh(W_query q + W_key k) for every query and key.

    Raises:
        ValueError: if a matrix does not fit the width of what it projects.
    """
    for name, matrix, x in ("query", W_query, query), ("key", W_key, key):
        if matrix.shape[-1] != x.shape[-1]:
            raise ValueError(
                f"W_{name} takes width {matrix.shape[-1]} "
                f"but the {name} is {x.shape[-1]} wide"
            )
    queries, keys = query @ W_query.T, key @ W_key.T
    return torch.tanh(queries[:, :, None] + keys[:, None]) @ v


def context(
    scores: Float[Tensor, "B T S"],
    value: Float[Tensor, "B S E"],
    lengths: Int[Tensor, " B"],
) -> tuple[Float[Tensor, "B T E"], Float[Tensor, "B T S"]]:
    """Return each query's context vector and attention weights.

    The context vector is the weighted average of the values that are not
    padding.

    Args:
        lengths: how many of the S values are real, each at least 1.

    Raises:
        ValueError: on a length of zero or beyond S.
    """
    positions = scores.shape[-1]
    if lengths.min() < 1 or lengths.max() > positions:
        invalid = int(lengths.min() if lengths.min() < 1 else lengths.max())
        raise ValueError(
            f"a length is {invalid} but must lie between 1 and {positions}"
        )
    real = torch.arange(positions, device=scores.device) < lengths[:, None]
    weights = scores.masked_fill(~real[:, None], -torch.inf).softmax(dim=-1)
    # A padded value may be anything, NaN included, and 0 · NaN is NaN.
    value = value.masked_fill(~real[:, :, None], 0.0)
    return weights @ value, weights


class AdditiveAttention(nn.Module):
    """Additive scores with learned matrices (equation 6, appendix A.1.2)."""

    def __init__(self, query: int, key: int, alignment: int):
        super().__init__()
        self.query = nn.Linear(query, alignment, bias=False)
        self.key = nn.Linear(key, alignment, bias=False)
        self.v = nn.Parameter(torch.empty(alignment))
        nn.init.uniform_(self.v, -(alignment**-0.5), alignment**-0.5)

    def forward(
        self, query: Float[Tensor, "B T Dq"], keys: Float[Tensor, "B S A"]
    ) -> Float[Tensor, "B T S"]:
        """Return the scores of queries against keys already projected.

        U_a h does not depend on the step, so the paper (A.1.2) computes it once
        for each sentence; the caller computes `self.key(memory)`.
        """
        queries = self.query(query)
        return torch.tanh(queries[:, :, None] + keys[:, None]) @ self.v


# One block's B · R · S · A numbers, in single precision 4 MB: they stay in a
# processor's cache between the sum, the tanh and the product.
BUFFER_SIZE = 2**20


def additive_scores_in_blocks(
    query: Float[Tensor, "B T Dq"],
    key: Float[Tensor, "B S Dk"],
    W_query: Float[Tensor, "A Dq"],
    W_key: Float[Tensor, "A Dk"],
    v: Float[Tensor, " A"],
    rows: int | None = None,
) -> Float[Tensor, "B T S"]:
    """Return what `additive_scores` returns, without its (B, T, S, A) tensor.

    One buffer (B, rows, S, A) is filled again and again, so no gradient can
    flow: a backward pass would need what was overwritten.

    Args:
        rows: queries in a block; by default as many as fit in a buffer of
            `BUFFER_SIZE` numbers, and at least one.

    Raises:
        ValueError: if a gradient is required, or `rows` is below 1.
    """
    given = query, key, W_query, W_key, v
    if torch.is_grad_enabled() and any(x.requires_grad for x in given):
        raise ValueError(
            "a block's buffer is overwritten, so no gradient can flow: call "
            "this under torch.no_grad(), or use additive_scores"
        )
    queries, keys = query @ W_query.T, (key @ W_key.T)[:, None]
    (B, T, A), S = queries.shape, key.shape[1]
    if rows is None:
        rows = max(1, BUFFER_SIZE // max(1, B * S * A))
    if rows < 1:
        raise ValueError(f"a block has at least 1 query, not {rows}")
    scores = queries.new_empty(B, T, S)
    buffer = queries.new_empty(B, min(rows, T), S, A)
    for start in range(0, T, rows):
        chunk = queries[:, start : start + rows, None]
        pairs = buffer[:, : chunk.shape[1]]
        torch.add(chunk, keys, out=pairs).tanh_()
        scores[:, start : start + rows] = pairs @ v
    return scores


def dot_scores(
    query: Float[Tensor, "B T Dq"], key: Float[Tensor, "B S Dk"]
) -> Float[Tensor, "B T S"]:
    """Return q · k for every query and key.

    Raises:
        ValueError: if query and key differ in width.
    """
    if query.shape[-1] != key.shape[-1]:
        raise ValueError(
            f"a dot product needs equal widths, but the query is "
            f"{query.shape[-1]} wide and the key {key.shape[-1]}"
        )
    return query @ key.transpose(1, 2)


def general_scores(
    query: Float[Tensor, "B T Dq"],
    key: Float[Tensor, "B S Dk"],
    W: Float[Tensor, "Dq Dk"],
) -> Float[Tensor, "B T S"]:
    """Return q · W k for every query and key.

    Raises:
        ValueError: if W does not fit the widths of query and key.
    """
    if W.shape != (query.shape[-1], key.shape[-1]):
        raise ValueError(
            f"W is {tuple(W.shape)} but query and key are "
            f"{(query.shape[-1], key.shape[-1])} wide"
        )
    return dot_scores(query, key @ W.T)


def concat_scores(
    query: Float[Tensor, "B T Dq"],
    key: Float[Tensor, "B S Dk"],
    W: Float[Tensor, "A Dq+Dk"],
    v: Float[Tensor, " A"],
) -> Float[Tensor, "B T S"]:
    """Return v · tanh(W [q; k]) for every query and key.

    W [q; k] = W₁ q + W₂ k, so this is the additive score of chapter 2, and is
    computed as such: no pair is ever concatenated.

    Raises:
        ValueError: if W does not fit the widths of query and key.
    """
    widths = query.shape[-1], key.shape[-1]
    if W.shape[-1] != sum(widths):
        raise ValueError(
            f"W takes width {W.shape[-1]} but query and key are "
            f"{widths[0]} + {widths[1]} = {sum(widths)} wide"
        )
    W_query, W_key = W.split(widths, dim=1)
    return additive_scores(query, key, W_query, W_key, v)


def location_scores(
    query: Float[Tensor, "B T Dq"], W: Float[Tensor, "P Dq"], length: int
) -> Float[Tensor, "B T S"]:
    """Return the first S = `length` of the P scores W q, whatever the keys are.

    A position beyond P has the score -inf: the paper also ignores the last
    words of a longer sentence.
    """
    scores = query @ W[:length].T
    missing = max(0, length - W.shape[0])
    return nn.functional.pad(scores, (0, missing), value=-torch.inf)


class DotScore(nn.Module):
    """q · k: no parameters; query and key must have equal width."""

    def __init__(self, query: int, key: int):
        super().__init__()
        self.key = nn.Identity()

    def forward(
        self, query: Float[Tensor, "B T Dq"], keys: Float[Tensor, "B S Dk"]
    ) -> Float[Tensor, "B T S"]:
        """Return the scores of queries against keys."""
        return dot_scores(query, keys)


class ScaledDotScore(DotScore):
    """q · k / √D, chapter 4's score: the product divided by √ of the width."""

    def __init__(self, query: int, key: int):
        super().__init__(query, key)
        self.scale = key**-0.5

    def forward(
        self, query: Float[Tensor, "B T Dq"], keys: Float[Tensor, "B S Dk"]
    ) -> Float[Tensor, "B T S"]:
        """Return the scores of queries against keys."""
        return dot_scores(query * self.scale, keys)


class GeneralScore(nn.Module):
    """q · W k with a learned W; `key` applies it, once for each sentence."""

    def __init__(self, query: int, key: int):
        super().__init__()
        self.key = nn.Linear(key, query, bias=False)

    def forward(
        self, query: Float[Tensor, "B T Dq"], keys: Float[Tensor, "B S Dq"]
    ) -> Float[Tensor, "B T S"]:
        """Return the scores of queries against keys already projected."""
        return dot_scores(query, keys)


class ConcatScore(AdditiveAttention):
    """v · tanh(W [q; k]): chapter 2's score with its two matrices concatenated.

    W is drawn as one matrix (its entries are smaller than if the two parts were
    drawn alone), and then stored as its two parts.
    """

    def __init__(self, query: int, key: int, alignment: int):
        super().__init__(query, key, alignment)
        whole = nn.Linear(query + key, alignment, bias=False).weight.detach()
        with torch.no_grad():
            self.query.weight.copy_(whole[:, :query])
            self.key.weight.copy_(whole[:, query:])

    @property
    def matrix(self) -> Float[Tensor, "A _"]:
        """Return the matrix in the paper's notation: [W₁ W₂]."""
        return torch.cat([self.query.weight, self.key.weight], dim=1)


class LocationScore(nn.Module):
    """The first S rows of W q: positions scored by the query alone."""

    def __init__(self, query: int, length: int):
        super().__init__()
        self.place = nn.Linear(query, length, bias=False)
        self.key = nn.Identity()

    def forward(
        self, query: Float[Tensor, "B T Dq"], keys: Float[Tensor, "B S Dk"]
    ) -> Float[Tensor, "B T S"]:
        """Return a score for each of the keys' positions."""
        return location_scores(query, self.place.weight, keys.shape[1])


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

    It has `reach` positions on each side of its center.
    """

    def __init__(self, score: nn.Module, reach: int):
        super().__init__(score)
        self.reach = reach

    def compute_weights(
        self, scores: Tensor, query: Tensor, real: Tensor, step: int
    ) -> Tensor:
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
        self, scores: Tensor, query: Tensor, real: Tensor, step: int
    ) -> Tensor:
        """Return the weights over the window, times the Gaussian."""
        length = scores.shape[2]
        center = self.center(query, real)
        window = local_window(center, length, self.reach) & real
        near = gaussian_window(center, length, self.reach / 2)
        return masked_softmax(scores, window) * near
