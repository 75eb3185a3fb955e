"""Linear attention: a sum over the keys that does not depend on the query.

With weights φ(query) · φ(key) instead of exp(query · key), the sum over the
keys can be taken first: the **state** Σ φ(key) valueᵀ and the **normalizer**
Σ φ(key) hold all that a query needs of the keys so far. `attend_linear`
computes the weights (quadratic in the length); the recurrent and the chunked
form keep the state instead (linear in the length) and give the same result.
Features must not be negative.

Source: Katharopoulos et al. (2020), sections 3.2 and 3.3, equations 4 to 12 and
    16 to 20, https://arxiv.org/abs/2006.16236; chunks: Hua et al. (2022),
    section 3.3, https://arxiv.org/abs/2202.10447 (departures: a query that can
    attend to no key gets zeros; sums of half-precision inputs are taken in
    single precision).
Axes: B batch, H heads, T queries, S keys, D width of query and key, E of
    values, F features
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from attnbook.attention.masked_softmax import require_mask
from attnbook.attention.scaled_dot_product import require_alike, require_fit
from attnbook.attention.tiled import promote_to_float32

CHUNK_SIZE = 64


FeatureMap = Callable[[Tensor], Tensor]


def elu_plus_one(x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
    """Return elu(x) + 1: x + 1 for positive x, exp(x) otherwise.

    `elu(x) + 1` rounds exp(x) to a multiple of the precision at 1; this form
    keeps its digits.
    """
    positive = x > 0
    return torch.where(positive, x + 1, x.masked_fill(positive, 0.0).exp())


class LinearResult(NamedTuple):
    """What the recurrent and the chunked form return.

    Attributes:
        output: (B, H, T, E), each divided by its sum of weights.
        state: (B, H, F, E), the sum of φ(key) valueᵀ; in single precision for
            half-precision inputs.
        normalizer: (B, H, F), the sum of φ(key).
    """

    output: Tensor
    state: Tensor
    normalizer: Tensor


def attend_linear(
    query: Float[Tensor, "B H T D"],
    key: Float[Tensor, "B H S D"],
    value: Float[Tensor, "B H S E"],
    mask: Bool[Tensor, "..."] | None = None,
    features: FeatureMap = elu_plus_one,
) -> Float[Tensor, "B H T E"]:
    """Return linear attention in its parallel form, quadratic in the length.

    Args:
        mask: True where a query can attend; broadcasts to (B, H, T, S).
        features: the feature map φ.

    Raises:
        ValueError: if the inputs or the mask do not fit.
    """
    phi_query, phi_key = compute_features(query, key, value, features)
    weights = phi_query @ phi_key.transpose(-2, -1)
    if mask is not None:
        require_mask(mask, weights)
        weights = weights.masked_fill(~mask, 0.0)
    sums = weights.sum(dim=-1, keepdim=True)
    output = divide_by_sums(weights @ promote_to_float32(value), sums)
    return output.to(query.dtype)


def step_linear(
    state: Float[Tensor, "B H F E"],
    normalizer: Float[Tensor, "B H F"],
    query: Float[Tensor, "B H D"],
    key: Float[Tensor, "B H D"],
    value: Float[Tensor, "B H E"],
    features: FeatureMap = elu_plus_one,
) -> LinearResult:
    """Return the output of one position, and the next state and normalizer.

    The new key counts for its own output. Time and memory do not depend on how
    many positions came before.

    Args:
        state: the sum of φ(key) valueᵀ so far.
        normalizer: the sum of φ(key) so far.
        features: the feature map φ.

    Raises:
        ValueError: if the state does not have the shape (B, H, F, E).
    """
    require_alike(query=query, key=key, value=value, state=state, normalizer=normalizer)
    phi_query, phi_key = (features(promote_to_float32(x)) for x in (query, key))
    sizes = *phi_key.shape, value.shape[-1]
    check_state_shape("state", state, sizes)
    check_state_shape("normalizer", normalizer, sizes[:-1])
    wide = promote_to_float32(value)
    state = state + phi_key[..., :, None] * wide[..., None, :]
    normalizer = normalizer + phi_key
    sums = (phi_query * normalizer).sum(dim=-1, keepdim=True)
    averaged = (phi_query[..., None, :] @ state)[..., 0, :]
    output = divide_by_sums(averaged, sums).to(query.dtype)
    return LinearResult(output, state, normalizer)


def attend_linear_recurrent(
    query: Float[Tensor, "B H T D"],
    key: Float[Tensor, "B H T D"],
    value: Float[Tensor, "B H T E"],
    state: Float[Tensor, "B H F E"] | None = None,
    normalizer: Float[Tensor, "B H F"] | None = None,
    features: FeatureMap = elu_plus_one,
) -> LinearResult:
    """Return causal linear attention, one position after the other.

    Args:
        state: what earlier positions left; zeros unless given.
        normalizer: likewise.
        features: the feature map φ.

    Raises:
        ValueError: if there is not one key and value for each query, or the
            state does not have the shape (B, H, F, E).
    """
    phi = check_causal_inputs(query, key, value, features)[1]
    state, normalizer = start_state(phi, value, state, normalizer)
    outputs = [value[..., :0, :].to(query.dtype)]
    # `unbind` goes back through one stack; the gradient of each x[..., t, :]
    # would be as large as x, and all of them quadratic in the length.
    steps = zip(*(x.unbind(-2) for x in (query, key, value)), strict=True)
    for q, k, v in steps:
        output, state, normalizer = step_linear(state, normalizer, q, k, v, features)
        outputs.append(output[..., None, :])
    return LinearResult(torch.cat(outputs, dim=-2), state, normalizer)


def attend_linear_chunked(
    query: Float[Tensor, "B H T D"],
    key: Float[Tensor, "B H T D"],
    value: Float[Tensor, "B H T E"],
    state: Float[Tensor, "B H F E"] | None = None,
    normalizer: Float[Tensor, "B H F"] | None = None,
    features: FeatureMap = elu_plus_one,
    chunk: int = CHUNK_SIZE,
) -> LinearResult:
    """Return causal linear attention, chunk by chunk.

    Keys of the same chunk are weighted one by one, as in the parallel form; all
    earlier ones are in the state at the beginning of the chunk.

    Args:
        chunk: positions in a chunk; the last one may have fewer. The others, and
            the errors, as in `attend_linear_recurrent`.

    Raises:
        ValueError: if `chunk` is below 1.
    """
    phi_query, phi_key = check_causal_inputs(query, key, value, features)
    state, normalizer = start_state(phi_key, value, state, normalizer)
    T = query.shape[-2]
    phi_query, phi_key, values = (
        split_chunks(x, chunk) for x in (phi_query, phi_key, append_ones(value))
    )
    # One sum for each chunk, and before it that of all chunks before.
    sums = phi_key.transpose(-2, -1) @ values
    start = torch.cat([state, normalizer[..., None]], dim=-1)[..., None, :, :]
    states = torch.cat([start, sums], dim=-3).cumsum(dim=-3)
    weights = phi_query @ phi_key.transpose(-2, -1)
    output = read_state(phi_query @ states[..., :-1, :, :] + weights.tril() @ values)
    output = output.flatten(-3, -2)[..., :T, :].to(query.dtype)
    last = states[..., -1, :, :]
    return LinearResult(output, last[..., :-1], last[..., -1])


def read_state(summed: Float[Tensor, "*B T K"]) -> Float[Tensor, "*B T E"]:
    """Return sums (B, H, T, E + 1) divided by their last column."""
    return divide_by_sums(summed[..., :-1], summed[..., -1:])


def divide_by_sums(
    summed: Float[Tensor, "*B E"], sums: Float[Tensor, "*B 1"]
) -> Float[Tensor, "*B E"]:
    """Return the average; where the weights sum to 0, zeros instead of NaN."""
    empty = sums == 0
    return (summed / sums.masked_fill(empty, 1.0)).masked_fill(empty, 0.0)


def append_ones(value: Float[Tensor, "*B S E"]) -> Float[Tensor, "*B S K"]:
    """Return the values and a column of ones, whose sum is the normalizer."""
    return F.pad(promote_to_float32(value), (0, 1), value=1.0)


def split_chunks(x: Float[Tensor, "B H T D"], chunk: int) -> Float[Tensor, "B H N R D"]:
    """Return the positions in N chunks of R, the last one filled with zeros."""
    if chunk < 1:
        raise ValueError(f"a chunk has at least 1 position, not {chunk}")
    count = -(-x.shape[-2] // chunk)
    missing = count * chunk - x.shape[-2]
    return F.pad(x, (0, 0, 0, missing)).unflatten(-2, (count, chunk))


def compute_features(
    query: Tensor, key: Tensor, value: Tensor, features: FeatureMap
) -> tuple[Tensor, Tensor]:
    """Return the features of queries and keys, or raise ValueError."""
    require_alike(query=query, key=key, value=value)
    require_fit(query, key, value)
    return features(promote_to_float32(query)), features(promote_to_float32(key))


def check_causal_inputs(
    query: Tensor, key: Tensor, value: Tensor, features: FeatureMap
) -> tuple[Tensor, Tensor]:
    """Return the features of as many queries and keys, or raise ValueError."""
    if query.shape[-2] != key.shape[-2]:
        raise ValueError(
            f"each position has a query and a key, but there are "
            f"{query.shape[-2]} queries and {key.shape[-2]} keys; keys before "
            "the first query belong into the state"
        )
    return compute_features(query, key, value, features)


def start_state(
    phi_key: Tensor,
    value: Tensor,
    state: Tensor | None,
    normalizer: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Return the state and normalizer to begin with: zeros unless given."""
    if (state is None) != (normalizer is None):
        shapes = [x if x is None else tuple(x.shape) for x in (state, normalizer)]
        raise ValueError(
            f"state and normalizer belong together, but the shape of the state "
            f"is {shapes[0]} and that of the normalizer {shapes[1]}"
        )
    sizes = *phi_key.shape[:-2], phi_key.shape[-1], value.shape[-1]
    if state is None or normalizer is None:
        return phi_key.new_zeros(sizes), phi_key.new_zeros(sizes[:-1])
    check_state_shape("state", state, sizes)
    check_state_shape("normalizer", normalizer, sizes[:-1])
    require_alike(key=phi_key, state=state, normalizer=normalizer)
    return state, normalizer


def check_state_shape(name: str, state: Tensor, sizes: tuple[int, ...]) -> None:
    """Raise ValueError if a state does not have the shape that it should."""
    if state.shape != sizes:
        raise ValueError(
            f"the {name} has the shape {tuple(state.shape)}, but for these "
            f"inputs it should have {tuple(sizes)}"
        )
