"""Exercises beyond text: right answers of several kinds, and wrong ones."""

import pytest
import torch
from torch import einsum
from torch.nn import functional as F

from answers import make_tests
from attnbook.exercises import beyond_text as checks


def patches_by_unfold(images, size):
    return F.unfold(images, size, stride=size).transpose(1, 2)


def patches_by_einsum(images, size):
    B, C, H, W = images.shape
    cells = images.view(B, C, H // size, size, W // size, size)
    return einsum("bcrhkw->brkchw", cells).flatten(3).flatten(1, 2)


def patches_that_overlap(images, size):
    return F.unfold(images, size).mT


def graph_by_matrix(features, edges, weight, a, hide=-torch.inf):
    """Return the output from a matrix of scores, with a number that hides one."""
    values, N = features @ weight.T, len(features)
    counts = torch.zeros(N, N)
    for source, target in edges.T.tolist():
        counts[target, source] += 1
    scores = (values @ a[1])[:, None] + (values @ a[0])[None]
    scores = torch.where(scores > 0, scores, 0.2 * scores)
    weights = (scores + counts.log()).masked_fill(counts == 0, hide).softmax(-1)
    return weights.nan_to_num(0.0).masked_fill(counts.sum(-1)[:, None] == 0, 0) @ values


def graph_by_scatter(features, edges, weight, a, start=-torch.inf):
    """Return the output from sums over edges, with a first maximum."""
    values, (s, t) = features @ weight.mT, edges
    scores = F.leaky_relu((values[s] * a[0] + values[t] * a[1]).sum(1), 0.2)
    top = scores.new_full((len(values),), start)
    top = top.scatter_reduce(0, t, scores.detach(), "amax")
    powers = torch.exp(scores - top[t])
    total = torch.zeros_like(top).scatter_add(0, t, powers)
    weighted = (powers / (total[t] + 1e-16))[:, None] * values[s]
    return torch.zeros_like(values).index_add(0, t, weighted)


def hide_by(number):
    return lambda *given: graph_by_matrix(*given, hide=number)


def start_at(number):
    return lambda *given: graph_by_scatter(*given, start=number)


def softmax_over_targets(features, edges, weight, a, masked_first):
    """Return graph attention with a softmax over the wrong axis of a matrix."""
    values, N = F.linear(features, weight), len(features)
    counts = torch.zeros(N, N).index_put((edges[1], edges[0]), torch.ones(()), True)
    scores = F.leaky_relu((values @ a[1]).unsqueeze(1) + values @ a[0], 0.2)
    if masked_first:
        none = counts.sum(0) == 0
        scores = (scores + counts.log()).masked_fill(none, 0.0)
        return scores.softmax(-2).masked_fill(none, 0.0) @ values
    return scores.softmax(0).mul(counts) @ values


def counts_by_pairs(frames, height, width, size):
    N = len([*range(0, height, size)]) * len([*range(0, width, size)])
    time = torch.arange(frames).repeat_interleave(N)
    place = torch.arange(N).repeat(frames)
    same, column = (x[:, None] == x for x in (time, place))
    earlier = time[:, None] >= time
    space = int(same.sum())
    return [
        len(time),
        len(time) ** 2,
        space + int(column.sum()),
        space + int((column & earlier).sum()),
        int(earlier.sum()),
    ]


def counts_by_sums(frames, height, width, size):
    n, seen = height * width // size**2, sum(range(1, frames + 1))
    space = frames * n * n
    found = n * frames, (n * frames) ** 2, n * frames * (n + frames)
    return torch.tensor([*found, space + n * seen, n * n * seen])


def kind_from_a_blank_picture(attend, picture):
    blank = attend(torch.ones(44, 52))
    if blank.max() > 1.5 * blank.min():
        return 3 if int(blank.argmax()) // 13 > 2 else 4
    dark = torch.ones(44, 52)
    dark[24:36, 32:44] = 0.2
    weights = attend(dark)
    if weights[7, 9] > weights[0, 0]:
        return 0
    return 2 if weights[8, 10] > weights[0, 0] else 1


def kind_by_moving(attend, picture):
    peaks = []
    for top, left in ((20, 28), (24, 20)):
        canvas = torch.ones(40, 60)
        canvas[top : top + 12, left : left + 12] = 0
        weights = attend(canvas)
        peaks.append(weights > 0.9 * weights.max())
    if torch.equal(*peaks):
        return 3 if peaks[0][4:].any() else 4
    return 0 if peaks[0][6, 8] else 2 if peaks[0][7, 9] else 1


@pytest.mark.parametrize("masked_first", [True, False])
def test_a_softmax_over_another_axis_has_one_name(masked_first):
    verdict = checks.check_graph_attention(
        lambda *given: softmax_over_targets(*given, masked_first)
    )
    assert verdict.mistake == "softmax-over-sources", verdict


RIGHT = {
    checks.check_patches: (patches_by_unfold, patches_by_einsum),
    checks.check_graph_attention: (graph_by_matrix, graph_by_scatter),
    checks.check_space_time_counts: (counts_by_pairs, counts_by_sums),
    checks.check_map_kind: (kind_from_a_blank_picture, kind_by_moving),
}
WRONG = (
    (checks.check_patches, "", patches_that_overlap),
    (checks.check_graph_attention, "", hide_by(-1e4)),
    (checks.check_graph_attention, "", start_at(0.0)),
)
test_right_answers, test_wrong_answers = make_tests(RIGHT, WRONG)
