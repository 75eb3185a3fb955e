"""Who is measured: ours, every backend of PyTorch by name, FlexAttention.

`scaled_dot_product_attention` chooses a backend by itself and says nothing when
it falls back to another; so each is forced, and one that cannot run a row says
why.

Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.attention.sdpa_kernel.html,
    https://docs.pytorch.org/docs/stable/nn.attention.flex_attention.html
Axes: B batch, H heads, G groups (key-value heads), T queries, S keys, D width
"""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from attnbook.attention.scaled_dot_product import attend
from attnbook.flash import flash_attention
from attnbook.flash.decoding import attend_split_kv
from attnbook.masks import rules
from attnbook.positions.biases import alibi_slopes
from workshop.bench.rows import Row

BACKENDS = {
    "sdpa_cudnn": SDPBackend.CUDNN_ATTENTION,
    "sdpa_flash": SDPBackend.FLASH_ATTENTION,
    "sdpa_efficient": SDPBackend.EFFICIENT_ATTENTION,
    "sdpa_math": SDPBackend.MATH,
}
NAMES = ("ours", *BACKENDS, "standard", "flex")
# These write the whole matrix of scores to memory.
MATRIX = ("sdpa_math", "standard")
LONGEST_MATRIX = 4096
# Lengths at which FlexAttention is compiled, which takes seconds.
FLEX = (4096,)


def list_skipped(row: Row) -> dict[str, str]:
    """Return which implementations are not tried on a row, and why."""
    why = {}
    if row.N > LONGEST_MATRIX and row.shape[3] > 1:
        reason = (
            f"not tried: its score matrix has {row.N} keys, and at most "
            f"{LONGEST_MATRIX} are tried"
        )
        why = dict.fromkeys(MATRIX, reason)
    if row.case == "plain" and row.N not in FLEX and row.dtype != "float32":
        why["flex"] = f"not tried: plain rows are compiled at N = {FLEX[0]}"
    return why


def build(name: str, row: Row, device: str) -> Callable[..., Tensor]:
    """Return a function of query, key and value that computes a row."""
    if name == "ours":
        return build_flash(row, device)
    if name == "flex":
        return build_flex(row, device)
    if name == "standard":
        return build_standard(row, device)
    return partial(call_backend, BACKENDS[name], build_arguments(row, device))


def build_flash(row: Row, device: str) -> Callable[..., Tensor]:
    """Return `flash_attention` with the row's options.

    Where sequences are decoded, it is `attend_split_kv`. On a GPU it is strict:
    tiles must not be timed in the name of a kernel.
    """
    strict = {"strict": True} if device == "cuda" else {}
    if row.case == "decoding":
        return partial(attend_split_kv, **strict)
    slopes = None
    if row.case == "alibi":
        slopes = alibi_slopes(row.shape[1]).to(device)
    return partial(
        flash_attention,
        causal=row.causal,
        window=row.window,
        alibi_slopes=slopes,
        **strict,
    )


def build_rule(row: Row) -> rules.Rule | None:
    """Return the row's mask as a rule, if it has one."""
    T, S = row.shape[3:5]
    if row.window:
        return rules.window(T, S, row.window)
    return rules.causal(T, S) if row.causal else None


def build_mask(row: Row, device: str, queries: Tensor | None = None) -> Tensor | None:
    """Return the row's mask, of all queries or of some; None: no mask."""
    rule, (T, S) = build_rule(row), row.shape[3:5]
    if rule is None:
        return None
    if queries is None:
        queries = torch.arange(T, device=device)
    first = torch.zeros((), dtype=torch.int64, device=device)
    keys = torch.arange(S, device=device)
    return rule(first, first, queries[:, None], keys)


def build_bias(row: Row, device: str, queries: Tensor | None = None) -> Tensor:
    """Return ALiBi's bias, in the row's precision; of all queries or some."""
    _, H, _, T, S, _ = row.shape
    if queries is None:
        queries = torch.arange(T, device=device)
    slopes = alibi_slopes(H).to(device)[:, None, None]
    away = queries[:, None] + S - T - torch.arange(S, device=device)
    return (-slopes * away.abs()).to(getattr(torch, row.dtype))


def build_arguments(row: Row, device: str) -> dict:
    """Return what PyTorch's function needs to compute the row."""
    given: dict = {"enable_gqa": True} if row.shape[2] < row.shape[1] else {}
    if row.case == "alibi":
        added = build_bias(row, device)
        given["attn_mask"] = added.masked_fill(~build_mask(row, device), -torch.inf)
    elif row.window:
        given["attn_mask"] = build_mask(row, device)
    else:
        given["is_causal"] = row.causal
    return given


def call_backend(
    backend: SDPBackend, given: dict, query: Tensor, key: Tensor, value: Tensor
) -> Tensor:
    """Return attention by one backend of PyTorch, or its refusal."""
    with sdpa_kernel([backend]):
        return F.scaled_dot_product_attention(query, key, value, **given)


def build_flex(row: Row, device: str) -> Callable[..., Tensor]:
    """Return FlexAttention with the row's rule and score function.

    It is compiled anew for every row: after some recompilations of one
    function, PyTorch would run it uncompiled, and so with a score matrix.
    """
    _, H, G, T, S, _ = row.shape
    rule, score = build_rule(row), None
    if row.case == "alibi":
        slopes = alibi_slopes(H).to(device)

        def score(s, b, h, q, k):
            return s - slopes[h] * (q + S - T - k).abs()

    mask = None
    if rule:
        mask = create_block_mask(rule, None, None, T, S, device=device)
    run: Callable[..., Tensor] = flex_attention
    if device == "cuda":
        torch._dynamo.reset()
        run = torch.compile(flex_attention, dynamic=False, fullgraph=True)
    return partial(run, score_mod=score, block_mask=mask, enable_gqa=G < H)


def build_standard(row: Row, device: str) -> Callable[..., Tensor]:
    """Return chapter 4's `attend`, with keys repeated for their heads."""
    more = {"mask": build_mask(row, device)}
    if row.case == "alibi":
        more["bias"] = build_bias(row, device)
    each = row.shape[1] // row.shape[2]

    def run(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        if each > 1:
            key, value = (x.repeat_interleave(each, dim=1) for x in (key, value))
        return attend(query, key, value, **more)

    return run
