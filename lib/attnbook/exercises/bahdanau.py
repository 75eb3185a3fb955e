"""The exercises of the chapter on additive attention.

Source: Bahdanau, Cho and Bengio (2015), sections 3.1 (equations 5 and 6) and 3.1.1,
    appendices A.1.2 and A.2.2, https://arxiv.org/abs/1409.0473. The faults of decoder
    steps are those of public decoders, linked in the chapter.
Axes: B batch, T queries, S keys (source symbols), Dq and Dk width of query and key,
    A alignment width, E value width, M memory width, N state width, I width of a
    symbol's vector
"""

from collections.abc import Callable

import torch
from torch import Tensor

from attnbook.attention.recurrent import additive_scores, context
from attnbook.exercises.declare import Case, Exercise, fill


def additive_scores_cases(draw):
    def inputs(b, t, s, dq, dk, a, size=1):
        shapes = (b, t, dq), (b, s, dk), (a, dq), (a, dk), (a,)
        return tuple(size * draw.normal(*shape) for shape in shapes)

    yield "with one query and one key", *inputs(1, 1, 1, 2, 3, 5)
    yield "with 3 queries and 5 keys", *inputs(2, 3, 5, 7, 11, 13)
    yield "with as many queries as keys", *inputs(2, 4, 4, 3, 3, 3)
    yield "with more queries than keys", *inputs(2, 6, 3, 4, 5, 8)
    yield "with large inputs", *inputs(2, 3, 5, 2, 3, 5, size=8)


check_additive_scores = Exercise(
    additive_scores,
    additive_scores_cases,
    stars=1,
    minutes=10,
    section="The additive score",
    title="additive scores",
    returns=("scores",),
    mistakes={
        "relu-for-tanh": (
            "the activation is ReLU; it should be tanh",
            "torch.tanh( → torch.relu(",
        ),
        "no-tanh": (
            "tanh is not applied to the sum of the projections",
            "torch.tanh( → (",
        ),
        "tanh-too-early": (
            "tanh is applied to query and key; it should be applied to their sum",
            "tanh(queries[:, :, None] + keys[:, None]) "
            "→ add(queries.tanh()[:, :, None], keys.tanh()[:, None])",
        ),
        "swapped-axes": (
            "the axes of queries and keys are swapped; the shape should be (B, T, S)",
            "queries[:, :, None] + keys[:, None] → queries[:, None] + keys[:, :, None]",
        ),
        "normalised": (
            "the softmax has been applied; the exercise asks for scores",
            "return torch → return (torch ; @ v → @ v).softmax(-1)",
        ),
        "scaled": (
            "the scores are divided by √A; additive scores are not scaled",
            "@ v → @ v / len(v) ** 0.5",
        ),
    },
)


def context_cases(draw):
    def inputs(b, t, s, e):
        return draw.normal(b, t, s), draw.normal(b, s, e)

    lengths = torch.tensor([draw.whole(2, 4), 5, 1])
    scores, value = inputs(3, 4, 5, 7)
    padded = torch.arange(5) >= lengths[:, None]
    loud = scores.masked_fill(padded[:, None], 30.0)
    huge = value.masked_fill(padded[:, :, None], 1e30)
    ranks = scores.argsort(-1).argsort(-1)  # all different: one score is the largest
    low = (-1e37 * (1.0 + ranks)).masked_fill(padded[:, None], 0.0)
    half = (-10240.0 - 8192 * ranks).half().masked_fill(padded[:, None], 0.0)
    yield "with one value", *inputs(1, 1, 1, 3), torch.tensor([1])
    yield "without padding", *inputs(2, 3, 5, 7), torch.tensor([5, 5])
    yield "with padding", scores, value, lengths
    yield "with the highest scores on padding", loud, value, lengths
    yield "with huge values on padding", scores, huge, lengths
    # What is right may have the gradient 0 · inf where exponentials overflow.
    yield Case("with very large scores", (scores * 300, value, lengths), False)
    yield Case("with scores far below zero", (low, value, lengths), False)
    yield "with such scores in half precision", half, value.half(), lengths
    yield "with more queries than keys", *inputs(2, 9, 6, 4), torch.tensor([4, 6])


def average_values(weigh: Callable):
    """Return an answer with weights from the scores and a mask of real keys."""

    def answer(scores, value, lengths):
        real = torch.arange(scores.shape[-1]) < lengths[:, None, None]
        weights = weigh(scores, real)
        return weights @ value, weights

    return answer


check_context = Exercise(
    context,
    context_cases,
    stars=2,
    minutes=15,
    section="Masking padding",
    title="attention weights and context vector",
    returns=("context", "weights"),
    mistakes={
        "padding-unmasked": (
            "the padding positions are not masked out; they should get no weight",
            average_values(lambda s, real: s.softmax(-1)),
        ),
        "wrong-axis": (
            "the softmax runs over another axis; it should run over the keys",
            [
                average_values(lambda s, real: fill(s, real).softmax(-2)),
                average_values(lambda s, real: fill(s, real).softmax(-2).nan_to_num()),
                average_values(lambda s, real: s.softmax(-2) * real),
                average_values(lambda s, real: fill(s, real).softmax(0)),
            ],
        ),
        "masked-after": (
            "the mask is applied after the softmax, so the weights do not sum to 1",
            average_values(lambda s, real: s.softmax(-1) * real),
        ),
        "zero-score": (
            "the scores of padding are set to 0, which has a positive weight; set them "
            "to minus infinity",
            average_values(lambda s, real: fill(s, real, 0.0).softmax(-1)),
        ),
        "inverted-mask": (
            "the mask is inverted: only padding gets weight",
            average_values(lambda s, real: fill(s, ~real).softmax(-1)),
        ),
        "sentinel": (
            "the scores of padding are set to a finite number, and a real score can be "
            "lower still; use minus infinity",
            [
                average_values(lambda s, real: fill(s, real, -1e9).softmax(-1)),
                average_values(lambda s, real: fill(s, real, -1e4).softmax(-1)),
                average_values(lambda s, real: torch.where(real, s, -1e9).softmax(-1)),
                average_values(lambda s, real: (s - 1e9 * ~real).softmax(-1)),
            ],
        ),
    },
)


def attention_cost(B: int, T: int, S: int, N: int, M: int, A: int) -> list[int]:
    """Return four counts of additive attention in a decoder.

    In this order: parameters of the alignment model; numbers in the largest
    intermediate tensor of one call with T queries (inputs and parameters are
    not counted); multiplications that project the keys, if they are projected
    once for each sentence; and if they are projected again at each of T steps.
    """
    once = B * S * M * A
    return [A * (N + M + 1), B * T * S * A, once, T * once]


def attention_cost_cases(draw):
    def some(count, high):
        return draw.integers(2, high, count).tolist()

    yield "with all sizes 1", 1, 1, 1, 1, 1, 1
    yield "with one sentence and one step", 1, 1, *some(4, 9)
    yield "with six different sizes", *draw.shuffle([2, 3, 5, 7, 11, 13])
    yield "with one source symbol", 3, 4, 1, *some(3, 9)
    yield "with the sizes of the paper", 80, 50, 50, 1000, 2000, 1000
    yield "with random sizes", *some(6, 40)


check_attention_cost = Exercise(
    attention_cost,
    attention_cost_cases,
    stars=2,
    minutes=10,
    section="What attention costs",
    title="the cost of additive attention",
    returns=("counts",),
    mistakes={
        "v-forgotten": ("the parameters of v are missing", "N + M + 1 → N + M"),
        "scores-largest": (
            "the scores are taken for the largest tensor; the hidden layer has A times "
            "as many numbers",
            "B * T * S * A → B * T * S",
        ),
        "projections-largest": (
            "the projections are counted; the hidden layer has A numbers for each pair",
            "B * T * S * A → B * (T + S) * A",
        ),
        "query-width": (
            "the keys are projected from the width N; encoder states have the width M",
            "B * S * M * A → B * S * N * A",
        ),
        "once-per-step": (
            "the last two counts are equal; T projections cost T times as much as one",
            "T * once → once",
        ),
    },
    hints=(
        "Write the shape of every tensor of the formula, with T queries and S keys.",
        "The argument of tanh has A numbers a pair; one number of $U h_j$ takes M.",
    ),
)

# What can be built into a decoder step, and the number of its fault.
FAULTS = {
    "a mask after the softmax": 1,
    "no mask": 2,
    "a state that is lost": 3,
    "a context vector that is lost": 4,
    "attention after the step": 5,
    "no fault": 0,
}


def make_step(built_in: str, W, U, v, enter, turn) -> Callable:
    """Return a decoder step with or without a fault: `step(state, word, ...)`."""

    def weigh(scores: Tensor, real: Tensor) -> Tensor:
        if built_in == "a mask after the softmax":
            return scores.softmax(-1) * real
        return (scores if built_in == "no mask" else fill(scores, real)).softmax(-1)

    def recur(word: Tensor, seen: Tensor, state: Tensor) -> Tensor:
        return torch.tanh(torch.cat([word, seen], -1) @ enter.T + state @ turn.T)

    def step(
        state: Tensor, word: Tensor, memory: Tensor, lengths: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the next state (B, N) and the weights (B, S)."""
        query = state
        if built_in == "attention after the step":
            query = recur(word, torch.zeros_like(memory[:, 0]), state)
        hidden = torch.tanh((query @ W.T)[:, None] + memory @ U.T)
        weights = weigh(hidden @ v, torch.arange(memory.shape[1]) < lengths[:, None])
        seen = (weights[:, None] @ memory)[:, 0]
        seen = seen * (built_in != "a context vector that is lost")
        return recur(word, seen, state * (built_in != "a state that is lost")), weights

    return step


def decoder_fault(
    step: Callable,
    state: Tensor,
    word: Tensor,
    memory: Tensor,
    lengths: Tensor,
) -> int:
    """Return the number of a step's fault, 0 if there is none.

    1: weights do not sum to 1. 2: padding receives weight. 3: the recurrent
    step does not receive the previous state. 4: it does not receive the context
    vector. 5: the weights are computed from the state after the step.

    Args:
        step: (state, word, memory, lengths) to (next state, weights).
        state: an example of the state.
        word: an example of the previous symbol's vector.
        memory: an example of the encoder's states.
        lengths: all equal to S, so that there is no padding.
    """

    def equal(a: Tensor, b: Tensor) -> bool:
        return torch.allclose(a, b, atol=1e-5)

    rng = torch.Generator().manual_seed(0)
    state = torch.randn(state.shape, generator=rng)
    memory = torch.randn(memory.shape, generator=rng)
    padded = lengths - 1  # the last position is padding now
    following, weights = step(state, word, memory, padded)
    if not equal(weights.sum(-1), torch.ones(len(weights))):
        return 1
    if not equal(weights[:, -1], torch.zeros(len(weights))):
        return 2
    if not equal(step(state, word + 1, memory, padded)[1], weights):
        return 5
    if equal(step(state, word, memory + 1, padded)[0], following):
        return 4
    one = memory[:, :1], torch.ones_like(lengths)  # always the same context
    if equal(step(state, word, *one)[0], step(state + 1, word, *one)[0]):
        return 3
    return 0


def decoder_fault_cases(draw):
    def case(built_in, zero):
        b, s, i, m, n, a = draw.shuffle([(3, 5, 2, 4, 3, 7), (2, 7, 3, 5, 4, 6)])[0]
        numbers = (
            draw.normal(a, n),
            draw.normal(a, m),
            draw.normal(a),
            0.3 * draw.normal(n, i + m),
            0.3 * draw.normal(n, n),
        )
        inputs = draw.normal(b, n) * (not zero), draw.normal(b, i), draw.normal(b, s, m)
        begins = ", given a state of zeros" if zero else ""
        tries = f"with a step that has {built_in}{begins}"
        return tries, make_step(built_in, *numbers), *inputs, torch.full((b,), s)

    yield case("no fault", False)
    yield case("no fault", True)
    kinds = [(kind, zero) for kind in FAULTS for zero in (False, True) if FAULTS[kind]]
    yield from (case(*kind) for kind in draw.shuffle(kinds))


check_decoder_fault = Exercise(
    decoder_fault,
    decoder_fault_cases,
    stars=3,
    minutes=25,
    section="Pitfalls",
    title="the fault of a decoder step",
    returns=("fault",),
    mistakes={
        "no-padding-tried": (
            "it tries only inputs without padding; shorten the lengths",
            "padded = lengths - 1 → padded = lengths ; return 2 → pass",
        ),
        "state-seen-in-context": (
            "it tests the state with several source positions, where the state also "
            "changes the context vector; use one position",
            "memory[:, :1], torch.ones_like(lengths) → memory, padded",
        ),
        "example-state": (
            "it compares the given state with zeros, and it may itself be zero; choose "
            "two states that differ",
            "torch.randn(state.shape, generator=rng) → state "
            "; step(state + 1, → step(0 * state,",
        ),
        "padding-changed": (
            "it tests the context vector by changing padding; change a real position",
            "memory + 1 → torch.cat([memory[:, :-1], memory[:, -1:] + 1], dim=1)",
        ),
        "order-by-state": (
            "it tests the order by the next state, which always depends on the word; "
            "look at the weights",
            "padded)[1], weights) → padded)[0], following)",
        ),
    },
    hints=(
        "What must change, and what not, if you change only one of the inputs?",
        "With one source position, the context vector is the same for every state.",
    ),
)
