"""Wrong answers to the exercises of chapters/10_cost."""

import math

from attnbook.exercises import cost as checks
from attnbook.exercises.solutions import cost as solutions
from wrong_answers import Wrong
from wrong_answers.common import usual


def exact_sums(B, H, G, T, S, D, E):
    there = B * H * (T * S * (2 * D - 1) + T * E * (2 * S - 1))
    return [there, *solutions.flops(B, H, G, T, S, D, E)[1:]]


def with_softmax(B, H, G, T, S, D, E):
    extra = 5 * B * H * T * S
    return [n + extra for n in solutions.flops(B, H, G, T, S, D, E)]


def four_n_squared(B, H, G, T, S, D, E):
    there = 4 * B * H * S * S * D
    return [there, 2 * there, 5 * there // 2]


def two_and_a_half(B, H, G, T, S, D, E):
    there, back, _ = solutions.flops(B, H, G, T, S, D, E)
    return [there, back, 5 * there // 2 + 1]


def as_floats(B, H, G, T, S, D, E):
    return [n / 1 for n in solutions.flops(B, H, G, T, S, D, E)]


def transposed_widths(B, H, G, T, S, D, E):
    return solutions.flops(B, H, G, T, S, E, D)


FLOPS = (
    *usual(checks.check_flops),
    Wrong(
        "numbers",
        "a sum of n terms has n - 1 additions",
        "the way back, and all to the first digits",
        exact_sums,
    ),
    Wrong(
        "numbers",
        "softmax is counted, too; the products alone are asked for",
        "the largest part",
        with_softmax,
    ),
    Wrong(
        "numbers",
        "the formula 4 n² d of the papers, copied",
        "self-attention with E = D",
        four_n_squared,
    ),
    Wrong(
        "numbers",
        "2.5 times the way there, which holds for E = D only",
        "the first two",
        two_and_a_half,
    ),
    Wrong(
        "type",
        "true division where whole numbers were meant",
        "every number",
        as_floats,
    ),
    Wrong(
        "one-width",
        "heads are square in every model one has seen",
        "models with E = D",
        lambda B, H, G, T, S, D, E: solutions.flops(B, H, G, T, S, D, D),
    ),
    Wrong(
        "numbers",
        "the widths of key and value have changed places",
        "the way there and the usual way back",
        transposed_widths,
    ),
    Wrong(
        "length",
        "only the way there is returned",
        "the first number",
        lambda *given: solutions.flops(*given)[:1],
    ),
    Wrong(
        "keys-as-queries",
        "tried on self-attention only",
        "T = S",
        lambda B, H, G, T, S, D, E: solutions.flops(B, H, G, T, T, D, E),
    ),
)


def cached(B, H, G, T, S, D, E, itemsize):
    steps = solutions.moved(B, H, G, T, S, D, E, itemsize)
    return [*steps[:3], steps[3] + B * H * T * itemsize]


def repeated(B, H, G, T, S, D, E, itemsize):
    steps = solutions.moved(B, H, G, T, S, D, E, itemsize)
    extra = 2 * B * H * S * D * itemsize if G < H else 0
    return [steps[0] + extra, *steps[1:]]


def single_scores(B, H, G, T, S, D, E, itemsize):
    half = solutions.moved(B, H, G, T, S, D, E, itemsize)
    return [half[0], 2 * half[1] if itemsize == 2 else half[1], *half[2:]]


def per_sequence(B, H, G, T, S, D, E, itemsize):
    one = solutions.moved(1, H, G, T, S, D, E, itemsize)
    return [*one[:3], one[3] * B]


def in_kilobytes(*given):
    return [n // 1024 for n in solutions.moved(*given)]


MOVED = (
    *usual(checks.check_moved),
    Wrong(
        "numbers",
        "one number a query is kept for the way back; forwards alone, nobody "
        "asked for it",
        "the three steps",
        cached,
    ),
    Wrong(
        "numbers",
        "keys are repeated for the heads of a group first, which copies them",
        "heads without groups",
        repeated,
    ),
    Wrong(
        "numbers",
        "softmax in half precision is thought to write single precision",
        "single precision",
        single_scores,
    ),
    Wrong(
        "numbers",
        "the batch is multiplied in at the end, once",
        "the last number, and a batch of one",
        per_sequence,
    ),
    Wrong(
        "numbers",
        "kilobytes",
        "the ratio of the steps",
        in_kilobytes,
    ),
    Wrong(
        "length",
        "the fourth number is forgotten",
        "the three steps",
        lambda *given: solutions.moved(*given)[:3],
    ),
    Wrong(
        "always-four",
        "float32 by habit",
        "single precision",
        lambda *given: solutions.moved(*given[:-1], 4),
    ),
)


def of_tokens(B, H, G, T, S, D, itemsize):
    return 4 * T / itemsize / 2


def square_root(B, H, G, T, S, D, itemsize):
    return math.sqrt(solutions.intensity(B, H, G, T, S, D, itemsize))


def long_limit(B, H, G, T, S, D, itemsize):
    return 2 * T * S / (T + S) / itemsize


def per_kilobyte(*given):
    return 1024 * solutions.intensity(*given)


def whole_number(*given):
    return int(solutions.intensity(*given))


INTENSITY = (
    *usual(checks.check_intensity),
    Wrong(
        "numbers",
        "the rule of thumb n / itemsize, for self-attention",
        "growth with the length",
        of_tokens,
    ),
    Wrong(
        "heads-for-groups",
        "a formula for equal heads, copied",
        "heads without groups",
        long_limit,
    ),
    Wrong(
        "numbers",
        "operations for each kilobyte",
        "the order of shapes",
        per_kilobyte,
    ),
    Wrong(
        "numbers",
        "rounded to a whole number",
        "the first digits",
        whole_number,
    ),
    Wrong(
        "numbers",
        "a geometric mean, out of another book",
        "the order of shapes",
        square_root,
    ),
    Wrong(
        "heads-for-groups",
        "grouped heads are repeated before the product",
        "heads without groups",
        lambda B, H, G, *rest: solutions.intensity(B, H, H, *rest),
    ),
)


def kept_weights(B, H, T, S, D, itemsize, rows):
    whole, cut = solutions.peak(B, H, T, S, D, itemsize, rows)
    return [whole, max(cut, B * H * T * S * itemsize)]


def two_outputs(B, H, T, S, D, itemsize, rows):
    whole, cut = solutions.peak(B, H, T, S, D, itemsize, rows)
    return [whole, cut + B * H * T * D * itemsize]


def number_of_strips(B, H, T, S, D, itemsize, rows):
    whole, _ = solutions.peak(B, H, T, S, D, itemsize, rows)
    return [whole, whole // -(-T // rows)]


def floats(B, H, T, S, D, itemsize, rows):
    return [float(n) for n in solutions.peak(B, H, T, S, D, itemsize, rows)]


def in_megabytes(*given):
    return [n // 2**20 for n in solutions.peak(*given)]


PEAK = (
    *usual(checks.check_peak),
    Wrong(
        "numbers",
        "in strips, all weights are kept as in training",
        "what is there without strips",
        kept_weights,
    ),
    Wrong(
        "numbers",
        "the outputs are joined at the end, which copies them; here they are "
        "written into place",
        "what is there without strips",
        two_outputs,
    ),
    Wrong(
        "numbers",
        "the whole is divided by the number of strips",
        "that strips need less",
        number_of_strips,
    ),
    Wrong("type", "numbers with a point", "every number", floats),
    Wrong("numbers", "megabytes", "the ratio of both", in_megabytes),
    Wrong(
        "length",
        "only the peak without strips is returned",
        "the first number",
        lambda *given: solutions.peak(*given)[:1],
    ),
    Wrong(
        "scores-only",
        "softmax is thought to work in place",
        "the size of the scores",
        lambda B, H, T, S, D, n, rows: [
            B * H * T * S * n,
            B * H * n * (T * D + min(rows, T) * S),
        ],
    ),
)


def by_ridge(flops, moved, rate, bandwidth):
    all_in_one = sum(flops) / sum(moved) < rate / bandwidth
    work = (moved, bandwidth) if all_in_one else (flops, rate)
    return sum(work[0]) / work[1]


def overlapping(flops, moved, rate, bandwidth):
    return max(
        max(f / rate for f in flops),
        sum(moved) / bandwidth,
    )


def rounded_up(*given):
    return math.ceil(solutions.time_bound(*given))


def rate_of_both(flops, moved, rate, bandwidth):
    return (sum(flops) + sum(moved)) / (rate + bandwidth)


def half_overlapped(flops, moved, rate, bandwidth):
    steps = zip(flops, moved, strict=True)
    times = [(f / rate, b / bandwidth) for f, b in steps]
    return sum(max(t) + min(t) / 2 for t in times)


TIME = (
    *usual(checks.check_time_bound),
    Wrong(
        "max-of-sums",
        "the intensity of all steps together decides for all",
        "steps of one kind",
        by_ridge,
    ),
    Wrong(
        "numbers",
        "steps are thought to overlap with each other's bytes",
        "steps that wait for memory",
        overlapping,
    ),
    Wrong(
        "numbers",
        "rounded up to whole seconds",
        "the order of machines",
        rounded_up,
    ),
    Wrong(
        "numbers",
        "both rates are added up as if they were one",
        "that faster machines take less",
        rate_of_both,
    ),
    Wrong(
        "numbers",
        "half of the shorter time is thought to overlap",
        "the larger part",
        half_overlapped,
    ),
)

ANSWERS = {
    "check_flops": FLOPS,
    "check_intensity": INTENSITY,
    "check_moved": MOVED,
    "check_peak": PEAK,
    "check_time_bound": TIME,
}
