"""The engine of the checks, tried on two small exercises of its own."""

import importlib
import pickle
import signal
import threading
import time

import numpy as np
import pytest
import torch
from torch import nn

from attnbook import masks
from attnbook.exercises import limits
from attnbook.exercises.declare import ATTENTION, FIRST, Case, Draw, Exercise, edit


def causal(T, S):
    """Return True where key s does not come after query t."""
    return torch.arange(S) <= torch.arange(T)[:, None] + S - T


def weights(scores, mask):
    """Return the softmax over the keys that a query can attend to."""
    return scores.masked_fill(~mask, -torch.inf).softmax(-1)


def draw_sizes(draw):
    """Sizes of causal masks."""
    yield "with 3 queries and 3 keys", 3, 3
    yield "with more keys than queries", draw.whole(2, 6), draw.whole(8, 23)


def draw_scores(draw):
    """Scores of usual size, and scores that a finite fill value is not below."""
    yield "with 3 queries", draw.normal(2, 3, 5), causal(3, 5)
    n = draw.whole(5, 9)
    yield "with more keys", draw.normal(2, 4, n), causal(4, n)
    for kind in torch.float32, torch.float16:
        yield "with low scores", draw.lowest_scores(2, 3, 5, dtype=kind), causal(3, 5)


check_causal = Exercise(
    causal,
    draw_sizes,
    stars=1,
    minutes=5,
    section="Causal masks",
    returns=("mask",),
    library=(masks.causal,),
    mistakes={
        "inverted": ("the mask is inverted", "<= → >"),
        "top-left": ("the mask is aligned at the top left", " + S - T → "),
    },
    hints=("Where is the last query?", "Query t is at t + S - T."),
)
check_weights = Exercise(
    weights,
    draw_scores,
    stars=1,
    minutes=5,
    section="Masked softmax",
    returns=("weights",),
    forbidden=ATTENTION | {"log_softmax"},
    mistakes={
        "softmax-axis": (
            "the softmax runs over the queries",
            [
                ".softmax(-1) → .softmax(-2)",
                lambda scores, mask: scores.softmax(-2).masked_fill(~mask, 0.0),
            ],
        ),
    },
)


def build_causal(T, S):
    return torch.ones(T, S, dtype=torch.bool).tril(S - T)


def divide_exponentials(scores, mask):
    scores = scores.masked_fill(~mask, -torch.inf)
    e = (scores - scores.amax(-1, keepdim=True)).exp()
    return e / e.sum(-1, keepdim=True)


def test_right_answers():
    assert check_causal(build_causal)
    assert check_weights(divide_exponentials)
    assert repr(check_causal(build_causal)) == "✓ right"


def never_attempted(T, S):
    raise NotImplementedError


def empty(T, S):
    """Return the mask."""
    ...


def passes(T, S):
    pass


@pytest.mark.parametrize(
    "stub", [never_attempted, empty, passes, ..., lambda T, S: ...]
)
def test_stubs_are_not_attempted(stub):
    verdict = check_causal(stub)
    assert repr(verdict) == "… not attempted yet"
    assert not verdict and verdict.mistake is None


def partly_attempted(T, S):
    if T != S:
        raise NotImplementedError
    return build_causal(T, S)


BAD = {
    "no function": (3, "not-a-function", "an object of type int"),
    "None": (None, "not-a-function", "an object of type NoneType"),
    "a missing return": (lambda T, S: print(T), "none", "a `return` is missing"),
    "text": (lambda T, S: "mask", "type", "returns an object of type str"),
    "a list": (lambda T, S: [causal_row(S)] * 2, "type", "returns 2 tensors; expected"),
    "a tuple": (lambda T, S: (causal_row(S),), "type", "returns 1 tensor; expected"),
    "mixed": (lambda T, S: [1, "a"], "type", "a list of int, str"),
    "an array": (lambda T, S: np.ones((T, S)), "type", "a NumPy array"),
    "a number": (lambda T, S: 1, "type", "returns a number; expected: a tensor of"),
    "shape": (lambda T, S: causal_row(S), "shape", "shape (3,); expected: (3, 3)"),
    "type": (
        lambda T, S: build_causal(T, S).float(),
        "dtype",
        "float32; expected: bool",
    ),
    "error": (lambda T, S: 1 / 0, "error", "ZeroDivisionError: division by zero"),
    "arguments": (lambda T: T, "error", "takes 1 positional argument but 2"),
    "exit": (lambda T, S: exit(), "error", "SystemExit"),
    "a branch": (partly_attempted, "unfinished", "a branch still has to be written"),
    "by edit": (
        edit(causal, "<= → >"),
        "inverted",
        "Most likely, the mask is inverted",
    ),
    "by function": (
        lambda T, S: build_causal(T, T).new_ones(T, S).tril(),
        "top-left",
        "top left",
    ),
    "flood": (lambda T, S: print("x" * 200_000), "too-much", "100,000 printed"),
}


def causal_row(S):
    return torch.ones(S, dtype=torch.bool)


@pytest.mark.parametrize("attempt, slug, words", BAD.values(), ids=BAD)
def test_each_bad_attempt_gets_one_clear_line(attempt, slug, words, capsys):
    verdict = check_causal(attempt)
    assert not verdict and verdict.mistake == slug
    assert words in repr(verdict) and "\n" not in repr(verdict)
    assert len(capsys.readouterr().out) <= 2_000


def remember_calls(kept=[]):  # noqa: B006 - the state of the answer
    def answer(scores, mask):
        kept.append(0)
        return divide_exponentials(scores, mask) + len(kept)

    return answer


WEIGHTS = {
    "random": lambda s, m: weights(s, m) + torch.rand(()),
    "state": remember_calls(),
    "detached": lambda s, m: weights(s.detach(), m),
    "gradient": lambda s, m: weights(s, m) * 2 - weights(s, m).detach(),
    "changed-input": lambda s, m: s.masked_fill_(~m, -torch.inf).softmax(-1),
    "numbers": lambda s, m: s.masked_fill(~m, -1e9).softmax(-1),
    "nan": lambda s, m: weights(s, m) + torch.where(m, 0.0, torch.nan),
    "softmax-axis": lambda s, m: s.softmax(-2) * m,
}


@pytest.mark.parametrize("slug", WEIGHTS)
def test_wrong_values_gradients_and_side_effects(slug):
    verdict = check_weights(WEIGHTS[slug], own=False)
    assert verdict.mistake == slug, verdict


def test_a_fill_value_counts_where_all_scores_are_low():
    for fill in -1e4, torch.finfo(torch.float16).min:
        verdict = check_weights(lambda s, m, x=fill: s.masked_fill(~m, x).softmax(-1))
        assert not verdict
        assert "low scores" in repr(verdict)
    query, key = Draw(1).low_query_key(3, 5, torch.float16)
    assert torch.equal(query @ key.mT / 2, torch.full((3, 5), -(2.0**14)).half())


def test_an_answer_that_knows_only_the_first_inputs():
    known = {x.inputs: build_causal(*x.inputs) for x in draw_first(check_causal)}
    verdict = check_causal(lambda T, S: known.get((T, S), causal_row(S)), fresh=1)
    assert verdict.mistake == "hard-coded"


def draw_first(exercise):
    return [Case(x[0], x[1:]) for x in exercise.cases(Draw(FIRST))]


def loop(T, S):
    while True:
        pass


def test_an_answer_that_never_returns(monkeypatch):
    monkeypatch.setattr(limits, "SECONDS", 0.2)
    before = signal.getsignal(signal.SIGALRM)
    began = time.monotonic()
    assert check_causal(loop).mistake == "too-long"
    assert time.monotonic() - began < 30
    assert signal.getsignal(signal.SIGALRM) is before


def call_module(scores, mask):
    layer = nn.MultiheadAttention(scores.shape[-1], 1)
    return layer(scores, scores, scores)[0]


def call_flex(scores, mask):
    from torch.nn.attention.flex_attention import flex_attention as renamed

    return renamed(scores[None], scores[None], scores[None])[0]


def swallow(scores, mask):
    try:
        return nn.functional.scaled_dot_product_attention(scores, scores, scores)
    except Exception:
        return divide_exponentials(scores, mask)


FORBIDDEN = {
    "module": (check_weights, call_module),
    "flex": (check_weights, call_flex),
    "swallowed": (check_weights, swallow),
    "named by the exercise": (check_weights, lambda s, m: s.log_softmax(-1).exp()),
    "the solution": (check_causal, causal),
    "in a lambda": (check_causal, lambda T, S: causal(T, S)),
    "the library's": (check_causal, masks.causal),
}


@pytest.mark.parametrize("check, attempt", FORBIDDEN.values(), ids=FORBIDDEN)
def test_ready_made_functions_are_refused(check, attempt):
    importlib.import_module("torch.nn.attention.flex_attention")

    assert check(attempt).mistake == "ready-made"
    assert causal(2, 3).sum() == masks.causal(2, 3).sum() == 5  # they work again


def test_checks_in_threads_do_not_meet():
    found = []

    def check_often():
        found.extend(check_causal(build_causal) for _ in range(20))

    threads = [threading.Thread(target=check_often) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 60 and all(found)


SETTINGS = {
    "device": (torch.set_default_device, torch.get_default_device, "meta", "cpu"),
    "dtype": (
        torch.set_default_dtype,
        torch.get_default_dtype,
        torch.float64,
        torch.float32,
    ),
    "gradients": (torch.set_grad_enabled, torch.is_grad_enabled, False, True),
    "threads": (
        torch.set_num_threads,
        torch.get_num_threads,
        3,
        torch.get_num_threads(),
    ),
    "deterministic": (
        torch.use_deterministic_algorithms,
        torch.are_deterministic_algorithms_enabled,
        True,
        False,
    ),
    "anomalies": (
        torch.autograd.set_detect_anomaly,
        torch.is_anomaly_enabled,
        True,
        False,
    ),
    "matmul": (
        torch.set_float32_matmul_precision,
        torch.get_float32_matmul_precision,
        "medium",
        "highest",
    ),
}


@pytest.mark.parametrize("put, ask, value, usual", SETTINGS.values(), ids=SETTINGS)
def test_settings_of_the_notebook_change_no_verdict(put, ask, value, usual):
    put(value)
    try:
        before = ask()
        verdicts = check_weights(divide_exponentials), check_causal(build_causal)
        wrong = check_weights(WEIGHTS["softmax-axis"])
        assert ask() == before
    finally:
        put(usual)
    assert all(verdicts)
    assert wrong.mistake == "softmax-axis"


@pytest.mark.parametrize(
    "context",
    [torch.no_grad, torch.inference_mode, lambda: torch.autocast("cpu", torch.half)],
    ids=["no_grad", "inference_mode", "autocast"],
)
def test_contexts_of_the_notebook_change_no_verdict(context):
    with context():
        assert check_weights(divide_exponentials)
        assert check_weights(WEIGHTS["detached"], own=False).mistake == "detached"


def test_seeds_of_the_notebook_stay():
    torch.manual_seed(5)
    np.random.seed(5)
    right = torch.rand(3), np.random.rand()
    torch.manual_seed(5)
    np.random.seed(5)
    check_weights(divide_exponentials)
    assert torch.equal(torch.rand(3), right[0])
    assert np.random.rand() == right[1]


def total(chunks):
    """Return the sum of all numbers."""
    found = 0.0
    for x in chunks:
        found = found + x.sum()
    return found


def draw_chunks(draw):
    """Chunks that are too many to be kept."""

    def make(count):
        return (Chunks([draw.normal(4096) for _ in range(count)]),)

    yield "with 2 chunks", *make(2)
    yield Case("with 30 chunks", make(30), memory=200_000)


class Chunks:
    """Tensors that are made one after the other."""

    def __init__(self, kept):
        self.kept = kept

    def __iter__(self):
        return (x.clone() for x in self.kept)


def test_a_limit_on_memory_counts_tensors_arrays_and_lists():
    check = Exercise(
        total,
        draw_chunks,
        stars=1,
        minutes=5,
        section="Streams",
        mistakes={"kept": ("it keeps the chunks", lambda x: torch.stack([*x]).sum())},
    )
    assert check(lambda chunks: sum(x.sum() for x in chunks))
    assert check(lambda chunks: torch.cat([*chunks]).sum()).mistake == "kept"
    for keep in (lambda x: x.numpy().copy()), (lambda x: x.tolist()):
        kept = check(lambda x, keep=keep: torch.tensor([keep(y) for y in x]).sum())
        assert "MemoryError" in repr(kept)


def ablate(model):
    """Return a copy of a model without its bias."""
    made = nn.Linear(3, 2, bias=False)
    made.weight = model.weight
    return made


def test_a_returned_model_is_compared_by_what_it_computes():
    def draw_models(draw):
        model = nn.Linear(3, 2)
        model.weight.data = draw.normal(2, 3)
        yield "with a model", model.eval()

    def compute(returned, model):
        probe = torch.ones(1, 3)
        return returned(probe), model(probe)

    check = Exercise(
        ablate, draw_models, stars=1, minutes=5, section="Ablation", compare=compute
    )

    def zero_in_place(model):
        model.bias.data.zero_()
        return model

    def train(model):
        model.train()
        return ablate(model)

    assert check(ablate, own=False)
    assert check(zero_in_place).mistake == "changed-model"
    assert check(train, own=False).mistake == "changed-model"
    assert check(lambda model: model).mistake == "numbers"
    assert "'int' object is not callable" in repr(check(lambda model: 3))


def count(n):
    """Return a count and whether it is even."""
    return [n, n + 1, 2 * n]


def test_numbers_however_they_are_held():
    def draw_numbers(draw):
        yield "with 3", 3
        yield "with a large one", draw.whole(10**9, 10**10)

    check = Exercise(count, draw_numbers, stars=1, minutes=5, section="Counts")
    assert check(lambda n: (n, n + 1, 2 * n))
    assert check(lambda n: torch.tensor([n, n + 1, 2 * n]))
    assert check(lambda n: np.array([n, n + 1.0, 2 * n]))
    assert check(lambda n: [torch.tensor(n), torch.tensor(n + 1), torch.tensor(2 * n)])
    assert check(lambda n: [n, n, 2 * n]).mistake == "numbers"
    assert check(lambda n: [n, n + 1]).mistake == "length"
    assert check(lambda n: 3 * n).mistake == "type"


def test_what_an_attempt_did_can_be_judged_elsewhere():
    found = check_weights.run_attempt(WEIGHTS["softmax-axis"], (FIRST, 5))
    verdict = check_weights.judge(pickle.loads(pickle.dumps(found)))
    assert verdict.mistake == "softmax-axis"


def test_hints():
    assert repr(check_causal.hint()) == "Hint 1 of 2: Where is the last query?"
    assert "t + S - T" in check_causal.hint(2)
    with pytest.raises(ValueError, match="hints 1 to 2, and no hint 3"):
        check_causal.hint(3)


def test_an_edit_that_does_not_fit_is_an_error():
    with pytest.raises(
        ValueError, match="'S - S' occurs 0 times in the body of causal"
    ):
        edit(causal, "S - S → 0")
