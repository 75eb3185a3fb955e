"""Right answers to the exercises of chapters/10_cost."""

import itertools
import math

import numpy as np
import torch


def empty(*shape):
    return torch.empty(*shape, device="meta")


def flops_in_one_line(B, H, G, T, S, D, E):
    n = 2 * B * H * T * S
    return [n * (D + E), n * 2 * (D + E), n * (3 * D + 2 * E)]


def flops_by_products(B, H, G, T, S, D, E):
    def product(m, k, n):
        return 2 * B * H * m * k * n

    scores, values = product(T, D, S), product(T, S, E)
    dvalue, dweights = product(S, T, E), product(T, E, S)
    dquery, dkey = product(T, S, D), product(S, T, D)
    back = dvalue + dweights + dquery + dkey
    return [scores + values, back, back + scores]


def flops_by_factors(B, H, G, T, S, D, E):
    """Each product by its output, and how many terms a number has."""

    def count(*pairs):
        heads = torch.Size([B, H])
        return sum(2 * k * (heads + shape).numel() for shape, k in pairs)

    there = (torch.Size([T, S]), D), (torch.Size([T, E]), S)
    back = (
        (torch.Size([S, E]), T),
        (torch.Size([T, S]), E),
        (torch.Size([T, D]), S),
        (torch.Size([S, D]), T),
    )
    return [count(*there), count(*back), count(*back, there[0])]


def flops_by_sums(B, H, G, T, S, D, E):
    sequences = itertools.product(range(B), range(H))
    there = sum(2 * T * S * (D + E) for _ in sequences)
    scores = there * D // (D + E)
    return [there, there * 2, there * 2 + scores]


def flops_by_numpy(B, H, G, T, S, D, E):
    pairs = int(np.prod([B, H, T, S], dtype=np.int64))
    widths = [D + E, 2 * (D + E), 3 * D + 2 * E]
    return [int(2 * pairs * w) for w in widths]


def moved_by_tensors(B, H, G, T, S, D, E, itemsize):
    dtype = {2: torch.float16, 4: torch.float32}[itemsize]

    def size(*shape):
        return torch.empty(shape, dtype=dtype, device="meta").nbytes

    q, k, v = size(B, H, T, D), size(B, G, S, D), size(B, G, S, E)
    w, o = size(B, H, T, S), size(B, H, T, E)
    return [q + k + w, w + w, w + v + o, q + k + v + o]


def moved_in_place(B, H, G, T, S, D, E, n):
    return [
        n * B * (H * T * D + G * S * D + H * T * S),
        n * B * 2 * H * T * S,
        n * B * (H * T * S + G * S * E + H * T * E),
        n * B * (H * T + G * S) * (D + E),
    ]


def moved_by_dict(B, H, G, T, S, D, E, itemsize):
    shapes = {
        "q": (H, T, D),
        "k": (G, S, D),
        "v": (G, S, E),
        "w": (H, T, S),
        "o": (H, T, E),
    }
    size = {x: B * math.prod(s) * itemsize for x, s in shapes.items()}
    steps = "qkw", "ww", "wvo", "qkvo"
    return [sum(size[x] for x in step) for step in steps]


def moved_as_tuple(*given):
    return tuple(moved_in_place(*given))


def moved_by_bits(B, H, G, T, S, D, E, itemsize):
    return [8 * x // 8 for x in moved_in_place(B, H, G, T, S, D, E, itemsize)]


def intensity_simplified(B, H, G, T, S, D, itemsize):
    return 2 * H * T * S / ((H * T + G * S) * itemsize)


def intensity_in_full(B, H, G, T, S, D, itemsize):
    operations = 2 * (2 * B * H * T * S * D)
    queries, keys = 2 * B * H * T * D, 2 * B * G * S * D
    return operations / (itemsize * (queries + keys))


def intensity_by_tensor(B, H, G, T, S, D, itemsize):
    return torch.tensor(intensity_in_full(B, H, G, T, S, D, itemsize))


def intensity_by_numpy(B, H, G, T, S, D, itemsize):
    work = np.float64(4) * B * H * T * S * D
    return work / (np.array([H * T, G * S]).sum() * 2.0 * B * D * itemsize)


def intensity_by_inverses(B, H, G, T, S, D, itemsize):
    per = itemsize / 2
    return 1 / (per * (1 / S + G / (H * T)))


def peak_by_stages(B, H, T, S, D, itemsize, rows):
    one = B * H * itemsize
    stages = [2 * T * S, T * S + T * D]
    strip = min(rows, T)
    return [one * max(stages), one * (T * D + 2 * strip * S)]


def peak_by_loop(B, H, T, S, D, itemsize, rows):
    most = 0
    for start in range(0, T, rows):
        height = len(range(T)[start : start + rows])
        most = max(most, T * D + 2 * height * S)
    return [B * H * itemsize * n for n in (T * (S + max(S, D)), most)]


def peak_by_tensors(B, H, T, S, D, itemsize, rows):
    scores, output = empty(B, H, T, S), empty(B, H, T, D)
    strip = scores[..., :rows, :]
    whole = scores.numel() + max(scores.numel(), output.numel())
    cut = output.numel() + 2 * strip.numel()
    return [whole * itemsize, cut * itemsize]


def peak_as_tuple(*given):
    return tuple(peak_by_stages(*given))


def peak_one_query_more(B, H, T, S, D, itemsize, rows):
    row = B * H * itemsize
    whole = sum(row * (S + max(S, D)) for _ in range(T))
    return [whole, row * T * D + sum(2 * row * S for _ in range(T)[:rows])]


def time_by_loop(flops, moved, rate, bandwidth):
    seconds = 0.0
    for i in range(len(flops)):
        compute, memory = flops[i] / rate, moved[i] / bandwidth
        seconds += compute if compute > memory else memory
    return seconds


def time_by_tensors(flops, moved, rate, bandwidth):
    compute = torch.tensor(flops, dtype=torch.float64) / rate
    memory = torch.tensor(moved, dtype=torch.float64) / bandwidth
    return torch.maximum(compute, memory).sum().item()


def time_by_ridge(flops, moved, rate, bandwidth):
    ridge = rate / bandwidth
    return sum(
        f / rate if f / b >= ridge else b / bandwidth
        for f, b in zip(flops, moved, strict=True)
    )


def time_by_rates(flops, moved, rate, bandwidth):
    total = 0.0
    for f, b in zip(flops, moved, strict=True):
        total += f / min(rate, bandwidth * f / b)
    return total


def time_by_numpy(flops, moved, rate, bandwidth):
    both = np.array([flops, moved]) / np.array([[rate], [bandwidth]])
    return float(both.max(axis=0).sum())


ANSWERS = {
    "check_flops": (
        ("one line", flops_in_one_line),
        ("product by product", flops_by_products),
        ("numbers times terms", flops_by_factors),
        ("head by head", flops_by_sums),
        ("numpy", flops_by_numpy),
    ),
    "check_moved": (
        ("tensors without numbers", moved_by_tensors),
        ("in place", moved_in_place),
        ("a table of shapes", moved_by_dict),
        ("a tuple", moved_as_tuple),
        ("through bits", moved_by_bits),
    ),
    "check_intensity": (
        ("simplified", intensity_simplified),
        ("in full", intensity_in_full),
        ("a tensor", intensity_by_tensor),
        ("numpy", intensity_by_numpy),
        ("a sum of inverses", intensity_by_inverses),
    ),
    "check_peak": (
        ("stage by stage", peak_by_stages),
        ("a loop over chunks", peak_by_loop),
        ("tensors without numbers", peak_by_tensors),
        ("a tuple", peak_as_tuple),
        ("row by row", peak_one_query_more),
    ),
    "check_time_bound": (
        ("a loop", time_by_loop),
        ("tensors", time_by_tensors),
        ("by the ridge", time_by_ridge),
        ("by the rate attained", time_by_rates),
        ("numpy", time_by_numpy),
    ),
}
