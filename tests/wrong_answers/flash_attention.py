"""Wrong answers to the exercises of chapters/11_flash_attention."""

import torch
from torch.nn import functional as F

from attnbook.exercises import flash_attention as checks
from attnbook.exercises.flash_attention.answers import (
    backward,
    cut,
    tiles,
    whole_only,
)
from attnbook.exercises.flash_attention.merge_answers import (
    by,
    by_maximum,
    shares,
)
from attnbook.exercises.flash_attention.online_answers import joined, step
from attnbook.exercises.solutions.flash_attention import (
    merge,
    online_softmax,
    tiled,
    tiled_backward,
)
from wrong_answers import Wrong
from wrong_answers.common import single, usual


def by_element(chunks):
    """Milakov and Gimelshein's loop, with the rescaling forgotten."""
    top, total = torch.tensor(-torch.inf), torch.tensor(0.0)
    for chunk in chunks:
        for column in chunk.unbind(-1):
            top = torch.maximum(top, column)
            low = top.masked_fill(top == -torch.inf, 0.0)
            total = total + (column - low).exp()
    return top, total


def running_join(chunks):
    """Keep one long tensor in place of the chunks."""
    scores = None
    for chunk in chunks:
        scores = chunk if scores is None else torch.cat([scores, chunk], -1)
    return online_softmax([scores])


def peeked(chunks):
    """Look at the first chunk for its shape, and lose it."""
    first = next(iter(chunks))
    top, total = first.new_full(first.shape[:1], -torch.inf), torch.zeros(1)
    for chunk in chunks:
        top = torch.maximum(top, chunk.amax(-1))
        total = total + (chunk - top[:, None]).exp().sum(-1)
    return top, total.expand_as(top)


ONLINE = (
    Wrong(
        "numbers",
        "flash attention without a running maximum passes TorchCode's tests; "
        "here it is there and forgotten in the sum",
        "one chunk",
        by_element,
    ),
    Wrong(
        "kept",
        "the chunks are joined as they come",
        "every number",
        running_join,
    ),
    Wrong(
        "kept",
        "a list of all chunks, and torch.logsumexp",
        "every number",
        joined(
            lambda chunks: (
                chunks[0].amax(-1),
                (
                    chunks[0].logsumexp(-1)
                    - chunks[0]
                    .amax(-1)
                    .masked_fill(chunks[0].amax(-1) == -torch.inf, 0.0)
                ).exp(),
            )
        ),
    ),
    Wrong(
        "error",
        "an iterable is taken for a list",
        "lists",
        lambda chunks: online_softmax([chunks[0], *chunks[1:]]),
    ),
    Wrong(
        "error",
        "the number of chunks is asked for",
        "lists",
        lambda chunks: online_softmax([next(chunks) for _ in range(3)]),
    ),
    Wrong(
        "numbers",
        "the first chunk is read for its shape, and is gone",
        "the shapes",
        peeked,
    ),
    Wrong(
        "numbers",
        "the mean of exp, so that longer rows do not count more",
        "the maximum",
        step(weigh=lambda chunk, top: (chunk - top[:, None]).exp().mean(-1)),
    ),
    Wrong(
        "numbers",
        "powers of 2, as kernels take them, without the factor log2 e",
        "the maximum",
        step(
            rescale=lambda old, new: (old - new).exp2(),
            weigh=lambda chunk, top: (chunk - top[:, None]).exp2().sum(-1),
        ),
    ),
    Wrong(
        "shape",
        "keepdim=True is left on",
        "every number, broadcast",
        lambda chunks: tuple(x[:, None] for x in online_softmax(chunks)),
    ),
    Wrong(
        "dtype",
        "accumulated in single precision, whatever comes",
        "everything in single precision",
        lambda chunks: online_softmax(x.float() for x in chunks),
    ),
    Wrong(
        "numbers",
        "the maximum of the chunk's total and of the old one",
        "one chunk",
        lambda chunks: online_softmax(list(chunks)[:1]),
    ),
    Wrong(
        "type",
        "the total alone is returned",
        "the total",
        lambda chunks: online_softmax(chunks)[1],
    ),
    *usual(checks.check_online_softmax),
)


def padded_with_lowest(query, key, value, block):
    """Fill up the last tile of keys, and hide them with a sentinel."""
    more = -key.shape[-2] % block
    scale = query.shape[-1] ** -0.5
    k = F.pad(key * scale, (0, 0, 0, more))
    v = F.pad(value, (0, 0, 0, more))
    hidden = torch.arange(k.shape[-2]) >= key.shape[-2]
    outputs, sums = [], []
    for q in query.split(block, -2):
        top, total, output = q.new_full(q.shape[:-1], -torch.inf), 0.0, 0.0
        for x, y, gone in zip(
            *(z.split(block, -2) for z in (k, v)),
            hidden.split(block),
            strict=True,
        ):
            scores = (q @ x.mT).masked_fill(gone, -100.0)
            now = torch.maximum(top, scores.amax(-1))
            factor, w = (top - now).exp(), (scores - now[..., None]).exp()
            total = total * factor + w.sum(-1)
            output = output * factor[..., None] + w @ y
            top = now
        outputs.append(output / total[..., None])
        sums.append(top + total.log())
    return torch.cat(outputs, -2), torch.cat(sums, -1)


def rows_at_once(query, key, value, block):
    """Cut the queries only: each strip has a softmax of its own."""
    scale = query.shape[-1] ** -0.5
    found = []
    for q in (query * scale).split(block, -2):
        scores = q @ key.mT
        found.append((scores.softmax(-1) @ value, scores.logsumexp(-1)))
    outputs, sums = zip(*found, strict=True)
    return torch.cat(outputs, -2), torch.cat(sums, -1)


def all_tiles(query, key, value, block):
    """Keep every tile of scores until the end."""
    scale = query.shape[-1] ** -0.5
    rows = [
        torch.cat([q @ k.mT for k in key.split(block, -2)], -1)
        for q in (query * scale).split(block, -2)
    ]
    outputs = [r.softmax(-1) @ value for r in rows]
    sums = [r.logsumexp(-1) for r in rows]
    return torch.cat(outputs, -2), torch.cat(sums, -1)


def same_rows(answer):
    """Give missing rows zeros, so that the shapes are right."""

    def filled(*given):
        output, lse = answer(*given)
        missing = given[0].shape[-2] - output.shape[-2]
        return F.pad(output, (0, 0, 0, missing)), F.pad(lse, (0, missing))

    return filled


def diagonal(query, key, value, block):
    """Visit tile i of the keys for tile i of the queries alone."""
    scale = query.shape[-1] ** -0.5
    found = [
        ((q @ k.mT).softmax(-1) @ v, (q @ k.mT).logsumexp(-1))
        for q, k, v in zip(
            (query * scale).split(block, -2),
            key.split(block, -2),
            value.split(block, -2),
            strict=False,
        )
    ]
    outputs, sums = zip(*found, strict=True)
    return torch.cat(outputs, -2), torch.cat(sums, -1)


TILED = (
    Wrong(
        "queries-only",
        "queries are cut and keys are not: no online softmax is needed",
        "every number, and the memory when T is large",
        rows_at_once,
    ),
    Wrong(
        "whole-matrix",
        "tiles are made, and all are kept",
        "every number",
        all_tiles,
    ),
    Wrong(
        "whole-matrix",
        "the matrix is made in one piece and read in tiles",
        "every number",
        lambda q, k, v, block: rows_at_once(q, k, v, len(q) + block),
    ),
    Wrong(
        "no-scale",
        "the scale is left to the caller, as in a kernel's inner loop",
        "one key",
        tiles(lambda q, k, v: torch.ones(())),
    ),
    Wrong(
        "keys-dropped",
        "a loop over S // block tiles (triton-lang/triton 5971 wants "
        "multiples)",
        "whole tiles",
        tiles(keys=whole_only, queries=cut),
    ),
    Wrong(
        "numbers",
        "the ragged tile is hidden with a sentinel of -100",
        "scores above it",
        padded_with_lowest,
    ),
    Wrong(
        "numbers",
        "the weights are shifted by the old maximum",
        "one tile",
        tiles(
            weigh=lambda s, top: (s - s.amax(-1, keepdim=True)).exp(),
        ),
    ),
    Wrong(
        "numbers",
        "each tile of queries meets one tile of keys, as in a loop over zip",
        "one tile",
        same_rows(diagonal),
    ),
    Wrong(
        "numbers",
        "powers of 2 without the factor log2 e",
        "one key",
        tiles(
            weigh=lambda s, top: (s - top[..., None]).exp2(),
            of_output=lambda old, new: (old - new).exp2(),
            of_total=lambda old, new: (old - new).exp2(),
        ),
    ),
    Wrong(
        "lse-base-two",
        "the kernel's own logsumexp, in powers of 2, is handed out",
        "the output",
        tiles(lse=lambda top, total: (top + total.log()) * 1.4426950408889634),
    ),
    Wrong(
        "numbers",
        "a small number keeps the total from 0",
        "large totals",
        tiles(mean=lambda o, total: o / (total[..., None] + 0.01)),
    ),
    Wrong(
        "shape",
        "the logsumexp keeps its last axis",
        "the output",
        lambda *x: (tiled(*x)[0], tiled(*x)[1][..., None]),
    ),
    Wrong(
        "type",
        "only the output is returned",
        "the output",
        lambda *x: tiled(*x)[0],
    ),
    single(tiled),
    *usual(checks.check_tiled),
)


def stacked(output_a, lse_a, output_b, lse_b):
    """Softmax over the queries, not over the two parts."""
    weights = torch.stack([lse_a, lse_b]).softmax(-1)
    mixed = (weights[..., None] * torch.stack([output_a, output_b])).sum(0)
    return mixed, torch.logaddexp(lse_a, lse_b)


def opened(output_a, lse_a, output_b, lse_b):
    """Give an empty pair a logsumexp of 0."""
    output, lse = merge(output_a, lse_a, output_b, lse_b)
    return output, lse.masked_fill(lse == -torch.inf, 0.0)


MERGE = (
    Wrong(
        "plain-mean",
        "the mean, as of two models' answers",
        "parts of the same weight",
        lambda oa, la, ob, lb: ((oa + ob) / 2, torch.logaddexp(la, lb)),
    ),
    Wrong(
        "shares-exchanged",
        "sigmoid(lse_b - lse_a) for the first part",
        "parts of the same weight",
        by(lambda a, b: 1 - shares(a, b)),
    ),
    Wrong(
        "numbers",
        "softmax over the wrong axis of two stacked logsumexps",
        "the logsumexp",
        stacked,
    ),
    Wrong(
        "empty-finite",
        "an empty pair's logsumexp is set to 0",
        "all that is not empty",
        opened,
    ),
    Wrong(
        "numbers",
        "the logsumexp is clamped, for fear of infinities",
        "moderate numbers",
        by(lse=lambda a, b: torch.logaddexp(a, b).clamp(-1e4, 1e4)),
    ),
    Wrong(
        "not-divided",
        "weights exp(lse - maximum) as they are, as before the last line of "
        "a kernel",
        "the logsumexp",
        lambda *x: (by_maximum(divide=False)(*x)[0], merge(*x)[1]),
    ),
    Wrong(
        "numbers",
        "the shares are squared: exp of the sum, not of the difference",
        "parts of the same weight",
        by(lambda a, b: shares(2 * a, 2 * b)),
    ),
    Wrong(
        "numbers",
        "log(1 + exp(b - a)) + a, which overflows when b leads by far",
        "near parts",
        by(lse=lambda a, b: a + (1 + (b - a).nan_to_num(0.0).exp()).log()),
    ),
    Wrong(
        "nan",
        "log(a + b) of totals that are 0 in empty parts: -inf - -inf",
        "parts with keys",
        by(lse=lambda a, b: a + F.softplus(b - a)),
    ),
    Wrong(
        "shape",
        "the logsumexp keeps the axis that made it broadcast",
        "the output",
        lambda *x: (merge(*x)[0], merge(*x)[1][..., None]),
    ),
    Wrong(
        "type",
        "the outputs only, as if nothing were to be merged again",
        "the output",
        lambda *x: merge(*x)[0],
    ),
    single(merge),
    *usual(checks.check_merge),
)


def reversed_rows(query, key, value, output, lse, upstream, block):
    """Take the rows of upstream in the wrong order."""
    return tiled_backward(
        query, key, value, output.flip(-2), lse, upstream.flip(-2), block
    )


def ones_only(query, key, value, output, lse, upstream, block):
    """Forget upstream, as a test with output.sum() would allow."""
    ones = torch.ones_like(upstream)
    return tiled_backward(query, key, value, output, lse, ones, block)


def by_autograd(query, key, value, output, lse, upstream, block):
    """Let autograd do it."""
    leaves = [x.detach().requires_grad_() for x in (query, key, value)]
    again, _ = tiled(*leaves, block)
    return torch.autograd.grad(again, leaves, upstream)


def strips(query, key, value, output, lse, upstream, block):
    """Cut neither queries nor keys; the block is not used."""
    T, S = query.shape[-2], key.shape[-2]
    return tiled_backward(
        query, key, value, output, lse, upstream, max(T, S) + block
    )


BACKWARD = (
    Wrong(
        "whole-matrix",
        "the block is not used",
        "every number",
        strips,
    ),
    Wrong(
        "ready-made",
        "autograd through the tiles, which keeps every tile",
        "every number",
        by_autograd,
    ),
    Wrong(
        "numbers",
        "rows of upstream in reverse: passes a test with ones "
        "(flash-attention-minimal indexes dOi[tx] where y is meant)",
        "an upstream of ones",
        reversed_rows,
    ),
    Wrong(
        "numbers",
        "upstream is not used",
        "an upstream of ones",
        ones_only,
    ),
    Wrong(
        "average-of-the-tile",
        "FlashAttention's D is computed per tile of keys",
        "one tile",
        backward(
            dscores=lambda w, dw, mean: w * dw - w * (w * dw).sum(-1)[..., None]
        ),
    ),
    Wrong(
        "no-scale",
        "the query was scaled before the loop, forwards only",
        "dvalue",
        backward(
            dquery=lambda ds, k, c: (ds @ k).clone(),
            dkey=lambda ds, q, c: (q.mT @ ds).mT,
        ),
    ),
    Wrong(
        "key-overwritten",
        "`=` for `+=` in the inner loop (a store where an atomic add is meant)",
        "one tile of queries",
        backward(kept=(True, False)),
    ),
    Wrong(
        "numbers",
        "the logsumexp is taken to be in base 2, and turned",
        "nothing but shapes",
        backward(weights=lambda q, k, z, c: (q @ k.mT * c - z * 0.6931).exp()),
    ),
    Wrong(
        "numbers",
        "the average is divided by the number of keys",
        "dvalue",
        backward(dscores=lambda w, dw, mean: w * (dw - mean / w.shape[-1])),
    ),
    Wrong(
        "numbers",
        "softmax is taken for a function of one number, w(1 - w)",
        "dvalue",
        backward(dscores=lambda w, dw, mean: w * (1 - w) * dw),
    ),
    Wrong(
        "type",
        "the queries' gradient is left out",
        "dkey and dvalue",
        lambda *x: tiled_backward(*x)[1:],
    ),
    Wrong(
        "shape",
        "the gradients are transposed, as they come from the tensor cores",
        "every number",
        lambda *x: tuple(g.mT for g in tiled_backward(*x)),
    ),
    Wrong(
        "numbers",
        "dquery and dkey in the wrong order",
        "shapes, when T = S",
        lambda *x: tuple(
            g if g.shape == y.shape else torch.zeros_like(y)
            for g, y in zip(
                [tiled_backward(*x)[i] for i in (1, 0, 2)], x[:3], strict=True
            )
        ),
    ),
    single(tiled_backward),
    *usual(checks.check_tiled_backward),
)

ANSWERS = {
    "check_online_softmax": ONLINE,
    "check_tiled": TILED,
    "check_merge": MERGE,
    "check_tiled_backward": BACKWARD,
}
