"""Cases for `flash_attention`, its tiles and its kernels, and the reference."""

import sys
import zlib
from dataclasses import dataclass
from functools import cache, partial

import torch

from attnbook import masks
from attnbook.attention.masked_softmax import masked_softmax
from attnbook.flash.options import Options
from attnbook.positions.biases import distances
from precision import draw, run_with_gradients


@dataclass(frozen=True)
class Case:
    """Shapes, options, and how the inputs lie in memory."""

    T: int = 37
    S: int = 37
    D: int = 16
    E: int = 16
    causal: bool = False
    window: int | None = None
    lengths: tuple | None = None
    alibi: tuple = ()
    steepest: float = 1.0
    softcap: float | None = None
    scale: float | None = None
    offset: float = 0.0
    layout: str = "rows"
    H: int = 2
    G: int = 1

    B = 2

    def options(self, kind=torch.float64):
        lengths, slopes = self.lengths, None
        if lengths is not None:
            lengths = torch.tensor(lengths)
        if self.alibi:
            rng = torch.Generator().manual_seed(self.T)
            slopes = self.steepest * torch.rand(*self.alibi, generator=rng)
            slopes[..., 1::2] *= -1  # of both signs: every other head's
            slopes = slopes.to(kind)
        return Options(
            self.causal, self.window, lengths, slopes, self.softcap, self.scale
        )


CASES = {
    "ragged, wider values": Case(T=37, S=53, D=19, E=40),
    "one query, many keys": Case(T=1, S=70),
    "one of each, one wide": Case(T=1, S=1, D=1, E=1),
    "causal": Case(causal=True),
    "causal, whole tiles": Case(T=64, S=64, causal=True),
    "causal, more keys": Case(T=21, S=53, causal=True),
    "causal, more queries": Case(T=53, S=21, causal=True),
    "window": Case(window=11),
    "window of one": Case(window=1),
    "window of sys.maxsize, more queries": Case(T=53, S=21, window=sys.maxsize),
    "window, more keys": Case(T=21, S=90, window=35),
    "lengths": Case(lengths=(20, 37)),
    "an empty text": Case(lengths=(0, 5)),
    "three heads a group": Case(H=6, G=2, causal=True),
    "a negative scale": Case(scale=-0.3),
    "large logits": Case(offset=60.0, causal=True),
    "large negative logits": Case(offset=-60.0),
    "alibi, a key beyond a tile": Case(T=33, S=33, alibi=(2,), causal=True),
    "alibi both ways, a text's own": Case(alibi=(2, 2), S=53),
    # Beyond the last query, the scores of steep slopes overflow.
    "alibi, steep, of both signs": Case(T=33, S=33, alibi=(2,), steepest=2.6),
    "soft-cap": Case(softcap=1.5),
    "soft-cap, alibi, window, lengths": Case(
        softcap=2.0, alibi=(2,), window=17, lengths=(30, 37)
    ),
    "heads inside": Case(layout="heads inside", causal=True, H=4, G=2),
    "columns": Case(layout="columns"),
    "expanded": Case(layout="expanded", lengths=(20, 37)),
}

# Triton's interpreter runs these in float16 as well.
IN_HALF = "causal", "three heads a group", "soft-cap, alibi, window, lengths"

# Of these the logsumexp is compared, too.
WITH_LSE = "ragged, wider values", "three heads a group", IN_HALF[-1]

# Lengths of two sequences of 7 that are refused, and what is said of them.
BAD_LENGTHS = {
    "broken lengths": (
        {"key_lengths": torch.tensor([1.0, 2.0])},
        r"int32 or int64 of shape \(2,\) on cpu, but are torch.float32",
    ),
    "too few lengths": (
        {"key_lengths": torch.tensor([1])},
        r"of shape \(2,\) on cpu, but are torch.int64 of shape \(1,\)",
    ),
    "lengths beyond S": (
        {"key_lengths": torch.tensor([1, 8])},
        r"from 0 to S = 7, but are \[1, 8\]",
    ),
    "negative lengths": (
        {"key_lengths": torch.tensor([-1, 7])},
        r"from 0 to S = 7, but are \[-1, 7\]",
    ),
}


def arrange(x, layout):
    """Return the same numbers, lying in memory as the layout says."""
    if layout == "heads inside":
        return x.transpose(1, 2).contiguous().transpose(1, 2)
    if layout == "columns":
        return x.mT.contiguous().mT
    if layout == "expanded":
        return x[:1].expand_as(x)
    return x


def draw_inputs(title, dtype, cases=CASES):
    """Return query, key, value in a precision, and the upstream gradient."""
    case = cases[title]
    rng = torch.Generator().manual_seed(zlib.crc32(title.encode()))

    def normal(heads, rows, width):
        shape = case.B, heads, rows, width
        return torch.randn(*shape, generator=rng, dtype=torch.float64)

    query, key = normal(case.H, case.T, case.D), normal(case.G, case.S, case.D)
    query[..., 0] += abs(case.offset) ** 0.5 * case.D**0.5
    key[..., 0] += case.offset / max(1, abs(case.offset)) ** 0.5
    value = normal(case.G, case.S, case.E)
    inputs = [arrange(x.to(dtype), case.layout) for x in (query, key, value)]
    return inputs, normal(case.H, case.T, case.E).to(dtype)


def compute_masked_scores(query, key, options):
    """Scores that are scaled, capped, biased and masked with -inf."""
    (H, T, D), S = query.shape[1:], key.shape[2]
    each = H // key.shape[1]
    key = key.repeat_interleave(each, dim=1)
    mask = torch.ones(T, S, dtype=torch.bool)
    if options.causal:
        mask = mask & masks.causal(T, S)
    if options.window:
        mask = mask & masks.window(T, S, options.window)
    if options.key_lengths is not None:
        mask = mask & masks.padding(options.key_lengths, S)
    scale = D**-0.5 if options.scale is None else options.scale
    scores = (query * scale) @ key.mT
    if options.softcap is not None:
        scores = options.softcap * (scores / options.softcap).tanh()
    if options.alibi_slopes is not None:
        away = distances(T, S).abs()
        slopes = options.alibi_slopes.to(scores)[..., None, None]
        scores = scores - slopes * away
    return scores.masked_fill(~mask, -torch.inf)


def compute_reference(query, key, value, options):
    """The reference: the softmax of the scores, and the average of the values."""
    scores = compute_masked_scores(query, key, options)
    value = value.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
    return masked_softmax(scores, scores > -torch.inf) @ value


def compute_reference_with_lse(query, key, value, options):
    """Return the output, and the logsumexp as one more column."""
    output = compute_reference(query, key, value, options)
    lse = compute_masked_scores(query, key, options).logsumexp(-1, keepdim=True)
    return torch.cat([output, lse], dim=-1)


@cache
def compute_truth(title, dtype, with_lse=False):
    """Return a case's output and gradients in float64, of inputs in a precision.

    The upstream gradient of the logsumexp is that of the first column.
    """
    inputs, upstream = draw_inputs(title, dtype)
    reference = compute_reference
    if with_lse:
        reference = compute_reference_with_lse
        upstream = torch.cat([upstream, upstream[..., :1]], dim=-1)
    return run_with_gradients(
        partial(reference, options=CASES[title].options(dtype)),
        [x.double() for x in inputs],
        upstream.double(),
    )


# Packed sequences: empty ones, whole tiles, fewer keys than queries, and none.
QUERY_OFFSETS = torch.tensor([0, 5, 5, 42, 45, 77, 78])
KEY_OFFSETS = torch.tensor([0, 7, 11, 64, 64, 96, 116])
PACKED = {
    "packed": Options(),
    "packed, causal": Options(causal=True),
    "packed, soft-cap, alibi, window, scale": Options(
        window=9,
        alibi_slopes=torch.tensor([0.5, -1.0, 0.1, 2.0]),
        softcap=2.0,
        scale=0.4,
    ),
}


def draw_packed(dtype, more=0, D=21, E=37):
    """Return query, key, value and upstream, and rows after the last sequence.

    With 3 more numbers a row, as in the interpreter, descriptors take the strides.
    """
    N, M = QUERY_OFFSETS[-1] + more, KEY_OFFSETS[-1] + more
    shapes = (N, 4, D), (M, 2, D), (M, 2, E), (N, 4, E)
    return [x.to(dtype) for x in draw(*shapes)]


def compute_packed(query, key, value, options):
    """Return output and logsumexp of each sequence by itself; -9 for -inf."""
    made = []
    for i in range(len(QUERY_OFFSETS) - 1):
        rows, keys = (slice(*x[i : i + 2]) for x in (QUERY_OFFSETS, KEY_OFFSETS))
        given = (x.transpose(0, 1)[None] for x in (query[rows], key[keys], value[keys]))
        made.append(compute_reference_with_lse(*given, options)[0].transpose(0, 1))
    rest = query.new_zeros(len(query) - QUERY_OFFSETS[-1], *made[0].shape[1:])
    rest[..., -1] = -torch.inf
    return torch.cat([*made, rest]).nan_to_num(neginf=-9.0)


@cache
def compute_packed_truth(title, dtype, more=0):
    """Return the same in float64, and its gradients as `compute_truth` does."""
    *inputs, upstream = draw_packed(dtype, more)
    return run_with_gradients(
        partial(compute_packed, options=PACKED[title]),
        [x.double() for x in inputs],
        torch.cat([upstream, upstream[..., :1]], dim=-1).double(),
    )
