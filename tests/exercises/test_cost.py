"""Exercises on cost: right answers of several kinds, and wrong ones."""

import math

import numpy as np
import torch

from answers import make_tests
from attnbook.exercises import cost as checks


def flops_in_one_line(B, H, G, T, S, D, E):
    n = 2 * B * H * T * S
    return [n * (D + E), n * 2 * (D + E), n * (3 * D + 2 * E)]


def flops_by_numpy(B, H, G, T, S, D, E):
    return 2 * np.prod([B, H, T, S]) * np.array([D + E, 2 * (D + E), 3 * D + 2 * E])


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


def decode_by_block(weights, L, G, D, S, itemsize, memory):
    block = 2 * G * D * S * itemsize
    fit = (memory - itemsize * weights) // (L * block)
    return (L * block, fit, itemsize * weights + fit * L * block)


def decode_by_what_is_left_over(weights, L, G, D, S, itemsize, memory):
    cache = math.prod((2, L, G, D, S, itemsize))
    count, spare = divmod(memory - weights * itemsize, cache)
    return [cache, count, memory - spare]


def find_fault_by_table(run, H, D, rate, bandwidth):
    seconds, speed = run(2, 8192)
    whole = 2 * 4 * H * D * 8192**2
    masked, shown = run(1, 8192, True)
    tests = {
        1: whole / seconds > rate,
        2: run(1, 256, False, 1)[0] > 2 * run(1, 256, False, 100)[0],
        3: speed * seconds / whole < 0.9,
        4: masked * shown / (4 * H * D * 8192 * 8193 / 2) > 1.5,
        5: 4 * 2 * 100 * H * D * 8 / run(100, 8)[0] > bandwidth,
    }
    return next((n for n, failed in tests.items() if failed), 0)


def find_fault_by_growth(run, H, D, rate, bandwidth):
    one, two = run(1, 10_000)[0], run(1, 20_000)[0]
    if run(1, 10_000, calls=1)[0] > 2 * run(1, 10_000, calls=1000)[0]:
        return 2
    if two < 2 * one:  # should be four times as long
        return 1
    if math.isclose(one * run(1, 10_000)[1], 2 * H * D * 1e8, rel_tol=0.1):
        return 3
    seconds, speed = run(1, 10_000, causal=True)
    if math.isclose(seconds * speed, 4 * H * D * 1e8, rel_tol=0.1):
        return 4
    return 5 * int(run(1000, 4)[0] * bandwidth < 8 * H * D * 4000)


def find_fault_by_speed(run, H, D, rate, bandwidth):
    return 1 if run(1, 16384)[1] > rate else 0


def find_limit_by_powers(run, B, H, T, S, D):
    usual = run(B, H, T, S, D)
    by_length = math.log2(run(B, H, 2 * T, 2 * S, D) / usual)
    by_width = math.log2(run(B, H, T, S, 2 * D) / usual)
    found = round(by_length), round(by_width)
    return {(1, 1): 0, (2, 1): 1, (2, 0): 2, (0, 0): 3}[found]


def find_limit_of_own_sizes(run, B, H, T, S, D):
    usual = run(1, 1, 100, 100, 10)
    if run(1, 1, 100, 100, 100) < 5 * usual:
        return 2 if run(1, 1, 1000, 1000, 10) > 5 * usual else 3
    return int(run(1, 1, 1000, 1000, 10) > 50 * usual)


def find_limit_by_intensity(run, B, H, T, S, D):
    return int(4 * B * H * T * S * D > 295 * 4 * B * H * D * (T + S))


RIGHT = {
    checks.check_flops: (flops_in_one_line, flops_by_numpy),
    checks.check_moved: (moved_by_tensors_without_numbers, moved_in_place),
    checks.check_decoding_cost: (decode_by_block, decode_by_what_is_left_over),
    checks.check_benchmark_fault: (find_fault_by_table, find_fault_by_growth),
    checks.check_bottleneck: (find_limit_by_powers, find_limit_of_own_sizes),
}
WRONG = (
    (checks.check_benchmark_fault, "numbers", find_fault_by_speed),
    (checks.check_bottleneck, "numbers", find_limit_by_intensity),
)
test_right_answers, test_wrong_answers = make_tests(RIGHT, WRONG)
