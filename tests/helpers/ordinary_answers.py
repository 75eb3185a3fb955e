"""Ordinary ways to write attention and layer norm, by exercise.

The formula as the paper prints it, with each usual way to write the scale and
the softmax. `ANSWERS` maps a chapter's module and an exercise's name to
(how it is written, answer).
"""

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from answer_styles import list_styles

SCALES = {
    "/ math.sqrt(d)": lambda q: 1 / math.sqrt(q.shape[-1]),
    "/ d ** 0.5": lambda q: 1 / q.shape[-1] ** 0.5,
    "/ torch.sqrt(torch.tensor(d))": lambda q: (
        1 / torch.sqrt(torch.tensor(q.shape[-1]))
    ),
    "/ torch.tensor(d).sqrt(), a float": lambda q: (
        1 / torch.tensor(float(q.shape[-1])).sqrt()
    ),
    "* rsqrt of a tensor of one entry": lambda q: torch.tensor(
        [float(q.shape[-1])]
    ).rsqrt(),
}


def softmax_by_hand(scores: Tensor) -> Tensor:
    """Return a softmax with the shift by the maximum."""
    powers = (scores - scores.max(-1, keepdim=True).values).exp()
    return powers / powers.sum(-1, keepdim=True)


SOFTMAXES = {
    "torch.softmax": lambda s: torch.softmax(s, dim=-1),
    "softmax(dtype=float32)": lambda s: F.softmax(s, dim=-1, dtype=torch.float32),
    "softmax(dtype=float32), cast back": lambda s: s.softmax(
        -1, dtype=torch.float32
    ).to(s.dtype),
    "softmax of floats, cast back": lambda s: F.softmax(s.float(), -1).type_as(s),
    "by hand": softmax_by_hand,
}


def weigh(scale: Callable, softmax: Callable) -> Callable:
    """Return attention weights of the paper's formula."""
    return lambda q, k: softmax(q @ k.transpose(-2, -1) * scale(q))


def attend(scale: Callable, softmax: Callable) -> Callable:
    """Return attention with a mask that fills with minus infinity."""

    def answer(query, key, value, mask=None):
        scores = query @ key.transpose(-2, -1) * scale(query)
        if mask is None:
            return softmax(scores).to(value.dtype) @ value
        scores = scores.masked_fill(mask == 0, float("-inf"))
        weights = torch.nan_to_num(softmax(scores))
        return weights.to(value.dtype) @ value

    return answer


def attend_itself(scale: Callable, softmax: Callable) -> Callable:
    """Return self-attention."""
    inner = attend(scale, softmax)
    return lambda x, q, k, v: inner(x @ q.T, x @ k.T, x @ v.T)


def attend_another(scale: Callable, softmax: Callable) -> Callable:
    """Return cross-attention."""
    inner = attend(scale, softmax)
    return lambda x, y, q, k, v: inner(x @ q.T, y @ k.T, y @ v.T)


def attend_the_past(scale: Callable, softmax: Callable) -> Callable:
    """Return causal self-attention."""
    inner = attend(scale, softmax)

    def answer(x, q, k, v):
        mask = torch.tril(torch.ones(x.shape[1], x.shape[1]))
        return inner(x @ q.T, x @ k.T, x @ v.T, mask)

    return answer


def attend_with_heads(scale: Callable, softmax: Callable) -> Callable:
    """Return multi-head self-attention."""
    inner = attend(scale, softmax)

    def answer(x, q, k, v, o, heads):
        B, T, C = x.shape
        query, key, value = (
            (x @ w.T).view(B, T, heads, C // heads).transpose(1, 2) for w in (q, k, v)
        )
        joined = inner(query, key, value).transpose(1, 2).contiguous()
        return joined.view(B, T, C) @ o.T

    return answer


def attend_in_groups(scale: Callable, softmax: Callable) -> Callable:
    """Return grouped-query attention."""
    inner = attend(scale, softmax)

    def answer(query, key, value):
        each = query.shape[1] // key.shape[1]
        return inner(
            query,
            key.repeat_interleave(each, 1),
            value.repeat_interleave(each, 1),
        )

    return answer


def list_ways(make: Callable) -> Iterator[tuple[str, Callable]]:
    """Yield an attention with every scale and every softmax."""
    for scale_words, scale in SCALES.items():
        for softmax_words, softmax in SOFTMAXES.items():
            yield f"{scale_words}, {softmax_words}", make(scale, softmax)


def normalize_by_scale_and_shift(x, gain, bias, eps):
    """Fold gain, bias and statistics into one factor and one addend."""
    mean = x.mean(-1, keepdim=True)
    variance = x.var(-1, keepdim=True, unbiased=False)
    factor = gain / torch.sqrt(variance + eps)
    return x * factor + (bias - mean * factor)


def normalize_by_moments(x, gain, bias, eps):
    """Take the variance as the mean square less the squared mean."""
    mean = x.mean(-1, keepdim=True)
    variance = (x * x).mean(-1, keepdim=True) - mean**2
    return gain * (x - mean) / torch.sqrt(variance.clamp_min(0) + eps) + bias


def normalize_as_printed(x, gain, bias, eps):
    """Divide by the root, as the paper prints it."""
    mean = x.mean(dim=-1, keepdim=True)
    std = torch.sqrt(((x - mean) ** 2).mean(dim=-1, keepdim=True) + eps)
    return (x - mean) / std * gain + bias


def normalize_by_sums(x, gain, bias, eps):
    """Sum and divide by the width."""
    width = x.size(-1)
    mean = x.sum(-1, keepdim=True) / width
    centered = x - mean
    variance = centered.pow(2).sum(-1, keepdim=True) / width
    return centered / (variance + eps) ** 0.5 * gain + bias


def normalize_by_var_mean(x, gain, bias, eps):
    """Use torch.var_mean."""
    variance, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
    return gain * ((x - mean) * torch.rsqrt(variance + eps)) + bias


ANSWERS: dict[tuple[str, str], list[tuple[str, Callable]]] = {
    ("scaled_dot_product", "check_weights"): [*list_ways(weigh)],
    ("scaled_dot_product", "check_attend"): [*list_ways(attend)],
    ("self_attention", "check_self_attention"): [*list_ways(attend_itself)],
    ("self_attention", "check_cross_attention"): [*list_ways(attend_another)],
    ("self_attention", "check_causal_self_attention"): [*list_ways(attend_the_past)],
    ("multi_head", "check_multi_head"): [*list_ways(attend_with_heads)],
    ("multi_head", "check_grouped_query"): [*list_ways(attend_in_groups)],
    ("transformer", "check_layer_norm"): [
        ("scale and shift", normalize_by_scale_and_shift),
        ("mean square less squared mean", normalize_by_moments),
        ("as printed", normalize_as_printed),
        ("by sums", normalize_by_sums),
        ("by torch.var_mean", normalize_by_var_mean),
    ],
}


def list_ordinary(entry) -> Iterator[tuple[str, Callable]]:
    """Yield the ordinary ways to write and hold an exercise's answer."""
    yield from list_styles(entry.exercise)
    yield from ANSWERS.get((entry.module, entry.name), ())
