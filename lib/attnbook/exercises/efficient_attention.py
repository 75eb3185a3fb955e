"""The exercises of the chapter on efficient attention.

Source: linear attention: Katharopoulos et al. (2020), section 3.4, equations 16 to
    20, https://arxiv.org/abs/2006.16236; chunks: Hua et al. (2022), section 3.3,
    https://arxiv.org/abs/2202.10447; the delta rule: Schlag et al. (2021),
    section 4.2, https://arxiv.org/abs/2102.11174; Yang et al. (2024), section 2.2,
    https://arxiv.org/abs/2406.06484; receptive field: Beltagy et al. (2020), section
    3.1, https://arxiv.org/abs/2004.05150; sinks: Xiao et al. (2024), section 3.2,
    https://arxiv.org/abs/2309.17453; a state that decays: Yang et al. (2025), section
    3.1, https://arxiv.org/abs/2412.06464
Axes: B batch, H heads, T positions, S pairs of key and value, D width of query and
    key, E of values
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import elu, normalize

from attnbook.attention import delta_rule, linear
from attnbook.attention.linear import elu_plus_one
from attnbook.exercises.declare import Case, Exercise, differ
from attnbook.exercises.kernels import KernelExercise, tl, triton


def recurrent_step(
    state: Float[Tensor, "B H D E"],
    normalizer: Float[Tensor, "B H D"],
    query: Float[Tensor, "B H D"],
    key: Float[Tensor, "B H D"],
    value: Float[Tensor, "B H E"],
) -> tuple[Float[Tensor, "B H E"], Float[Tensor, "B H D E"], Float[Tensor, "B H D"]]:
    """Return the output of a position, and the next state and normalizer."""
    query, key = elu(query) + 1, elu(key) + 1
    state = state + key[..., :, None] * value[..., None, :]
    normalizer = normalizer + key
    output = (query[..., None, :] @ state)[..., 0, :]
    total = (query * normalizer).sum(dim=-1, keepdim=True)
    return output / total, state, normalizer


def recurrent_cases(draw):
    def inputs(b, h, d, e, before=5):
        keys = elu(draw.normal(b, h, before, d)) + 1
        state = keys.mT @ draw.normal(b, h, before, e)
        query, key = draw.normal(b, h, d), draw.normal(b, h, d)
        return state, keys.sum(2), query, key, draw.normal(b, h, e)

    yield "at the first position", *inputs(1, 1, 2, 3, before=0)
    yield "at the second position", *inputs(1, 1, 2, 3, before=1)
    yield "with 3 heads", *inputs(2, 3, 4, 7)
    yield "after many positions", *inputs(2, 1, 3, 5, before=50)
    yield "with wide queries and keys", *inputs(1, 2, 33, 17)


check_recurrent_step = Exercise(
    recurrent_step,
    recurrent_cases,
    stars=2,
    minutes=10,
    section="Recurrent and chunked linear attention",
    title="one step of linear attention",
    returns=("output", "state", "normalizer"),
    library=(linear.step_linear,),
    mistakes={
        "read-before-written": (
            "the new token is left out of its own output; it should count",
            [
                "state = state + → after = state + ; total, state → total, after",
                "state = state + → after = state + ; "
                "normalizer = normalizer + key → keys = normalizer + key ; "
                "total, state, normalizer → total, after, keys",
            ],
        ),
        "normalizer-not-updated": (
            "the new key is not added to the normalizer",
            "normalizer = normalizer + key → pass",
        ),
        "not-normalized": (
            "the output is not divided by query · normalizer",
            "output / total → output",
        ),
        "query-not-mapped": (
            "the feature map is not applied to the query",
            "elu(query) + 1, → query,",
        ),
        "no-plus-one": (
            "the feature map is elu without + 1, so features can be negative",
            "elu(query) + 1, elu(key) + 1 → elu(query), elu(key)",
        ),
    },
    hints=(
        "Which sums over the keys does the output of a position need?",
        "The state adds φ(key) · value, and the normalizer φ(key).",
    ),
)


def delta_step(
    state: Float[Tensor, "B H D E"],
    query: Float[Tensor, "B H D"],
    key: Float[Tensor, "B H D"],
    value: Float[Tensor, "B H E"],
    beta: Float[Tensor, "B H"],
) -> tuple[Float[Tensor, "B H E"], Float[Tensor, "B H D E"]]:
    """Return query · new state, and the state after the value is written."""
    old = (key[..., None, :] @ state)[..., 0, :]
    written = beta[..., None] * (value - old)
    state = state + key[..., :, None] * written[..., None, :]
    return (query[..., None, :] @ state)[..., 0, :], state


def delta_cases(draw):
    def inputs(b, h, d, e, beta=None, size=1.0):
        strength = draw.normal(b, h).sigmoid()
        if beta is not None:
            strength = torch.full((b, h), beta)
        state, query = size * draw.normal(b, h, d, e), draw.normal(b, h, d)
        key = normalize(draw.normal(b, h, d), dim=-1)
        return state, query, key, draw.normal(b, h, e), strength

    yield "with an empty memory", *inputs(1, 1, 2, 3, 1.0, 0.0)
    yield "with beta = 1", *inputs(1, 1, 2, 3, 1.0)
    yield "with beta = 0", *inputs(1, 1, 2, 3, 0.0)
    yield "with 3 heads", *inputs(2, 3, 4, 7)
    yield "with a full memory", *inputs(2, 1, 5, 3, size=30.0)
    yield "with wide queries and keys", *inputs(1, 2, 33, 17)


check_delta_step = Exercise(
    delta_step,
    delta_cases,
    stars=2,
    minutes=10,
    section="The delta rule: overwrite instead of add",
    title="one step of the delta rule",
    returns=("output", "state"),
    library=(delta_rule.step_delta, delta_rule.write_and_read),
    mistakes={
        "added": (
            "what the memory returns for the key is not subtracted first",
            "(value - old) → value",
        ),
        "no-beta": (
            "beta is not used: the old value is always replaced altogether",
            "beta[..., None] * (value - old) → value - old",
        ),
        "beta-on-value": (
            "only the new value is multiplied by beta; the old one must be, too",
            "beta[..., None] * (value - old) → beta[..., None] * value - old",
        ),
        "whole-memory-decays": (
            "all of the memory decays; only the key's value should be replaced",
            "(value - old) → value ; "
            "state = state + → state = (1 - beta[..., None, None]) * state +",
        ),
        "read-before-written": (
            "the output is read before the value is written",
            "(query[..., None, :] @ state) → "
            "(query[..., None, :] @ (state - key[..., None] * written[..., None, :]))",
        ),
    },
    hints=(
        "What does the memory return for the key before the value is written?",
        "Write beta · (value - key · state) in place of value.",
    ),
)


def pattern_counts(
    length: int, window: int, step: int, sinks: int, layers: int
) -> list[int]:
    """Return keys of the last query, scores, inputs within reach, and layers."""

    def list_keys(query: int) -> set[int]:
        near = range(query, query - window * step, -step)
        first = range(min(sinks, query + 1))
        return {key for key in near if key >= 0} | {*first}

    scores = sum(len(list_keys(query)) for query in range(length))
    reached = [{length - 1}, list_keys(length - 1)]
    while reached[-1] != reached[-2]:
        reached.append(set().union(*map(list_keys, reached[-1])))
    depth = len(reached) - 2 if len(reached[-1]) == length else 0
    within = reached[min(layers, len(reached) - 1)]
    return [len(reached[1]), scores, len(within), depth]


def pattern_cases(draw):
    size = draw.whole
    yield "with a window of 3 and 2 layers", 10, 3, 1, 0, 2
    yield "with a longer sequence", size(30, 60), 4, 1, 0, size(3, 5)
    yield "with a window beyond the start", size(4, 7), 9, 1, 0, 3
    yield "with a window of one key", size(5, 9), 1, 1, 0, 4
    yield "with sinks", size(25, 40), size(3, 5), 1, size(2, 4), 3
    yield "with a dilated window", size(24, 40), size(3, 4), 2, 0, 3
    yield "with dilation and sinks", size(24, 40), 3, 3, size(1, 4), 2
    yield "with more layers than are needed", size(9, 14), 4, 1, 0, 20


def count_back(n: int, hops: int, step: int, sinks: int) -> int:
    """Return how many positions are sinks, or at most some hops back."""
    last = max(-1, n - 2 - hops * step)
    return len({*range(n - 1, last, -step), *range(min(sinks, n))})


check_pattern_counts = Exercise(
    pattern_counts,
    pattern_cases,
    stars=2,
    minutes=20,
    section="Receptive field: how far information travels in L layers",
    title="keys, scores and receptive field of a pattern",
    returns=("counts",),
    mistakes={
        "layers-times-window": (
            "each layer is taken to add a whole window; it adds window - 1 keys",
            "len(within) → count_back(length, layers * window - 1, step, sinks)",
        ),
        "gaps-filled": (
            "the gaps of a dilated window are counted; no path leads there",
            "len(within) → count_back(length, layers * (window - 1) * step, 1, sinks)",
        ),
        "start-not-cut-off": (
            "every query gets as many keys as the last; the first have fewer",
            "scores, → length * len(reached[1]),",
        ),
        "one-layer-too-many": (
            "the depth is one too high; one layer reaches a whole window",
            "len(reached) - 2 if → len(reached) - 1 if",
        ),
        "one-key-too-few": (
            "the window has one key too few: it counts the query's own",
            "window * step, → (window - 1) * step,",
        ),
    },
    hints=(
        "Write down the set of keys of one query; the counts follow from these sets.",
    ),
)


FAULTS = (
    "no fault",
    "a divisor from all keys",
    "a new token that is not counted",
    "a divisor summed over the features",
    "a state that is not carried into the next chunk",
    "a state that is kept from the last call",
    "a state that is detached between chunks",
)


class ChunkedAttention:
    """Causal linear attention in chunks, with one of `FAULTS`.

    Called with query (T, D), key (T, D) and value (T, E), it returns (T, E).
    """

    def __init__(self, fault: int, chunk: int):
        self._fault, self.chunk = fault, chunk
        self.memory: tuple[Tensor, ...] = ()

    def __call__(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Attend chunk by chunk, as far as the fault allows."""
        phi_query, phi_key = elu_plus_one(query), elu_plus_one(key)
        state = phi_key.new_zeros(key.shape[1], value.shape[1])
        normalizer = phi_key.new_zeros(key.shape[1])
        if self._fault == 5 and self.memory and self.memory[0].shape == state.shape:
            state, normalizer = self.memory
        outputs = [value[:0]]
        chunks = (x.split(self.chunk) for x in (phi_query, phi_key, value))
        for q, k, v in zip(*chunks, strict=True):
            sums = normalizer + k.cumsum(0)
            if self._fault == 1:
                sums = phi_key.sum(0).expand_as(k)
            elif self._fault == 2:
                sums = sums - k
            divisor = (q * sums).sum(-1, keepdim=True)
            if self._fault == 3:
                divisor = q.sum(-1, keepdim=True) * sums.sum(-1, keepdim=True)
            empty = divisor.abs() < 1e-6
            summed = q @ state + (q @ k.mT).tril(-(self._fault == 2)) @ v
            output = summed / divisor.masked_fill(empty, 1.0)
            outputs.append(output.masked_fill(empty, 0.0))
            state, normalizer = state + k.mT @ v, normalizer + k.sum(0)
            if self._fault == 4:
                state, normalizer = torch.zeros_like(state), 0 * normalizer
            elif self._fault == 6:
                state, normalizer = state.detach(), normalizer.detach()
        self.memory = state.detach(), normalizer.detach()
        return torch.cat(outputs)


def linear_fault(
    attention: Callable,
    query: Float[Tensor, "T D"],
    key: Float[Tensor, "T D"],
    value: Float[Tensor, "T E"],
) -> int:
    """Return the number of the fault of causal linear attention, 0 if none."""
    # With queries and keys of zeros, all weights are equal, and values that are
    # an identity matrix make the output the weights.
    n, width = 20, 3
    zero, one = torch.zeros(n, width), torch.eye(n, requires_grad=True)
    weights = attention(zero, zero, one)
    if differ(attention(zero, zero, one)[0], weights[0]):
        return 5
    own = {1: 1 / n, 2: 0.0, 3: 1 / width}  # the first position's; else 1
    for number, weight in own.items():
        if not differ(weights[0, 0], torch.tensor(weight)):
            return number
    if differ(weights[-1], torch.full((n,), 1 / n)):
        return 4
    (gradient,) = torch.autograd.grad(weights[-1].sum(), one)
    return 0 if gradient[0].any() else 6


def linear_fault_cases(draw):
    def case(fault: int, T: int) -> Case:
        attention, D = ChunkedAttention(fault, draw.whole(4, 8)), draw.whole(2, 5)
        example = (draw.normal(T, width) for width in (D, D, 4))
        tries = f"with {FAULTS[fault]}, given {T} positions"
        return Case(tries, (attention, *example), gradient=False)

    yield case(0, 3)
    yield from draw.shuffle(case(n, T) for n in range(7) for T in (3, 12))


check_linear_fault = Exercise(
    linear_fault,
    linear_fault_cases,
    stars=3,
    minutes=25,
    section="Recurrent and chunked linear attention",
    title="the fault of chunked linear attention",
    returns=("fault",),
    mistakes={
        "example-length": (
            "it tries only as many positions as the example has",
            "n, width = 20, 3 → n, width = len(query), 2",
        ),
        "one-call": (
            "it does not compare two calls with the same inputs",
            "return 5 → pass",
        ),
        "no-gradient": (
            "it compares only outputs; a detached state has the right ones",
            "else 6 → else 0",
        ),
        "divisor-not-tested": (
            "it does not test whether the weights of each position sum to 1",
            "own = {1: 1 / n, 2: 0.0, 3: 1 / width} → own = {2: 0.0}",
        ),
    },
    hints=(
        "For which queries and keys are all weights equal, whatever the feature map?",
        "With values that are an identity matrix, the output is the weights.",
    ),
)


KINDS = (
    "softmax attention to all keys",
    "softmax attention to a window",
    "a state to which pairs are added",
    "a state that the delta rule overwrites",
    "a state that decays before a pair is added",
)
LARGEST = 6  # keys of a window


class Memory:
    """A memory of one of `KINDS`.

    Called with a query (D,), keys (S, D) and values (S, E), which it gets one after
    the other, it returns the value stored for the query (E,).
    """

    def __init__(self, kind: int, window: int, decay: float):
        self._kind, self.window, self.decay = kind, window, decay

    def __call__(self, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Write all pairs in order, then read; no key may be longer than 1."""
        if len(keys) and (longest := float(keys.norm(dim=-1).max())) > 1.001:
            raise ValueError(f"keys have the length 1, but one has {longest:.3g}")
        if self._kind < 2:
            first = max(0, len(keys) - self.window) if self._kind else 0
            return (keys[first:] @ query).softmax(-1) @ values[first:]
        state = values.new_zeros(keys.shape[1], values.shape[1])
        for key, value in zip(keys, values, strict=True):
            if self._kind == 3:
                value = value - key @ state
            decay = self.decay if self._kind == 4 else 1.0
            state = decay * state + torch.outer(key, value)
        return query @ state


def memory_kind(
    memory: Callable, keys: Float[Tensor, "S D"], values: Float[Tensor, "S E"]
) -> int:
    """Return the kind of a memory, as a number."""
    key = torch.tensor([1.0, 0.0])
    # One key is written twice: first with the value 1, then with the value 2.
    twice, numbers = torch.stack([key, key]), torch.tensor([[1.0], [2.0]])
    found = float(memory(key, twice, numbers))
    if found > 1.75:  # not their average: the sum is 3, the second value is 2
        return 2 if found > 2.95 else 4 if found > 2.3 else 3
    # Does the average include the first of many values?
    many, values = torch.stack([key] * 20), torch.zeros(20, 1)
    values[0] = 100.0
    return 0 if float(memory(key, many, values)) > 1 else 1


def memory_cases(draw):
    def case(kind: int, S: int, window: int) -> Case:
        memory = Memory(kind, window, 0.6 + 0.003 * draw.whole(0, 100))
        keys = normalize(draw.normal(S, 5), dim=-1)
        tries = f"with {KINDS[kind]}, given {S} pairs"
        return Case(tries, (memory, keys, draw.normal(S, 3)), gradient=False)

    sizes = (2, 3), (9, LARGEST)
    yield from draw.shuffle(case(kind, *size) for kind in range(5) for size in sizes)


check_memory_kind = Exercise(
    memory_kind,
    memory_cases,
    stars=3,
    minutes=20,
    section="The state as a memory: capacity and interference",
    title="inputs that show what kind of memory a layer has",
    returns=("kind",),
    mistakes={
        "different-keys": (
            "it writes each key once, so a sum and the delta rule agree",
            "torch.stack([key, key]) → torch.eye(2) ; "
            "found > 1.75 → found < 1.1 ; "
            "2 if found > 2.95 else 4 if found > 2.3 else 3 → "
            "2 if found > 0.95 else 4",
        ),
        "too-few-pairs": (
            "it writes too few pairs: a window of 6 still holds the first",
            "[key] * 20), torch.zeros(20, 1) → [key] * 5), torch.zeros(5, 1)",
        ),
        "decay-as-sum": (
            "it takes a state that decays for a sum",
            "4 if found > 2.3 else 3 → 2 if found > 2.3 else 3",
        ),
        "states-swapped": (
            "it confuses a sum (both values) and the delta rule (the second one)",
            "return 2 if → return 3 if ; else 3 → else 2",
        ),
    },
    hints=(
        "What does each kind return if one key is written twice, with two values?",
        "Then write it more than 6 times; only the first value is not 0.",
    ),
)


@triton.jit
def chunk_kernel(
    query, key, value, output, T: tl.constexpr, D: tl.constexpr, CHUNK: tl.constexpr
):
    """Write causal linear attention, chunk by chunk; φ has been applied."""
    width = tl.arange(0, D)
    state = tl.zeros((D, D), tl.float32)
    normalizer = tl.zeros((D,), tl.float32)
    for start in range(0, T, CHUNK):
        rows = start + tl.arange(0, CHUNK)
        at = rows[:, None] * D + width[None, :]
        q = tl.load(query + at, mask=rows[:, None] < T, other=0.0)
        k = tl.load(key + at, mask=rows[:, None] < T, other=0.0)
        v = tl.load(value + at, mask=rows[:, None] < T, other=0.0)
        weights = tl.where(rows[:, None] >= rows[None, :], tl.dot(q, k.T), 0.0)
        summed = tl.dot(weights, v) + tl.dot(q, state)
        divisor = tl.sum(weights, 1) + tl.sum(q * normalizer[None, :], 1)
        tl.store(output + at, summed / divisor[:, None], mask=rows[:, None] < T)
        state += tl.dot(k.T, v)
        normalizer += tl.sum(k, 0)


def launch_chunks(kernel, query, key, value, CHUNK):
    """Launch one program for all chunks."""
    output = torch.zeros_like(query)
    kernel[1,](query, key, value, output, *query.shape, CHUNK)
    return output


def chunk_cases(draw):
    def case(tries, T, chunk=16):
        query, key = elu_plus_one(draw.normal(2, T, 16))
        return Case(tries, (query, key, draw.normal(T, 16), chunk), gradient=False)

    yield case("with one chunk", 16)
    yield case("with two chunks", 32)
    yield case("with fewer positions than a chunk", draw.whole(5, 12))
    yield case("with a last chunk that is not full", 37)
    yield case("with chunks of 32 positions", 70, 32)


check_chunk_kernel = KernelExercise(
    chunk_kernel,
    chunk_cases,
    launch=launch_chunks,
    stars=3,
    minutes=25,
    section="Recurrent and chunked linear attention",
    title="chunked linear attention in Triton",
    returns=("output",),
    mistakes={
        "state-added-first": (
            "the chunk is added to the state before that is read, so it counts twice",
            [
                "tl.dot(q, state) → tl.dot(q, state + tl.dot(k.T, v)) ; "
                "normalizer[None, :] → (normalizer + tl.sum(k, 0))[None, :]",
                "tl.dot(q, state) → tl.dot(q, state + tl.dot(k.T, v))",
            ],
        ),
        "no-mask": (
            "inside the chunk, positions attend to later ones",
            "rows[:, None] >= rows[None, :] → (rows[:, None] + rows[None, :]) >= 0",
        ),
        "not-itself": (
            "a position does not attend to itself; it should",
            ">= rows → > rows",
        ),
        "all-keys-in-divisor": (
            "the divisor sums the whole chunk, also later keys",
            "tl.sum(weights, 1) → tl.sum(tl.dot(q, k.T), 1)",
        ),
        "normalizer-not-updated": (
            "the keys of the chunk are not added to the normalizer",
            "normalizer += tl.sum(k, 0) → pass",
        ),
        "unmasked-load": (
            "a load has no mask, so the last chunk reads beyond the last position",
            "value + at, mask=rows[:, None] < T, other=0.0 → value + at",
        ),
        "unmasked-store": (
            "the store has no mask, so it writes beyond the last position",
            "/ divisor[:, None], mask=rows[:, None] < T → / divisor[:, None]",
        ),
    },
    hints=(
        "Which keys of this chunk are in the state when the chunk is read?",
        "First read the state of the earlier chunks, then add k.T · v to it.",
    ),
)
