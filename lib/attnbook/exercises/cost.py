"""The exercises of the chapter on cost.

Source: five products in the backward pass: Dao (2023), section 4.1,
    https://arxiv.org/abs/2307.08691; bytes: Dao et al. (2022), section 2.2,
    https://arxiv.org/abs/2205.14135; the roofline: Williams, Waterman and Patterson
    (2009), https://doi.org/10.1145/1498765.1498785
Axes: B batch, H heads, G groups (key-value heads), T queries, S keys, n queries and
    keys, D width of query and key, E of values, L blocks
"""

from collections.abc import Callable
from dataclasses import dataclass

from attnbook.exercises.declare import Exercise
from attnbook.profiling import roofline, steps

# The library's own counts, which an answer may not call.
COUNTS = (
    steps.count_block_parts,
    steps.count_cache_bytes,
    steps.count_decoding_step,
    roofline.calculate,
    roofline.bound_seconds_by_ceiling,
    roofline.bound_seconds,
    steps.count_backward_steps,
    steps.count_fused,
    steps.count_fused_backward,
    steps.count_steps,
    steps.count_tiled,
)


def flops(B: int, H: int, G: int, T: int, S: int, D: int, E: int) -> list[int]:
    """Return the FLOPs of attention's products.

    Forward; backward, with stored weights; backward, with the scores computed once
    more.
    """
    scores, values = 2 * B * H * T * S * D, 2 * B * H * T * S * E
    back = 2 * scores + 2 * values
    return [scores + values, back, back + scores]


def draw_sizes(draw, B=0, H=0, G=0, T=0):
    """Return sizes of which no two are equal, except given ones."""
    groups = G or draw.whole(2, 4)
    return (
        B or draw.whole(5, 9),
        H or groups * draw.whole(3, 5),
        groups,
        T or draw.whole(100, 300),
        draw.whole(400, 900),
        draw.whole(30, 60),
        draw.whole(61, 90),
    )


def flops_cases(draw):
    yield "with one query and one key", 1, 1, 1, 1, 1, 2, 3
    yield "with one head", *draw_sizes(draw, B=1, H=1, G=1)
    yield "with one new query", *draw_sizes(draw, T=1)
    yield "with groups of heads", *draw_sizes(draw)


check_flops = Exercise(
    flops,
    flops_cases,
    stars=1,
    minutes=10,
    section="FLOPs: the operations of attention",
    title="FLOPs of attention, forward and backward",
    returns=("flops",),
    library=COUNTS,
    mistakes={
        "multiplications-only": (
            "only multiplications are counted; each one comes with an addition",
            "= 2 * B * H * T * S * D, 2 * B → = B * H * T * S * D, B",
        ),
        "groups-for-heads": (
            "products are counted once a key head; every query head has its own",
            "S * D, 2 * B * H → S * D * G // H, 2 * B * G",
        ),
        "one-width": (
            "the values are assumed to be as wide as the keys",
            "T * S * E → T * S * D",
        ),
        "back-like-there": (
            "backward is counted like forward; each product has two gradients",
            "back = 2 * scores + 2 * values → back = scores + values",
        ),
        "nothing-again": (
            "the scores that are recomputed in the backward pass are not counted",
            "back + scores] → back]",
        ),
    },
)


def moved(
    B: int, H: int, G: int, T: int, S: int, D: int, E: int, itemsize: int
) -> list[int]:
    """Return the bytes of scores, softmax, values and one fused kernel."""
    query, output = B * H * T * D, B * H * T * E
    key, value, scores = B * G * S * D, B * G * S * E, B * H * T * S
    steps = query + key + scores, 2 * scores, scores + value + output
    return [itemsize * n for n in (*steps, query + key + value + output)]


def moved_cases(draw):
    yield "with one query and one key", 1, 1, 1, 1, 1, 2, 3, 4
    yield "with one head", *draw_sizes(draw, B=1, H=1, G=1), 4
    yield "in half precision", *draw_sizes(draw, H=6, G=6), 2
    yield "with one new query", *draw_sizes(draw, T=1), 2
    yield "with groups of heads", *draw_sizes(draw), 4


check_moved = Exercise(
    moved,
    moved_cases,
    stars=2,
    minutes=15,
    section="HBM and SRAM: what a kernel reads and writes",
    title="bytes moved by attention",
    returns=("moved",),
    library=COUNTS,
    mistakes={
        "elements": ("elements are counted; it should be bytes", "itemsize * n → n"),
        "read-only": (
            "only reads are counted; writes move bytes as well",
            "query + key + scores, 2 * scores, scores + value + output → query + key, "
            "scores, scores + value ; query + key + value + output → query + key + "
            "value",
        ),
        "heads-for-groups": (
            "keys and values are counted once a query head; groups share them",
            "B * G * S * D, B * G → B * H * S * D, B * H",
        ),
        "softmax-once": (
            "the softmax is counted once; it reads scores and writes weights",
            "2 * scores → scores",
        ),
        "fused-with-scores": (
            "the fused version counts scores, which it never writes to memory",
            "value + output)] → value + output + scores)]",
        ),
    },
)


def decoding_cost(
    weights: int, L: int, G: int, D: int, S: int, itemsize: int, memory: int
) -> list[int]:
    """Return what decoding costs in bytes.

    In this order: bytes of the KV cache of one sequence; how many such sequences fit
    into memory beside the weights; bytes that a step must read to generate one token
    of each of them.
    """
    cache = 2 * L * G * D * S * itemsize
    sequences = (memory - weights * itemsize) // cache
    return [cache, sequences, weights * itemsize + sequences * cache]


def decoding_cases(draw):
    yield "with one weight and one head of width 1", 1, 1, 1, 1, 1, 1, 7
    for itemsize in 1, 2, 4:
        L, G, D = draw.whole(5, 9), draw.whole(2, 5), draw.whole(10, 20)
        S, weights = draw.whole(50, 90), draw.whole(9000, 20_000)
        cache = 2 * L * G * D * S * itemsize
        room = draw.whole(20, 60) * cache + draw.whole(cache // 4, cache // 2)
        memory = weights * itemsize + room
        plural = "s" if itemsize > 1 else ""
        tries = f"with {itemsize} byte{plural} per number"
        yield tries, weights, L, G, D, S, itemsize, memory
    large = 8 * 10**9, 32, 8, 128, 8192, 2, 80 * 10**9
    yield "with a model of 8 billion weights", *large


check_decoding_cost = Exercise(
    decoding_cost,
    decoding_cases,
    stars=2,
    minutes=15,
    section="Prefill, decode and the KV cache",
    title="KV cache, batch size and bytes of decoding",
    returns=("costs",),
    library=COUNTS,
    mistakes={
        "cache-of-keys": (
            "the cache is counted for keys alone; the values are cached too",
            "2 * L * G → L * G",
        ),
        "cache-of-one-block": (
            "the cache is counted for one block; each of the L blocks has its own",
            "2 * L * G → 2 * G",
        ),
        "no-room-for-weights": (
            "the weights are not subtracted from the memory",
            "memory - weights * itemsize → memory",
        ),
        "cache-not-read": (
            "the cache is missing; each step reads both weights and cache",
            "itemsize + sequences * cache → itemsize",
        ),
        "weights-for-every-sequence": (
            "the weights are counted once a sequence; it should be once a step",
            "sequences, weights → sequences, sequences * weights",
        ),
    },
    hints=(
        "Which numbers of the cache does a new query need, and in how many blocks?",
        "A step reads every weight once, and the cache of every sequence.",
    ),
)

LAUNCH, FIRST_CALL, CACHE = 6e-6, 0.4, 8  # seconds, seconds, times as fast


@dataclass
class Benchmark:
    """A benchmark of fused attention in half precision, maybe with a fault.

    Called with sizes, it returns the seconds of one call, as a mean over `calls`
    calls, and the speed that it reports, in FLOPs a second. The kernel reaches a share
    of the device's rate (FLOPs a second) and bandwidth (bytes a second).
    """

    built_in: int
    H: int
    D: int
    rate: float
    bandwidth: float
    share: float

    def __call__(self, B, n, causal=False, calls=10):
        """Return seconds and speed, as far as the fault allows."""
        square = 4 * B * self.H * self.D * n * n
        flops = square * (n + 1) / (2 * n) if causal else square
        seconds = 8 * B * self.H * n * self.D / self.bandwidth
        if self.built_in == 5:
            seconds /= CACHE
        seconds = max(flops / self.rate, seconds) / self.share
        if self.built_in == 1:
            seconds = LAUNCH
        if self.built_in == 2:
            seconds += FIRST_CALL / calls
        counted = square if self.built_in == 4 else flops
        return seconds, counted / (2 if self.built_in == 3 else 1) / seconds


def benchmark_fault(
    run: Callable, H: int, D: int, rate: float, bandwidth: float
) -> int:
    """Return the number of a benchmark's fault, 0 if there is none.

    1: the clock does not wait for the GPU. 2: the first call is counted. 3: a
    multiplication and an addition count as one operation. 4: the speed of causal
    attention is computed with all pairs. 5: the inputs stay in the cache.
    """
    n = 16384
    square = 4 * H * D * n * n
    seconds, speed = run(1, n)
    if seconds < square / rate:  # faster than the device
        return 1
    if run(1, 512, calls=1)[0] > 1.5 * run(1, 512, calls=1000)[0]:
        return 2
    if seconds * speed < 0.75 * square:
        return 3
    seconds, speed = run(1, n, causal=True)
    if seconds * speed > 0.75 * square:
        return 4
    short, _ = run(64, 16)  # memory-bound: 4 tensors of 2 bytes a number
    return 5 if short < 8 * 64 * H * 16 * D / bandwidth else 0


def benchmark_cases(draw):
    devices = (312e12, 2.0e12), (989e12, 3.35e12)
    for fault, device in draw.shuffle((i, x) for i in range(6) for x in devices):
        H, D = draw.whole(8, 20), 32 * draw.whole(2, 5)
        run = Benchmark(fault, H, D, *device, 0.55 + draw.whole(0, 30) / 100)
        what = f"that has fault {fault}" if fault else "without a fault"
        yield f"with a benchmark {what}", run, H, D, *device


check_benchmark_fault = Exercise(
    benchmark_fault,
    benchmark_cases,
    stars=3,
    minutes=25,
    section="Reading a benchmark",
    title="the fault of a benchmark",
    returns=("fault",),
    library=COUNTS,
    mistakes={
        "clock-not-tested": (
            "no time is compared with the least time that the device needs",
            "return 1 → pass",
        ),
        "first-call-not-tested": (
            "it does not vary the number of calls",
            "calls=1000 → calls=1",
        ),
        "flops-not-tested": (
            "speed times seconds is not compared with a count by hand",
            "return 3 → pass",
        ),
        "causal-not-tested": (
            "it does not run causal attention, which has half of the pairs",
            "return 4 → pass",
        ),
        "cache-not-tested": (
            "no memory-bound call is compared with the bandwidth",
            "return 5 if → return 0 if",
        ),
    },
    hints=(
        "What is the least time of a compute-bound and of a memory-bound call?",
        "Seconds times speed is the number of FLOPs that the benchmark counts.",
    ),
)


@dataclass
class Kernel:
    """A fused attention kernel whose time has one limit.

    Called with sizes, it returns the seconds of one call in half precision. Its rate
    is in bytes, FLOPs or exponentials a second; for a launch, 1 / its seconds.
    """

    built_in: int
    rate: float

    def __call__(self, B, H, T, S, D):
        """Return the seconds of one call."""
        pairs = B * H * T * S
        amounts = 4 * B * H * D * (T + S), 4 * pairs * D, pairs, 1
        return amounts[self.built_in] / self.rate


def bottleneck(run: Callable, B: int, H: int, T: int, S: int, D: int) -> int:
    """Return what limits a kernel, as a number.

    0: memory. 1: products. 2: exponentials. 3: the time of a launch.
    """
    usual = run(B, H, T, S, D)
    longer = run(B, H, 2 * T, 2 * S, D) / usual
    if longer < 1.5:  # nothing changes
        return 3
    if longer < 3:  # twice the bytes, four times the pairs
        return 0
    wider = run(B, H, T, S, 2 * D) / usual
    return 1 if wider > 1.5 else 2


def bottleneck_cases(draw):
    rates = 3.35e12, 989e12, 3.9e12, 5e4
    kinds = "in prefill", "with few queries", "with a batch"
    for kind, limit in draw.shuffle((x, i) for x in kinds for i in range(4)):
        B = draw.whole(8, 20) if kind == "with a batch" else 1
        S = draw.whole(500, 900)
        T = draw.whole(2, 9) if kind == "with few queries" else S
        kernel = Kernel(limit, rates[limit] * draw.whole(50, 90) / 100)
        tries = f"with a kernel that has limit {limit}, {kind}"
        yield tries, kernel, B, draw.whole(6, 14), T, S, draw.whole(40, 90)


check_bottleneck = Exercise(
    bottleneck,
    bottleneck_cases,
    stars=3,
    minutes=20,
    section="The exponential: a third ceiling",
    title="runs that tell what limits a kernel",
    returns=("limit",),
    library=COUNTS,
    mistakes={
        "length-only": (
            "it varies only the length, which affects products and exponentials alike",
            "1 if wider > 1.5 else 2 → 1",
        ),
        "launch-not-considered": (
            "a time that no size changes is taken for one limited by memory",
            "return 3 → return 0",
        ),
        "swapped": (
            "products and exponentials are confused; only products need the width",
            "1 if wider > 1.5 else 2 → 2 if wider > 1.5 else 1",
        ),
        "square-of-memory": (
            "bytes are taken to grow with the square of the length, not the length",
            "return 0 → return 1 ; 1 if wider → 0 if wider",
        ),
    },
    hints=("Which of the four amounts double with the width, which with the length?",),
)
