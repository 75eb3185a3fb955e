"""The engine of the checks, tried on small exercises of its own."""

import importlib
import pickle
import signal
import sys

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
    yield "with 3 queries and 3 keys", 3, 3
    yield "with more keys than queries", draw.whole(2, 6), draw.whole(8, 23)


def draw_scores(draw):
    yield "with 3 queries", draw.normal(2, 3, 5), causal(3, 5)
    n = draw.whole(5, 9)
    yield "with more keys", draw.normal(2, 4, n), causal(4, n)
    for kind in torch.float32, torch.float16:
        lowest = torch.full((2, 3, 5), torch.finfo(kind).min, dtype=kind)
        yield "with low scores", lowest, causal(3, 5)


def make_exercise(solution, cases, **more):
    return Exercise(solution, cases, stars=1, minutes=5, section="Masks", **more)


check_causal = make_exercise(
    causal,
    draw_sizes,
    returns=("mask",),
    library=(masks.causal,),
    mistakes={
        "inverted": ("the mask is inverted", "<= → >"),
        "top-left": ("the mask is aligned at the top left", " + S - T → "),
    },
    hints=("Where is the last query?", "Query t is at t + S - T."),
)
SPELLINGS = [".softmax(-1) → .softmax(-2)", lambda s, m: s.softmax(-2) * m]
check_weights = make_exercise(
    weights,
    draw_scores,
    forbidden=ATTENTION | {"log_softmax"},
    mistakes={"softmax-axis": ("the softmax runs over the queries", SPELLINGS)},
)


def build_causal(T, S):
    return torch.ones(T, S, dtype=torch.bool).tril(S - T)


def divide_exponentials(scores, mask):
    scores = scores.masked_fill(~mask, -torch.inf)
    e = (scores - scores.amax(-1, keepdim=True)).exp()
    return e / e.sum(-1, keepdim=True)


def test_numbers_that_are_off_by_one_in_a_thousand_are_wrong():
    verdict = check_weights(lambda s, m: divide_exponentials(s, m) * 1.001)
    assert verdict.mistake == "numbers"


def test_right_answers():
    assert repr(check_causal(build_causal)) == "✓ right"
    assert check_weights(divide_exponentials)


def raises(T, S):
    raise NotImplementedError


def empty(T, S):
    """Return the mask."""
    ...


@pytest.mark.parametrize("stub", [raises, empty, ..., lambda T, S: ...])
def test_stubs_are_not_attempted(stub):
    verdict = check_causal(stub)
    assert repr(verdict) == "… not attempted yet"
    assert not verdict and verdict.mistake is None


def row(S):
    return torch.ones(S, dtype=torch.bool)


BAD = {
    "no function": (3, "not-a-function", "an object of type int"),
    "a missing return": (lambda T, S: print(T), "none", "a `return` is missing"),
    "a tuple": (lambda T, S: (row(S),), "type", "returns 1 tensor; expected"),
    "mixed": (lambda T, S: [1, "a"], "type", "a list of int, str"),
    "an array": (lambda T, S: np.ones((T, S)), "type", "a NumPy array"),
    "a number": (lambda T, S: 1, "type", "returns a number; expected: a tensor of"),
    "shape": (lambda T, S: row(S), "shape", "shape (3,); expected: (3, 3)"),
    "type": (lambda T, S: 1.0 * build_causal(T, S), "dtype", "float32; expected: bool"),
    "error": (lambda T, S: 1 / 0, "error", "ZeroDivisionError: division by zero"),
    "arguments": (lambda T: T, "error", "takes 1 positional argument but 2"),
    "exit": (lambda T, S: sys.exit(), "error", "SystemExit"),
    "a branch": (
        lambda T, S: build_causal(T, S) if T == S else raises(T, S),
        "unfinished",
        "a branch still has to be written",
    ),
    "a mistake": (lambda T, S: ~build_causal(T, S), "inverted", "Most likely, the"),
    "flood": (lambda T, S: print("x" * 200_000), "too-much", "100,000 printed"),
}


@pytest.mark.parametrize("attempt, slug, words", BAD.values(), ids=BAD)
def test_each_bad_attempt_gets_one_clear_line(attempt, slug, words, capsys):
    verdict = check_causal(attempt)
    assert not verdict and verdict.mistake == slug
    assert words in repr(verdict) and "\n" not in repr(verdict)
    assert len(capsys.readouterr().out) <= 2_000


def remember_calls(kept):
    def answer(scores, mask):
        kept.append(0)
        return divide_exponentials(scores, mask) + len(kept)

    return answer


WEIGHTS = {
    "random": lambda s, m: weights(s, m) + torch.rand(()),
    "state": remember_calls([]),
    "detached": lambda s, m: weights(s.detach(), m),
    "gradient": lambda s, m: weights(s, m) * 2 - weights(s, m).detach(),
    "changed-input": lambda s, m: s.masked_fill_(~m, -torch.inf).softmax(-1),
    "numbers": lambda s, m: s.masked_fill(~m, -1e9).softmax(-1),
    "nan": lambda s, m: weights(s, m) + torch.where(m, 0.0, torch.nan),
    "softmax-axis": lambda s, m: s.softmax(-2).masked_fill(~m, 0.0),
}


@pytest.mark.parametrize("slug", WEIGHTS)
def test_wrong_values_gradients_and_side_effects(slug):
    verdict = check_weights(WEIGHTS[slug], own=False)
    assert verdict.mistake == slug, verdict


def test_a_fill_value_counts_where_all_scores_are_low():
    for fill in -1e4, torch.finfo(torch.float16).min:
        verdict = check_weights(lambda s, m, x=fill: s.masked_fill(~m, x).softmax(-1))
        assert not verdict and "low scores" in repr(verdict)


def test_an_answer_that_knows_only_the_first_inputs():
    known = [sizes for _, *sizes in draw_sizes(Draw(FIRST))]
    verdict = check_causal(
        lambda T, S: build_causal(T, S) if [T, S] in known else row(S), fresh=1
    )
    assert verdict.mistake == "hard-coded"


def test_an_answer_that_never_returns(monkeypatch):
    def loop(T, S):
        while True:
            pass

    monkeypatch.setattr(limits, "SECONDS", 0.2)
    before = signal.getsignal(signal.SIGALRM)
    assert check_causal(loop).mistake == "too-long"
    assert signal.getsignal(signal.SIGALRM) is before


def call_flex(scores, mask):
    from torch.nn.attention.flex_attention import flex_attention as renamed

    return renamed(scores[None], scores[None], scores[None])[0]


def swallow(scores, mask):
    try:
        return nn.functional.scaled_dot_product_attention(scores, scores, scores)
    except Exception:
        return divide_exponentials(scores, mask)


FORBIDDEN = {
    "module": (check_weights, lambda s, m: nn.MultiheadAttention(5, 1)(s, s, s)[0]),
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


SETTINGS = {"default_device": "meta", "default_dtype": torch.float64, "num_threads": 3}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_of_the_notebook_change_no_verdict(name):
    ask, put = getattr(torch, f"get_{name}"), getattr(torch, f"set_{name}")
    usual = ask()
    put(SETTINGS[name])
    try:
        before = ask()
        scaled = check_weights(lambda s, m: divide_exponentials(s, m) * torch.ones(1))
        verdicts = scaled, check_causal(build_causal)
        wrong = check_weights(WEIGHTS["softmax-axis"])
        assert ask() == before
    finally:
        put(usual)
    assert all(verdicts) and wrong.mistake == "softmax-axis"


CONTEXTS = {
    "inference_mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.half),
    "device": lambda: torch.device("meta"),
}


@pytest.mark.parametrize("name", CONTEXTS)
def test_contexts_of_the_notebook_change_no_verdict(name):
    with CONTEXTS[name]():
        assert check_weights(divide_exponentials)
        assert check_weights(WEIGHTS["detached"], own=False).mistake == "detached"


def test_seeds_of_the_notebook_stay():
    def draw_numbers(between=lambda: None):
        torch.manual_seed(5)
        np.random.seed(5)
        between()
        return torch.rand(()).item(), np.random.rand()

    check = lambda: check_weights(divide_exponentials)  # noqa: E731
    assert draw_numbers(check) == draw_numbers()


class Chunks:
    """Tensors that are made one after the other."""

    def __init__(self, kept):
        self.kept = kept

    def __iter__(self):
        return (x.clone() for x in self.kept)


def total(chunks):
    """Return the sum of all numbers."""
    found = 0.0
    for x in chunks:
        found = found + x.sum()
    return found


def draw_chunks(draw):
    chunks = [draw.normal(4096) for _ in range(30)]
    yield "with 2 chunks", Chunks(chunks[:2])
    yield Case("with 30 chunks", (Chunks(chunks),), memory=200_000)


def test_a_limit_on_memory_counts_tensors_arrays_and_lists():
    mistakes = {"kept": ("it keeps the chunks", lambda x: torch.stack([*x]).sum())}
    check = make_exercise(total, draw_chunks, mistakes=mistakes)
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
        yield "with a model", nn.Linear(3, 2).eval()

    def compute(returned, model):
        return returned(torch.ones(1, 3)), model(torch.ones(1, 3))

    def zero_in_place(model):
        model.bias.data.zero_()
        return model

    check = make_exercise(ablate, draw_models, compare=compute)
    assert check(ablate, own=False)
    assert check(zero_in_place).mistake == "changed-model"
    assert check(lambda x: ablate(x.train()), own=False).mistake == "changed-model"
    assert check(lambda model: model).mistake == "numbers"
    assert "'int' object is not callable" in repr(check(lambda model: 3))


def count(n):
    """Return three numbers."""
    return [n, n + 1, 2 * n]


def test_numbers_however_they_are_held():
    sizes = 3, 10**9
    check = make_exercise(count, lambda draw: [(f"with {n}", n) for n in sizes])
    assert check(lambda n: (n, n + 1, 2 * n))
    assert check(lambda n: torch.tensor([n, n + 1, 2 * n]))
    assert check(lambda n: np.array([n, n + 1.0, 2 * n]))
    assert check(lambda n: [torch.tensor(n), torch.tensor(n + 1), torch.tensor(2 * n)])
    assert check(lambda n: [n, n + 1, 2 * n + n // 10**9]).mistake == "numbers"
    assert check(lambda n: [n, n + 1]).mistake == "length"
    assert check(lambda n: 3 * n).mistake == "type"


def test_what_an_attempt_did_can_be_judged_elsewhere():
    found = check_weights.run_attempt(WEIGHTS["softmax-axis"], (FIRST, 5))
    verdict = check_weights.judge(pickle.loads(pickle.dumps(found)))
    assert verdict.mistake == "softmax-axis"


def test_a_mistake_that_two_names_fit_in_some_cases_has_neither():
    mistakes = {"one": ("", "<= → >"), "other": ("", lambda T, S: ~causal(T, S))}
    check = make_exercise(causal, draw_sizes, mistakes=mistakes)
    assert check(lambda T, S: build_causal(T, S) ^ (S > 5)).mistake == "numbers"


def test_hints():
    assert repr(check_causal.hint()) == "Hint 1 of 2: Where is the last query?"
    with pytest.raises(ValueError, match="hints 1 to 2, and no hint 3"):
        check_causal.hint(3)


def test_an_edit_that_does_not_fit_is_an_error():
    with pytest.raises(ValueError, match="'S - S' occurs 0 times in the body of caus"):
        edit(causal, "S - S → 0")
