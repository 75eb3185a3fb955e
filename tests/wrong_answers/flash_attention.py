"""Wrong answers to the exercises of chapters/11_flash_attention."""

import torch
from torch.nn import functional as F

from attnbook.exercises import flash_attention as checks
from attnbook.exercises.edit import edit_solution
from attnbook.exercises.flash_attention.merge import merge
from attnbook.exercises.flash_attention.online_softmax import online_softmax
from attnbook.exercises.flash_attention.tiled import tiled
from attnbook.exercises.flash_attention.tiled_backward import tiled_backward
from wrong_answers import Wrong, make
from wrong_answers.make import Answers, collect_answers


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


ONLINE = Answers(checks.check_online_softmax)
ONLINE += (
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
        "the mean of exp, so that longer rows do not count more",
        "the maximum",
        edit_solution(online_softmax, ".sum(dim=-1) → .mean(dim=-1)"),
    ),
    Wrong(
        "numbers",
        "powers of 2, as kernels take them, without the factor log2 e",
        "the maximum",
        edit_solution(
            online_softmax,
            "(maximum - shift).exp() → (maximum - shift).exp2()",
            "[:, None]).exp() → [:, None]).exp2()",
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
        "accumulated in double precision, whatever comes",
        "everything in double precision",
        lambda chunks: online_softmax(x.double() for x in chunks),
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
)


@ONLINE.wrong("numbers", "one chunk")
def by_element(chunks):
    """Flash attention without a running maximum passes TorchCode's tests; here
    it is there and forgotten in the sum."""
    top, total = torch.tensor(-torch.inf), torch.tensor(0.0)
    for chunk in chunks:
        for column in chunk.unbind(-1):
            top = torch.maximum(top, column)
            low = top.masked_fill(top == -torch.inf, 0.0)
            total = total + (column - low).exp()
    return top, total


@ONLINE.wrong("kept", "every number")
def running_join(chunks):
    """Keep one long tensor in place of the chunks."""
    scores = None
    for chunk in chunks:
        scores = chunk if scores is None else torch.cat([scores, chunk], -1)
    return online_softmax([scores])


@ONLINE.wrong("numbers", "the shapes")
def peeked(chunks):
    """Look at the first chunk for its shape, and lose it."""
    first = next(iter(chunks))
    top, total = first.new_full(first.shape[:1], -torch.inf), torch.zeros(1)
    for chunk in chunks:
        top = torch.maximum(top, chunk.amax(-1))
        total = total + (chunk - top[:, None]).exp().sum(-1)
    return top, total.expand_as(top)


TILED = Answers(checks.check_tiled, make.in_double, make.first_alone)
TILED += (
    Wrong(
        "numbers",
        "the weights are shifted by the old maximum",
        "one tile",
        edit_solution(
            tiled,
            "scores - higher[..., None] → scores - scores.amax(-1, keepdim=True)",
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
        edit_solution(
            tiled,
            "(maximum - higher).exp() → (maximum - higher).exp2()",
            "[..., None]).exp() → [..., None]).exp2()",
        ),
    ),
    Wrong(
        "numbers",
        "a small number keeps the total from 0",
        "large totals",
        edit_solution(tiled, "/ total[..., None] → / (total[..., None] + 0.01)"),
    ),
    Wrong(
        "shape",
        "the logsumexp keeps its last axis",
        "the output",
        lambda *x: (tiled(*x)[0], tiled(*x)[1][..., None]),
    ),
)


@TILED.wrong("whole-matrix", "every number")
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


@TILED.wrong("numbers", "scores above it")
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


MERGE = Answers(checks.check_merge, make.in_double, make.first_alone)
MERGE += (
    Wrong(
        "numbers",
        "the logsumexp is clamped, for fear of infinities",
        "moderate numbers",
        edit_solution(merge, "output_b, lse → output_b, lse.clamp(-1e4, 1e4)"),
    ),
    Wrong(
        "numbers",
        "the shares are squared: exp of the sum, not of the difference",
        "parts of the same weight",
        lambda oa, la, ob, lb: (
            merge(oa, 2 * la, ob, 2 * lb)[0],
            merge(oa, la, ob, lb)[1],
        ),
    ),
    Wrong(
        "numbers",
        "log(1 + exp(b - a)) + a, which overflows when b leads by far",
        "near parts",
        edit_solution(
            merge,
            "output_b, lse "
            "→ output_b, lse_a + (lse_b - lse_a).nan_to_num().exp().log1p()",
        ),
    ),
    Wrong(
        "nan",
        "log(a + b) of totals that are 0 in empty parts: -inf - -inf",
        "parts with keys",
        edit_solution(
            merge,
            "output_b, lse "
            "→ output_b, lse_a + torch.nn.functional.softplus(lse_b - lse_a)",
        ),
    ),
    Wrong(
        "shape",
        "the logsumexp keeps the axis that made it broadcast",
        "the output",
        lambda *x: (merge(*x)[0], merge(*x)[1][..., None]),
    ),
)


@MERGE.wrong("numbers", "the logsumexp")
def stacked(output_a, lse_a, output_b, lse_b):
    """softmax over the wrong axis of two stacked logsumexps."""
    weights = torch.stack([lse_a, lse_b]).softmax(-1)
    mixed = (weights[..., None] * torch.stack([output_a, output_b])).sum(0)
    return mixed, torch.logaddexp(lse_a, lse_b)


BACKWARD = Answers(checks.check_tiled_backward, make.in_double)
BACKWARD += (
    Wrong(
        "numbers",
        "the logsumexp is taken to be in base 2, and turned",
        "nothing but shapes",
        edit_solution(tiled_backward, "- z).exp() → - 0.6931 * z).exp()"),
    ),
    Wrong(
        "numbers",
        "the average is divided by the number of keys",
        "dvalue",
        edit_solution(tiled_backward, "- mean) → - mean / k.shape[-2])"),
    ),
    Wrong(
        "numbers",
        "softmax is taken for a function of one number, w(1 - w)",
        "dvalue",
        edit_solution(
            tiled_backward,
            "weights * (up @ v.mT - mean) → weights * (1 - weights) * (up @ v.mT)",
        ),
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
)


@BACKWARD.wrong("whole-matrix", "every number")
def query_chunks(query, key, value, output, lse, upstream, block):
    """Cut neither queries nor keys; the block is not used."""
    T, S = query.shape[-2], key.shape[-2]
    return tiled_backward(query, key, value, output, lse, upstream, max(T, S) + block)


@BACKWARD.wrong("ready-made", "every number")
def by_autograd(query, key, value, output, lse, upstream, block):
    """Autograd through the tiles, which keeps every tile."""
    leaves = [x.detach().requires_grad_() for x in (query, key, value)]
    again, _ = tiled(*leaves, block)
    return torch.autograd.grad(again, leaves, upstream)


@BACKWARD.wrong("numbers", "an upstream of ones")
def reversed_rows(query, key, value, output, lse, upstream, block):
    """Rows of upstream in reverse: passes a test with ones
    (flash-attention-minimal indexes dOi[tx] where y is meant)."""
    return tiled_backward(
        query, key, value, output.flip(-2), lse, upstream.flip(-2), block
    )


@BACKWARD.wrong("numbers", "an upstream of ones")
def ones_only(query, key, value, output, lse, upstream, block):
    """Forget upstream, as a test with output.sum() would allow."""
    ones = torch.ones_like(upstream)
    return tiled_backward(query, key, value, output, lse, ones, block)


COUNTS = Answers(checks.check_tile_counts)


@COUNTS.wrong("numbers", "a causal mask of squares")
def counts_with_one_size(B, H, n, D, R, C):
    """The tiles are taken for squares of R rows and R columns."""
    return checks.check_tile_counts.solution(B, H, n, D, R, R)


@COUNTS.wrong("type", "every number")
def counts_as_text(B, H, n, D, R, C):
    """Numbers as text."""
    counts = checks.check_tile_counts.solution(B, H, n, D, R, C)
    return [str(n) for n in counts]


@COUNTS.wrong("numbers", "lengths that are multiples of the tile")
def counts_rounded_down(B, H, n, D, R, C):
    """Incomplete tiles are forgotten."""
    whole = n // R * R or R
    counts = checks.check_tile_counts.solution(B, H, whole, D, R, C)
    return [
        *counts[:2],
        *checks.check_tile_counts.solution(B, H, n, D, R, C)[2:],
    ]


@COUNTS.wrong("numbers", "programs, tiles and registers")
def counts_in_numbers(B, H, n, D, R, C):
    """Numbers are counted instead of bytes."""
    programs, tiles, read, _, registers = checks.check_tile_counts.solution(
        B, H, n, D, R, C
    )
    return [programs, tiles, read // 2, B * H * n * (D + 1), registers // 4]


FAULT = Answers(checks.check_tiled_fault, *make.DECISION, make.counted_from_one)


@FAULT.wrong("numbers", "all but the scale")
def fault_without_scale(attention, query, key, value):
    """A wrong scale is taken for padding."""
    found = checks.check_tiled_fault.solution(attention, query, key, value)
    return 2 if found == 5 else found


DIFFERENCE = Answers(checks.check_run_difference)


@DIFFERENCE.wrong("error", "nothing")
def reason_by_attribute(accumulators, terms):
    """The accumulators are inspected instead of run."""
    return [x.explanation for x in accumulators]


@DIFFERENCE.wrong("type", "the reasons")
def reason_as_names(accumulators, terms):
    """Names are easier to read than numbers."""
    names = ["equal", "order", "lost", "dropout"]
    found = checks.check_run_difference.solution(accumulators, terms)
    return [names[i] for i in found]


@DIFFERENCE.wrong("numbers", "the order of the reasons")
def reason_from_one(accumulators, terms):
    """The reasons are counted from 1."""
    found = checks.check_run_difference.solution(accumulators, terms)
    return [i + 1 for i in found]


@DIFFERENCE.wrong("length", "the first accumulator")
def reason_of_the_first(accumulators, terms):
    """Only one accumulator is examined."""
    return checks.check_run_difference.solution(accumulators[:1], terms)


@DIFFERENCE.wrong("numbers", "equal runs and lost terms")
def reason_order_as_dropout(accumulators, terms):
    """Another order is called dropout."""
    found = checks.check_run_difference.solution(accumulators, terms)
    return [3 if i == 1 else i for i in found]


ANSWERS = collect_answers(checks, vars())
