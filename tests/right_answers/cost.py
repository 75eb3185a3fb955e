"""Right answers to the exercises of chapters/10_cost."""

import itertools
import math

import numpy as np
import torch

from right_answers import collect_answers


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


def flops_by_numbers_times_terms(B, H, G, T, S, D, E):
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


def flops_head_by_head(B, H, G, T, S, D, E):
    sequences = itertools.product(range(B), range(H))
    there = sum(2 * T * S * (D + E) for _ in sequences)
    scores = there * D // (D + E)
    return [there, there * 2, there * 2 + scores]


def flops_by_numpy(B, H, G, T, S, D, E):
    pairs = int(np.prod([B, H, T, S], dtype=np.int64))
    widths = [D + E, 2 * (D + E), 3 * D + 2 * E]
    return [int(2 * pairs * w) for w in widths]


def moved_by_tensors_without_numbers(B, H, G, T, S, D, E, itemsize):
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


def moved_by_a_table_of_shapes(B, H, G, T, S, D, E, itemsize):
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


def intensity_by_a_sum_of_inverses(B, H, G, T, S, D, itemsize):
    per = itemsize / 2
    return 1 / (per * (1 / S + G / (H * T)))


def peak_by_stages(B, H, T, S, D, itemsize, rows):
    one = B * H * itemsize
    stages = [2 * T * S, T * S + T * D]
    strip = min(rows, T)
    return [one * max(stages), one * (T * D + 2 * strip * S)]


def peak_by_a_loop_over_chunks(B, H, T, S, D, itemsize, rows):
    most = 0
    for start in range(0, T, rows):
        height = len(range(T)[start : start + rows])
        most = max(most, T * D + 2 * height * S)
    return [B * H * itemsize * n for n in (T * (S + max(S, D)), most)]


def peak_by_tensors_without_numbers(B, H, T, S, D, itemsize, rows):
    scores, output = empty(B, H, T, S), empty(B, H, T, D)
    strip = scores[..., :rows, :]
    whole = scores.numel() + max(scores.numel(), output.numel())
    cut = output.numel() + 2 * strip.numel()
    return [whole * itemsize, cut * itemsize]


def peak_as_tuple(*given):
    return tuple(peak_by_stages(*given))


def peak_row_by_row(B, H, T, S, D, itemsize, rows):
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


def time_by_the_rate_attained(flops, moved, rate, bandwidth):
    total = 0.0
    for f, b in zip(flops, moved, strict=True):
        total += f / min(rate, bandwidth * f / b)
    return total


def time_by_numpy(flops, moved, rate, bandwidth):
    both = np.array([flops, moved]) / np.array([[rate], [bandwidth]])
    return float(both.max(axis=0).sum())


def cost_by_block(weights, L, G, D, S, itemsize, memory):
    block = 2 * G * D * S * itemsize
    fit = (memory - itemsize * weights) // (L * block)
    return [L * block, fit, itemsize * weights + fit * L * block]


def cost_by_position(weights, L, G, D, S, itemsize, memory):
    position = sum(2 * G * D * itemsize for _ in range(L))
    model = weights * itemsize
    count = (memory - model) // (S * position)
    return [S * position, count, model + count * S * position]


def cost_by_what_is_left_over(weights, L, G, D, S, itemsize, memory):
    cache = math.prod((2, L, G, D, S, itemsize))
    count, spare = divmod(memory - weights * itemsize, cache)
    return [cache, count, memory - spare]


def cost_as_tuple(*sizes):
    return tuple(cost_by_block(*sizes))


def cost_by_numpy(weights, L, G, D, S, itemsize, memory):
    cache = int(np.prod([2, L, G, D, S, itemsize], dtype=np.int64))
    model = weights * itemsize
    fit = int(np.floor_divide(memory - model, cache))
    return [cache, fit, model + fit * cache]


def count_causal(H, D, n):
    return 4 * H * D * n * (n + 1) / 2


def fault_by_table(run, H, D, rate, bandwidth):
    seconds, speed = run(2, 8192)
    whole = 2 * 4 * H * D * 8192**2
    masked, shown = run(1, 8192, True)
    tests = {
        1: whole / seconds > rate,
        2: run(1, 256, False, 1)[0] > 2 * run(1, 256, False, 100)[0],
        3: speed * seconds / whole < 0.9,
        4: masked * shown / count_causal(H, D, 8192) > 1.5,
        5: 4 * 2 * 100 * H * D * 8 / run(100, 8)[0] > bandwidth,
    }
    return next((n for n, failed in tests.items() if failed), 0)


def fault_by_growth(run, H, D, rate, bandwidth):
    one, two = run(1, 10_000)[0], run(1, 20_000)[0]
    many, few = run(1, 10_000, calls=1000)[0], run(1, 10_000, calls=1)[0]
    if few > 2 * many:
        return 2
    if two < 2 * one:  # should be four times as long
        return 1
    flops = one * run(1, 10_000)[1]
    if math.isclose(flops, 2 * H * D * 1e8, rel_tol=0.1):
        return 3
    seconds, speed = run(1, 10_000, causal=True)
    if math.isclose(seconds * speed, 4 * H * D * 1e8, rel_tol=0.1):
        return 4
    short = run(1000, 4)[0]
    return 5 * int(short * bandwidth < 8 * H * D * 4000)


def fault_through_tensors(run, H, D, rate, bandwidth):
    return torch.tensor(fault_by_table(run, H, D, rate, bandwidth)).item()


def fault_through_numpy(run, H, D, rate, bandwidth):
    found = fault_by_growth(run, H, D, rate, bandwidth)
    return int(np.int64(found))


def fault_by_ratios_of_two_runs(run, H, D, rate, bandwidth):
    full, half = run(4, 4096), run(4, 4096, causal=True)
    counted = full[0] * full[1] / (4 * 4 * H * D * 4096**2)
    if run(1, 4096, calls=1)[0] / run(1, 4096, calls=500)[0] > 1.5:
        return 2
    if full[0] == half[0]:  # half of the work takes as long
        return 1
    if counted < 0.6:
        return 3
    if half[0] * half[1] > 0.9 * full[0] * full[1]:
        return 4
    moved = 8 * 512 * 8 * H * D
    return 5 if moved / run(512, 8)[0] > bandwidth else 0


def limit_by_powers(run, B, H, T, S, D):
    usual = run(B, H, T, S, D)
    by_length = math.log2(run(B, H, 2 * T, 2 * S, D) / usual)
    by_width = math.log2(run(B, H, T, S, 2 * D) / usual)
    found = round(by_length), round(by_width)
    return {(1, 1): 0, (2, 1): 1, (2, 0): 2, (0, 0): 3}[found]


def limit_with_the_width_first(run, B, H, T, S, D):
    twice = run(B, H, T, S, 2 * D) > 1.5 * run(B, H, T, S, D)
    if not twice:
        return 3 if run(2 * B, H, T, S, D) < 1.5 * run(B, H, T, S, D) else 2
    squares = run(B, H, 4 * T, 4 * S, D) > 8 * run(B, H, T, S, D)
    return 1 if squares else 0


def limit_of_own_sizes(run, B, H, T, S, D):
    usual = run(1, 1, 100, 100, 10)
    if run(1, 1, 100, 100, 100) < 5 * usual:
        return 2 if run(1, 1, 1000, 1000, 10) > 5 * usual else 3
    return int(run(1, 1, 1000, 1000, 10) > 50 * usual)


def limit_with_as_many_pairs(run, B, H, T, S, D):
    """As many pairs with other numbers of queries and keys."""
    square, flat = run(1, 8, 512, 512, 64), run(1, 8, 1, 512 * 512, 64)
    if flat > 10 * square:
        return 0
    if run(1, 8, 512, 512, 128) > 1.9 * square:
        return 1
    return 2 if run(2, 8, 512, 512, 64) > 1.9 * square else 3


def limit_with_the_batch_first(run, B, H, T, S, D):
    if run(3 * B, H, T, S, D) < 2 * run(B, H, T, S, D):
        return 3
    if run(B, H, T, S, 3 * D) < 2 * run(B, H, T, S, D):
        return 2
    return int(run(B, H, 3 * T, 3 * S, D) > 6 * run(B, H, T, S, D))


ANSWERS = collect_answers(
    vars(),
    check_decoding_cost="cost",
    check_benchmark_fault="fault",
    check_bottleneck="limit",
    check_flops="flops",
    check_moved="moved",
    check_intensity="intensity",
    check_peak="peak",
    check_time_bound="time",
)
