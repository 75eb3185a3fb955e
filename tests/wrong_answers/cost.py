"""Wrong answers to the exercises of chapters/10_cost."""

import math

from attnbook.exercises import cost as checks
from attnbook.exercises.cost.flops import flops
from attnbook.exercises.cost.intensity import intensity
from attnbook.exercises.cost.moved import moved
from attnbook.exercises.cost.peak import peak
from attnbook.exercises.cost.time_bound import time_bound
from wrong_answers import make
from wrong_answers.make import Answers, collect_answers

FLOPS = Answers(checks.check_flops, make.without_the_last, make.in_texts)


@FLOPS.wrong("numbers", "the backward pass, and all to the first digits")
def exact_sums(B, H, G, T, S, D, E):
    """A sum of n terms has n - 1 additions."""
    there = B * H * (T * S * (2 * D - 1) + T * E * (2 * S - 1))
    return [there, *flops(B, H, G, T, S, D, E)[1:]]


@FLOPS.wrong("numbers", "the largest part")
def with_softmax(B, H, G, T, S, D, E):
    """softmax is counted, too; the products alone are asked for."""
    extra = 5 * B * H * T * S
    return [n + extra for n in flops(B, H, G, T, S, D, E)]


@FLOPS.wrong("numbers", "self-attention with E = D")
def four_n_squared(B, H, G, T, S, D, E):
    """The formula 4 n² d of the papers, copied."""
    there = 4 * B * H * S * S * D
    return [there, 2 * there, 5 * there // 2]


@FLOPS.wrong("numbers", "the first two")
def two_and_a_half(B, H, G, T, S, D, E):
    """2.5 times the forward pass, which holds for E = D only."""
    there, back, _ = flops(B, H, G, T, S, D, E)
    return [there, back, 5 * there // 2 + 1]


@FLOPS.wrong("numbers", "the forward pass and the usual backward pass")
def transposed_widths(B, H, G, T, S, D, E):
    """The widths of key and value have changed places."""
    return flops(B, H, G, T, S, E, D)


INTENSITY = Answers(checks.check_intensity)


@INTENSITY.wrong("numbers", "growth with the length")
def of_tokens(B, H, G, T, S, D, itemsize):
    """The rule of thumb n / itemsize, for self-attention."""
    return 4 * T / itemsize / 2


@INTENSITY.wrong("numbers", "the order of shapes")
def per_kilobyte(*given):
    """Operations for each kilobyte."""
    return 1024 * intensity(*given)


@INTENSITY.wrong("numbers", "the first digits")
def whole_number(*given):
    """Rounded to a whole number."""
    return int(intensity(*given))


@INTENSITY.wrong("numbers", "the order of shapes")
def square_root(B, H, G, T, S, D, itemsize):
    """A geometric mean, out of another book."""
    return math.sqrt(intensity(B, H, G, T, S, D, itemsize))


MOVED = Answers(checks.check_moved, make.without_the_last)


@MOVED.wrong("numbers", "the three steps")
def cached(B, H, G, T, S, D, E, itemsize):
    """One number a query is kept for the backward pass; the exercise counts the
    forward pass alone."""
    steps = moved(B, H, G, T, S, D, E, itemsize)
    return [*steps[:3], steps[3] + B * H * T * itemsize]


@MOVED.wrong("numbers", "heads without groups")
def repeated(B, H, G, T, S, D, E, itemsize):
    """Keys are repeated for the heads of a group first, which copies them."""
    steps = moved(B, H, G, T, S, D, E, itemsize)
    extra = 2 * B * H * S * D * itemsize if G < H else 0
    return [steps[0] + extra, *steps[1:]]


@MOVED.wrong("numbers", "single precision")
def single_scores(B, H, G, T, S, D, E, itemsize):
    """softmax in half precision is thought to write single precision."""
    half = moved(B, H, G, T, S, D, E, itemsize)
    return [half[0], 2 * half[1] if itemsize == 2 else half[1], *half[2:]]


@MOVED.wrong("numbers", "the last number, and a batch of one")
def per_sequence(B, H, G, T, S, D, E, itemsize):
    """The batch is multiplied in at the end, once."""
    one = moved(1, H, G, T, S, D, E, itemsize)
    return [*one[:3], one[3] * B]


@MOVED.wrong("numbers", "the ratio of the steps")
def in_kilobytes(*given):
    """The result is in kilobytes."""
    return [n // 1024 for n in moved(*given)]


PEAK = Answers(checks.check_peak, make.without_the_last, make.in_texts)


@PEAK.wrong("numbers", "the peak without chunks")
def kept_weights(B, H, T, S, D, itemsize, rows):
    """In chunks, all weights are kept as in training."""
    whole, cut = peak(B, H, T, S, D, itemsize, rows)
    return [whole, max(cut, B * H * T * S * itemsize)]


@PEAK.wrong("numbers", "the peak without chunks")
def two_outputs(B, H, T, S, D, itemsize, rows):
    """The outputs are joined at the end, which copies them; here they are
    written into place."""
    whole, cut = peak(B, H, T, S, D, itemsize, rows)
    return [whole, cut + B * H * T * D * itemsize]


@PEAK.wrong("numbers", "that chunks need less")
def number_of_chunks(B, H, T, S, D, itemsize, rows):
    """The whole is divided by the number of chunks."""
    whole, _ = peak(B, H, T, S, D, itemsize, rows)
    return [whole, whole // -(-T // rows)]


@PEAK.wrong("numbers", "the ratio of both")
def in_megabytes(*given):
    """The result is in megabytes."""
    return [n // 2**20 for n in peak(*given)]


TIME = Answers(checks.check_time_bound)


@TIME.wrong("max-of-sums", "steps of one kind")
def by_ridge(flops, moved, rate, bandwidth):
    """The intensity of all steps together decides for all."""
    all_in_one = sum(flops) / sum(moved) < rate / bandwidth
    work = (moved, bandwidth) if all_in_one else (flops, rate)
    return sum(work[0]) / work[1]


@TIME.wrong("numbers", "steps that wait for memory")
def overlapping(flops, moved, rate, bandwidth):
    """Steps are thought to overlap with each other's bytes."""
    return max(
        max(f / rate for f in flops),
        sum(moved) / bandwidth,
    )


@TIME.wrong("numbers", "the order of machines")
def rounded_up(*given):
    """Rounded up to whole seconds."""
    return math.ceil(time_bound(*given))


@TIME.wrong("numbers", "that faster machines take less")
def rate_of_both(flops, moved, rate, bandwidth):
    """Both rates are added up as if they were one."""
    return (sum(flops) + sum(moved)) / (rate + bandwidth)


@TIME.wrong("numbers", "the larger part")
def half_overlapped(flops, moved, rate, bandwidth):
    """Half of the shorter time is thought to overlap."""
    steps = zip(flops, moved, strict=True)
    times = [(f / rate, b / bandwidth) for f, b in steps]
    return sum(max(t) + min(t) / 2 for t in times)


DECODING = Answers(checks.check_decoding_cost)


@DECODING.wrong("type", "every number")
def decoding_as_text(*sizes):
    """Numbers as text."""
    return [str(n) for n in checks.check_decoding_cost.solution(*sizes)]


@DECODING.wrong("length", "the cache and the sequences")
def without_bytes(*sizes):
    """The bytes of a step are left to the reader."""
    return checks.check_decoding_cost.solution(*sizes)[:2]


@DECODING.wrong("numbers", "all but the number of sequences")
def one_in_reserve(*sizes):
    """One sequence less, to be safe."""
    cache, count, moved = checks.check_decoding_cost.solution(*sizes)
    return [cache, count - 1, moved - cache]


@DECODING.wrong("numbers", "the cache")
def activations_too(weights, L, G, D, S, itemsize, memory):
    """A tenth of the memory is kept for activations."""
    return checks.check_decoding_cost.solution(
        weights, L, G, D, S, itemsize, memory * 9 // 10
    )


BENCHMARK = Answers(checks.check_benchmark_fault, *make.DECISION, make.counted_from_one)


@BENCHMARK.wrong("numbers", "clocks that do not wait")
def benchmark_by_speed(run, H, D, rate, bandwidth):
    """Only speeds above the peak are suspicious."""
    return 1 if run(1, 16384)[1] > rate else 0


BOTTLENECK = Answers(checks.check_bottleneck, *make.DECISION, make.counted_from_one)


@BOTTLENECK.wrong("numbers", "kernels limited by memory or products")
def limit_by_intensity(run, B, H, T, S, D):
    """The intensity is compared with the ridge of one GPU; nothing is run."""
    return int(4 * B * H * T * S * D > 295 * 4 * B * H * D * (T + S))


ANSWERS = collect_answers(checks, vars())
