"""Right answers to the exercises of chapters/16_beyond_text."""

import numpy as np
import torch
from torch import einsum
from torch.nn import functional as F

from right_answers import collect_answers, in_double


def patches_by_unfold(images, size):
    return F.unfold(images, size, stride=size).transpose(1, 2)


def patches_by_loops(images, size):
    B, _, H, W = images.shape
    found = [
        images[:, :, y : y + size, x : x + size].reshape(B, -1)
        for y in range(0, H, size)
        for x in range(0, W, size)
    ]
    return torch.stack(found, dim=1)


def patches_by_tensor_unfold(images, size):
    cells = images.unfold(2, size, size).unfold(3, size, size)
    return cells.movedim(1, 3).flatten(1, 2).flatten(2)


def patches_by_einsum(images, size):
    B, C, H, W = images.shape
    cells = images.view(B, C, H // size, size, W // size, size)
    return einsum("bcrhkw->brkchw", cells).flatten(3).flatten(1, 2)


def patches_by_pixel_unshuffle(images, size):
    cells = F.pixel_unshuffle(images, size)
    return cells.flatten(2).mT


def graph_by_loops(features, edges, weight, a):
    values = features @ weight.T
    rows = []
    for node in range(len(features)):
        sources = edges[0][edges[1] == node]
        if len(sources) == 0:
            rows.append(0 * values[node])
            continue
        scores = values[sources] @ a[0] + values[node] @ a[1]
        weights = F.leaky_relu(scores, 0.2).softmax(0)
        rows.append(weights @ values[sources])
    return torch.stack(rows)


def graph_by_a_matrix_of_counts(features, edges, weight, a):
    values, N = features @ weight.T, len(features)
    counts = torch.zeros(N, N, dtype=values.dtype)
    counts.index_put_((edges[1], edges[0]), counts.new_ones(()), True)
    scores = (values @ a[1])[:, None] + (values @ a[0])[None]
    scores = torch.where(scores > 0, scores, 0.2 * scores)
    weights = (scores + counts.log()).softmax(-1)  # of a node without edges: NaN
    none = counts.sum(-1, keepdim=True) == 0
    weights = scores.masked_fill(none, 0.0).add(torch.where(none, 0.0, counts.log()))
    return weights.softmax(-1).masked_fill(none, 0.0) @ values


def graph_by_a_matrix_of_edges(features, edges, weight, a):
    values = F.linear(features, weight)
    source, target = edges.unbind()
    scores = F.leaky_relu((values[source] * a[0] + values[target] * a[1]).sum(1), 0.2)
    into = F.one_hot(target, len(features)).bool()
    columns = scores[:, None].masked_fill(~into, -torch.inf)
    weights = columns.softmax(0) if len(scores) else columns.exp()
    return weights.nan_to_num(0.0).T @ values[source]


def graph_by_scatter(features, edges, weight, a):
    values = features @ weight.mT
    s, t = edges
    left, right = values @ a.mT[:, 0], values @ a.mT[:, 1]
    scores = F.leaky_relu(left[s] + right[t], negative_slope=0.2)
    most = scores.detach().max() if len(s) else 0.0
    top = torch.full((len(values),), -1e30).scatter_reduce(
        0, t, scores.detach().float(), "amax"
    )
    powers = torch.exp(scores - top[t] + 0 * most)
    total = torch.zeros_like(left).scatter_add(0, t, powers)
    weighted = (powers / total[t])[:, None] * values[s]
    return torch.zeros_like(values).index_add(0, t, weighted)


def gated_by_einsum(text, image, W_query, W_key, W_value, gate):
    q = einsum("btc,dc->btd", text, W_query)
    k = einsum("bsm,dm->bsd", image, W_key)
    v = einsum("bsm,cm->bsc", image, W_value)
    weights = (einsum("btd,bsd->bts", q, k) / W_query.shape[0] ** 0.5).softmax(2)
    return text + torch.tanh(gate) * einsum("bts,bsc->btc", weights, v)


def gated_by_linear(text, image, W_query, W_key, W_value, gate):
    q, k = F.linear(text, W_query), F.linear(image, W_key)
    scores = torch.bmm(q, k.transpose(1, 2)) * q.shape[-1] ** -0.5
    mixed = torch.bmm(F.softmax(scores, dim=-1), image)
    return torch.add(text, gate.tanh() * (mixed @ W_value.T))


def gated_by_exponentials(text, image, W_query, W_key, W_value, gate):
    scores = text @ W_query.T @ W_key @ image.mT / len(W_query) ** 0.5
    powers = (scores - scores.amax(-1, keepdim=True)).exp()
    weights = powers / powers.sum(-1, keepdim=True)
    alpha = 2 * torch.sigmoid(2 * gate) - 1
    return weights @ image @ W_value.T * alpha + text


def gated_by_sequence(text, image, W_query, W_key, W_value, gate):
    rows = []
    for words, patches in zip(text, image, strict=True):
        scores = (words @ W_query.T) @ (patches @ W_key.T).T
        weights = (scores / W_key.shape[0] ** 0.5).softmax(-1)
        rows.append(words + gate.tanh() * (weights @ (patches @ W_value.T)))
    return torch.stack(rows)


def counts_by_pairs(frames, height, width, size):
    N = len([*range(0, height, size)]) * len([*range(0, width, size)])
    time = torch.arange(frames).repeat_interleave(N)
    place = torch.arange(N).repeat(frames)
    same = time[:, None] == time
    column = place[:, None] == place
    earlier = time[:, None] >= time
    space, steps = int(same.sum()), int(column.sum())
    causal = int((column & earlier).sum())
    reached = int(earlier.sum())
    return [
        len(time),
        len(time) ** 2,
        space + steps,
        space + causal,
        reached,
    ]


def counts_by_sums(frames, height, width, size):
    n = height * width // size**2
    seen = [t + 1 for t in range(frames)]
    space = sum(n * n for _ in seen)
    return [
        n * frames,
        sum(n * frames for _ in range(n * frames)),
        n * frames * (n + frames),
        space + n * sum(seen),
        n * n * sum(seen),
    ]


def counts_as_tuple(frames, height, width, size):
    n = (height // size) * (width // size)
    t = frames
    triangle = t * t - t * (t - 1) // 2
    return (n * t, n * n * t * t, t * n * n + n * t * t,
            t * n * n + n * triangle, n * n * triangle)  # fmt: skip


def counts_by_numpy(frames, height, width, size):
    grid = np.zeros((height, width))[::size, ::size].size
    pairs = int(np.tri(frames).sum())
    space = frames * grid**2
    return [
        frames * grid,
        (frames * grid) ** 2,
        space + grid * frames**2,
        space + grid * pairs,
        pairs * grid**2,
    ]


def counts_as_shares_of_joint_attention(frames, height, width, size):
    patches = height / size * width / size
    tokens = frames * patches
    share = (frames + 1) / (2 * frames)
    space, time = tokens * patches, tokens * frames
    found = tokens, tokens**2, space + time, space + time * share
    return [round(x) for x in (*found, tokens**2 * share)]


def connect(layer, features, *pairs):
    """Return the outputs of a layer on a graph with these edges."""
    edges = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).T
    return layer(features, edges)


def far(a, b):
    return bool((a - b).abs().max() > 1e-4)


def fault_by_one_graph_at_a_time(layer, features, edges):
    x = torch.randn(6, features.shape[1], generator=torch.Generator().manual_seed(7))
    if far(connect(layer, x), 0 * connect(layer, x)):
        cycle = [(i, (i + 1) % 6) for i in range(6)]
        own, moved = connect(layer, x), connect(layer, x, *cycle)
        return 4 if far(moved, own.roll(1, 0)) else 6
    single = [connect(layer, x, (i, 5)) for i in range(3)]
    if not single[0][5].any():
        return 3
    every, total = connect(layer, x, *((i, 5) for i in range(3))), sum(single)
    if not far(every[5], total[5]):
        return 1
    if far(connect(layer, x, (0, 5), (2, 3))[5], single[0][5]):
        return 2
    return 0 if far(every[5], total[5] / 3) else 5


def fault_from_a_path(layer, features, edges):
    x = torch.linspace(-1, 1, 3 * features.shape[1]).cos().view(3, -1)
    x = x * torch.tensor([1.5, -1.0, 0.5])[:, None]
    empty, path = connect(layer, x), connect(layer, x, (0, 1), (1, 2))
    if empty.any():
        return 4 if far(path[1], empty[0]) else 6
    if path[0].any():
        return 3
    value = connect(layer, x, (0, 1))[1]
    if far(path[1], value):
        return 2
    three = (0, 2), (1, 2), (2, 2)
    total = sum(connect(layer, x, edge)[2] for edge in three)
    both = connect(layer, x, *three)[2]
    if not far(both, total):
        return 1
    return 0 if far(both, total / 3) else 5


def fault_by_table(layer, features, edges):
    rng = torch.Generator().manual_seed(3)
    x = torch.randn(5, features.shape[1], generator=rng)
    none, one = connect(layer, x), connect(layer, x, (0, 1))
    two = connect(layer, x, (2, 1)) + connect(layer, x, (3, 1))
    both = connect(layer, x, (0, 1), (2, 1), (3, 1))
    apart = connect(layer, x, (0, 1), (3, 4))
    facts = {
        6: none.any() and not far(none[0], one[1]),
        4: none.any(),
        3: not one[1].any(),
        2: far(apart[1], one[1]),
        1: not far(both[1], one[1] + two[1]),
        5: not far(3 * both[1], one[1] + two[1]),
    }
    return next((number for number, seen in facts.items() if seen), 0)


def fault_from_a_star(layer, features, edges):
    """A star shows the wrong softmax over sources, a fork the one over all."""
    rng = torch.Generator().manual_seed(5)
    x = torch.randn(4, features.shape[1], generator=rng)
    if connect(layer, x)[3].any():
        kept = connect(layer, x, (3, 0))
        return 4 if far(kept[0], connect(layer, x)[3]) else 6
    value = connect(layer, x, (0, 1))[1]
    if not value.any():
        return 3
    star = connect(layer, x, (0, 1), (0, 2), (0, 3))
    if far(star[1], value):
        fork = connect(layer, x, (0, 1), (2, 3))
        return 2 if far(fork[1], value) else 1
    three = [(0, 1), (0, 1), (2, 1), (3, 1)]
    mean = sum(connect(layer, x, edge)[1] for edge in three) / 4
    return 5 if not far(connect(layer, x, *three)[1], mean) else 0


def fault_as_tensor(*given):
    return torch.tensor(fault_by_table(*given))


def kind_from_a_blank_picture(attend, picture):
    blank = attend(torch.ones(44, 52))
    if blank.max() > 1.5 * blank.min():
        return 3 if int(blank.argmax()) // 13 > 2 else 4
    dark = torch.ones(44, 52)
    dark[24:36, 32:44] = 0.2
    weights = attend(dark)
    middle, edge = weights[7, 9], weights[8, 10]
    if middle > weights[0, 0]:
        return 0
    return 2 if edge > weights[0, 0] else 1


def kind_by_moving(attend, picture):
    """A dark square is moved; what follows it moves as well."""
    peaks = []
    for top, left in ((20, 28), (24, 20)):
        canvas = torch.ones(40, 60)
        canvas[top : top + 12, left : left + 12] = 0
        weights = attend(canvas)
        peaks.append(weights > 0.9 * weights.max())
    if torch.equal(*peaks):
        return 3 if peaks[0][4:].any() else 4
    inside, corner = peaks[0][6, 8], peaks[0][7, 9]
    return 0 if inside else 2 if corner else 1


def kind_by_darker_and_brighter_squares(attend, picture):
    canvas = torch.full((36, 44), 0.5)
    before = attend(canvas)
    dark, bright = canvas.clone(), canvas.clone()
    dark[16:32, 24:40], bright[16:32, 24:40] = 0.0, 1.0
    down, up = ((attend(x) - before)[5, 7] for x in (dark, bright))
    if abs(down) + abs(up) < 1e-6:
        return 3 if before[4, 5] > before[:3].max() else 4
    if (down > 0) == (up > 0):
        return 0 if up > 0 else 2
    return 1


def kind_by_logarithms_of_weights(attend, picture):
    """The logarithms of the weights are linear in what a map follows."""
    rng = torch.Generator().manual_seed(1)
    canvas = torch.full((36, 44), 0.5)
    canvas[20:32, 28:40] = 0.0
    canvas[20:32, 4:16] = torch.rand(12, 12, generator=rng) / 2 + 0.5
    logs = attend(canvas).log()
    if (logs[1, 1] - logs[1, 9]).abs() > 0.01:
        return 4
    if logs[4, 5] > logs[0, 0] + 0.1:
        return 3
    dark, bright = (logs[6, x] - logs[0, 0] for x in (8, 2))
    if dark > 0.1:
        return 0
    return 1 if dark < -0.1 and bright > 0.1 else 2


def kind_as_tensor(*given):
    return torch.tensor(kind_by_moving(*given))


graph_in_double = in_double(graph_by_loops)
gated_in_double = in_double(gated_by_linear)
ANSWERS = collect_answers(
    vars(),
    check_patches="patches",
    check_graph_attention="graph",
    check_gated_cross_attention="gated",
    check_space_time_counts="counts",
    check_graph_fault="fault",
    check_map_kind="kind",
)
