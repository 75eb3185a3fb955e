"""The delta rule: linear attention that overwrites instead of adding.

The state is a memory from keys to values. Before a value is written, what the
memory returns for its key is subtracted, so that β = 1 replaces the old value:

    state ← state + β key (value - keyᵀ state)ᵀ,   output = stateᵀ query.

There is no feature map and no normalizer; keys have length 1. Each step
multiplies the state by I - β key keyᵀ, which has the eigenvalue 1 - β: 0 keeps
the old value, 1 replaces it, and 2 reflects the state at the key. Most models
limit β to [0, 1]; negative eigenvalues help to track states, such as a parity.

`attend_delta_chunked` computes a chunk of positions at once. Each position
writes u = β (value - what the memory returns), which depends on what earlier
positions of the chunk wrote: a triangular system of equations with the matrix
I + A, where A contains β key · key below its diagonal. Solving it for all
positions is the UT transform, and the sum of key uᵀ that it leads to is the WY
representation of the chunk's product of matrices I - β key keyᵀ.

With decay, the state is multiplied by exp(r) before each position and keeps, at
position i, the fraction exp(r_{j+1} + ... + r_i) of what was written at j, where
r ≤ 0 is the rate: one number for each head, or one for each channel (in the
recurrence only). No rate is ever divided by: exp(-(r_1 + ... + r_j)) of the usual
formula overflows where the memory decays quickly. In a chunk, the decay between
every two positions is computed instead.

Source: Schlag et al. (2021), section 4.2, https://arxiv.org/abs/2102.11174;
    chunks: Yang et al. (2024), sections 3.2 and 3.3 and appendix A,
    https://arxiv.org/abs/2406.06484; β up to 2: Grazzi et al. (2025),
    https://arxiv.org/abs/2411.12537. Departure: the query is not scaled.
    The rate of a head: Yang et al. (2025), section 3,
    https://arxiv.org/abs/2412.06464, and its sums: Dao and Gu (2024), listing 1
    (segsum), https://arxiv.org/abs/2405.21060; of a channel: Kimi Team (2025),
    section 3, https://arxiv.org/abs/2510.26692
Axes: B batch, H heads, T positions, R positions of a chunk, D width of query
    and key, E of values
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.compiler import is_compiling
from torch.nn import functional as F

from attnbook.attention.linear import check_state_shape, split_chunks
from attnbook.attention.scaled_dot_product import require_alike, require_fit
from attnbook.attention.tiled import promote_to_float32


def can_read(x: Tensor) -> bool:
    """Tell whether the numbers can be checked.

    Reading them from a GPU would wait for it, and under torch.compile it would
    break the graph.
    """
    return x.device.type == "cpu" and x.numel() > 0 and not is_compiling()


def read_decay(log_decay: Tensor, key: Tensor) -> Tensor:
    """Return the rates in at least single precision; refuse those that do not fit."""
    require_alike(key=key, log_decay=log_decay)
    if log_decay.shape[-1] not in (1, key.shape[-1]):
        raise ValueError(
            f"log_decay has {log_decay.shape[-1]} columns, but must have 1 or as many "
            f"as the keys, {key.shape[-1]}"
        )
    if can_read(log_decay) and not (highest := log_decay.max()) <= 0:
        raise ValueError(
            f"log_decay must be at most 0, but is up to {highest:.3g}: the "
            "memory would grow"
        )
    return promote_to_float32(log_decay)


def sum_rates_to_end(rate: Tensor) -> Tensor:
    """Return the sum of the rates after each position, the last one being 0."""
    later = F.pad(rate[..., 1:, :], (0, 0, 0, 1))
    return later.flip(-2).cumsum(-2).flip(-2)


def decay_chunk(
    key: Float[Tensor, "*B R D"], rate: Float[Tensor, "*B R 1"] | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return three factors of a chunk; without a rate, ones.

    What is left, at each position, of the memory at the beginning; at the end, of
    what each position wrote; and at the end, of the memory at the beginning,
    (..., 1, 1).
    """
    if rate is None:
        ones = torch.ones_like(key[..., :1])
        return ones, ones, ones[..., :1, :]
    from_start = rate.cumsum(-2).exp()
    whole = rate.sum(-2).exp()[..., None]
    return from_start, sum_rates_to_end(rate).exp(), whole


def compute_decays(rate: Float[Tensor, "*B R 1"]) -> Float[Tensor, "*B R R"]:
    """Return what is left at position i of what was written at j ≤ i, else 0."""
    R = rate.shape[-2]
    # Only the rates between both positions are summed: a difference of two sums
    # from the beginning would lose digits.
    between = rate.expand(*rate.shape[:-1], R).tril(-1).cumsum(-2)
    return between.exp().tril()


CHUNK_SIZE = 64


class DeltaResult(NamedTuple):
    """What the delta rule returns.

    Attributes:
        output: (B, H, T, E), or (B, H, E) of one position.
        state: (B, H, D, E), the memory after the last position; in single
            precision for half-precision inputs.
    """

    output: Tensor
    state: Tensor


def step_delta(
    state: Float[Tensor, "B H D E"],
    query: Float[Tensor, "B H D"],
    key: Float[Tensor, "B H D"],
    value: Float[Tensor, "B H E"],
    beta: Float[Tensor, "B H"],
    log_decay: Float[Tensor, "B H #D"] | None = None,
) -> DeltaResult:
    """Return the output of one position, and the memory after it was written.

    Args:
        key: of length 1.
        beta: the writing strength, from 0 to 2 (see the top of this file).
        log_decay: the logarithm of the factor, at most 1, by which the memory
            decays before it is written, for each head (B, H, 1) or each
            channel of the keys (B, H, D); no decay unless given.

    Raises:
        ValueError: if beta is not in [0, 2] or log_decay is positive, both only
            on a CPU and outside of torch.compile, or the state does not have
            the shape (B, H, D, E).
    """
    check_beta(beta)
    check_state_shape("state", state, (*key.shape, value.shape[-1]))
    require_alike(query=query, key=key, value=value, beta=beta, state=state)
    rate = None if log_decay is None else read_decay(log_decay, key)
    return write_and_read(state, query, key, value, beta, rate)


def write_and_read(
    state: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    beta: Tensor,
    rate: Tensor | None,
) -> DeltaResult:
    """Do one step, whose inputs have been checked."""
    q, k, v, b = map(promote_to_float32, (query, key, value, beta))
    if rate is not None:
        state = state * rate.exp()[..., None]
    old = (k[..., None, :] @ state)[..., 0, :]
    written = b[..., None] * (v - old)
    state = state + k[..., :, None] * written[..., None, :]
    output = (q[..., None, :] @ state)[..., 0, :]
    return DeltaResult(output.to(query.dtype), state)


def attend_delta_recurrent(
    query: Float[Tensor, "B H T D"],
    key: Float[Tensor, "B H T D"],
    value: Float[Tensor, "B H T E"],
    beta: Float[Tensor, "B H T"],
    log_decay: Float[Tensor, "B H T #D"] | None = None,
    state: Float[Tensor, "B H D E"] | None = None,
) -> DeltaResult:
    """Return the delta rule's outputs, one position after the other.

    Args:
        key: the keys, of length 1.
        beta: the writing strength, from 0 to 2 (see the top of this file).
        log_decay: as in `step_delta`: a decay for each head gives the gated
            delta rule, one for each channel Kimi Delta Attention.
        state: the memory before the first position; zeros unless given.

    Raises:
        ValueError: as in `step_delta`, or if the numbers of positions differ.
    """
    state = check_delta_inputs(query, key, value, beta, log_decay, state)
    rates = None if log_decay is None else read_decay(log_decay, key).unbind(-2)
    betas = beta.unbind(-1)
    outputs = [value[..., :0, :].to(query.dtype)]
    # `unbind` goes back through one stack; the gradient of each x[..., t, :]
    # would be as large as x, and all of them quadratic in the length.
    steps = zip(*(x.unbind(-2) for x in (query, key, value)), strict=True)
    for t, (q, k, v) in enumerate(steps):
        rate = None if rates is None else rates[t]
        output, state = write_and_read(state, q, k, v, betas[t], rate)
        outputs.append(output[..., None, :])
    return DeltaResult(torch.cat(outputs, dim=-2), state)


def attend_delta_chunked(
    query: Float[Tensor, "B H T D"],
    key: Float[Tensor, "B H T D"],
    value: Float[Tensor, "B H T E"],
    beta: Float[Tensor, "B H T"],
    log_decay: Float[Tensor, "B H T _"] | None = None,
    state: Float[Tensor, "B H D E"] | None = None,
    chunk: int = CHUNK_SIZE,
) -> DeltaResult:
    """Return the same as `attend_delta_recurrent`, chunk by chunk.

    Args:
        key: the keys, of length 1.
        beta: the writing strength, from 0 to 2 (see the top of this file).
        log_decay: as in `step_delta`, but of each head only, (B, H, T, 1).
        state: the memory before the first position; zeros unless given.
        chunk: positions in a chunk; the last one may have fewer.

    Raises:
        ValueError: as in `attend_delta_recurrent`, if `chunk` is below 1, or if a
            head has several decays.
    """
    state = check_delta_inputs(query, key, value, beta, log_decay, state)
    q, k, v, b = (
        split_chunks(promote_to_float32(x), chunk)
        for x in (query, key, value, beta[..., None])
    )
    rate = None
    if log_decay is not None:
        if log_decay.shape[-1] != 1:
            raise ValueError(
                f"a head has 1 decay here, not {log_decay.shape[-1]}: with one for "
                "each channel, use attend_delta_recurrent"
            )
        rate = split_chunks(read_decay(log_decay, key), chunk)
    # What the memory at the chunk's beginning contributes is proportional to
    # the decayed keys; what other positions write, to decayed products.
    from_start, to_end, whole = decay_chunk(k, rate)
    decays = 1.0 if rate is None else compute_decays(rate)
    system = b * (k @ k.transpose(-2, -1) * decays).tril(-1)
    right = torch.cat([b * v, b * (k * from_start)], dim=-1)
    solved = torch.linalg.solve_triangular(
        system, right, upper=False, unitriangular=True
    )
    new, erased = solved.split([v.shape[-1], k.shape[-1]], dim=-1)
    weights = (q @ k.transpose(-2, -1) * decays).tril()
    read, kept = q * from_start, (k * to_end).transpose(-2, -1)
    parts = new, erased, weights, read, kept, whole
    outputs = []
    for u, erase, weight, reader, keep, fade in zip(
        *(part.unbind(-3) for part in parts), strict=True
    ):
        written = u - erase @ state
        output = reader @ state + weight @ written
        outputs.append(output.to(query.dtype))
        state = state * fade + keep @ written
    output = torch.cat([value[..., :0, :].to(query.dtype), *outputs], dim=-2)
    return DeltaResult(output[..., : query.shape[-2], :], state)


def check_beta(beta: Tensor) -> None:
    """Raise ValueError if a writing strength is not in [0, 2]."""
    if not can_read(beta):
        return
    low, high = beta.aminmax()
    if not (low >= 0 and high <= 2):
        raise ValueError(
            f"beta must be between 0 and 2, but is between {low:.3g} and {high:.3g}"
        )


def check_delta_inputs(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    beta: Tensor,
    log_decay: Tensor | None,
    state: Tensor | None,
) -> Tensor:
    """Return the state to begin with, or raise ValueError."""
    require_alike(query=query, key=key, value=value, beta=beta)
    require_fit(query, key, value)
    given = {"queries": query.shape[:-1], "numbers beta": beta.shape}
    given["values"] = value.shape[:-1]
    if log_decay is not None:
        given["decays"] = log_decay.shape[:-1]
    for name, shape in given.items():
        if shape != key.shape[:-1]:
            raise ValueError(
                f"the {name} have the shape {tuple(shape)} of sequences, heads "
                f"and positions, but the keys {tuple(key.shape[:-1])}"
            )
    check_beta(beta)
    sizes = *key.shape[:-2], key.shape[-1], value.shape[-1]
    if state is None:
        return promote_to_float32(key).new_zeros(sizes)
    check_state_shape("state", state, sizes)
    require_alike(key=key, state=state)
    return state
