"""Checks refuse wrong answers by name and accept right ones."""

import copy
import importlib
import inspect
import pickle
import random
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from answer_styles import COUNTS, NUMBERS, PRECISIONS, find_styles
from attnbook.exercises import cost
from attnbook.exercises.cached_outcomes import draw_cases, list_outcomes
from attnbook.exercises.copying import copy_input
from attnbook.exercises.difference import (
    explain_shape,
    find_clear,
    write_pair,
)
from attnbook.exercises.edit import edit_solution
from attnbook.exercises.exercise import FIRST, Case, Mistake
from attnbook.exercises.hint import (
    decides,
    list_called,
    list_statements,
    write_shapes,
)
from attnbook.exercises.masks import check_no_leak
from attnbook.exercises.mistake import Trial
from attnbook.exercises.outcome import is_same_outcome
from attnbook.exercises.runner import run
from attnbook.exercises.scaled_dot_product import check_attend
from attnbook.exercises.verdict import YOURS, describe_case, name_function
from attnbook.training.metrics import require_equal_counts
from doubling import double
from ordinary_answers import list_ordinary
from workshop.book.mistakes import list_entries
from workshop.book.sections import read_sections
from workshop.chapters import find_chapter

PAGES = Path(__file__).parents[3].glob("chapters/[0-9][0-9]_*.md")
CHAPTERS = {path.stem: path for path in PAGES}
FRESH = 5  # seed of the second draw; the first is everyone's


def checks():
    """Yield the module's and the exercise's name, and the exercise.

    Without CHAPTERS, so that in `make check` an edited text does not concern
    every exercise.
    """
    for entry in list_entries():
        yield entry.module, entry.name, entry.exercise


def bank(kind):
    """Yield every exercise with each of its wrong or right answers."""
    for chapter, name, check in checks():
        answers = importlib.import_module(f"{kind}_answers.{chapter}").ANSWERS
        for i, answer in enumerate(answers[name]):
            label = answer.slug if kind == "wrong" else answer[0]
            yield pytest.param(check, answer, id=f"{name}-{i}-{label}")


def declared():
    """Yield every exercise with each mistake declared beside it."""
    for _, name, check in checks():
        for mistake in check.mistakes:
            yield pytest.param(check, mistake, id=f"{name}-{mistake.slug}")


exact = pytest.mark.exact("no answer is judged")
each = pytest.mark.parametrize(
    "check",
    [pytest.param(check, id=name) for _, name, check in checks()],
)


@pytest.mark.long
@pytest.mark.precision
@pytest.mark.parametrize(("check", "mistake"), list(declared()))
def test_a_declared_mistake_is_named_in_the_verdict(check, mistake):
    verdict = check(mistake.answer, FRESH)
    assert not verdict
    assert verdict.mistake == mistake.slug, verdict
    assert repr(verdict).startswith("✗ Tried ")
    because = mistake.because
    if decides(check):
        because = name_function(because, YOURS)
    assert f" Most likely, {because}. Reread " in repr(verdict)
    assert "NameError" not in verdict.message


@pytest.mark.long
@pytest.mark.precision
@pytest.mark.parametrize(("check", "wrong"), list(bank("wrong")))
def test_a_wrong_answer_is_refused_with_its_slug(check, wrong):
    verdict = check(copy.deepcopy(wrong.answer), FRESH)
    assert not verdict
    assert verdict.mistake == wrong.slug, verdict


@pytest.mark.long
@pytest.mark.precision
@pytest.mark.parametrize(("check", "right"), list(bank("right")))
def test_a_right_answer_written_differently_is_accepted(check, right):
    verdict = check(right[1], FRESH)
    assert verdict, verdict
    assert verdict.mistake is None
    assert repr(verdict) == "✓ right"


@exact
@each
def test_the_solution_has_the_shapes_of_its_signature(check):
    """Called as it is: with every shape checked, the guard is too slow."""
    for case in check.draw_cases(FIRST):
        check.solution(*map(copy_input, case.inputs))


@pytest.mark.long
@pytest.mark.precision
@each
def test_the_solution_is_right_on_many_draws(check):
    trials = check.run_attempt(check.solution, (FIRST, 0, 1, 2))
    verdict = check.judge(trials, own=False)
    assert verdict, verdict


@exact
@pytest.mark.parametrize(("chapter", "name", "check"), list(checks()))
def test_each_bank_is_large_enough(chapter, name, check):
    wrong = importlib.import_module(f"wrong_answers.{chapter}").ANSWERS[name]
    right = importlib.import_module(f"right_answers.{chapter}").ANSWERS[name]
    assert len(wrong) >= 10
    assert len(right) >= 5
    assert len({answer.why for answer in wrong}) == len(wrong)
    assert all(answer.still for answer in wrong)
    slugs = [mistake.slug for mistake in check.mistakes]
    assert len(set(slugs)) == len(slugs)


@pytest.mark.long
@pytest.mark.precision
@each
def test_no_two_declared_mistakes_give_the_same_outcomes(check):
    """Else the name would depend on the order in which they are listed."""
    for mistake in check.mistakes:
        done = tuple(list_outcomes(check.draw, mistake.answer, FIRST))
        trials = (Trial(FIRST, (done,)),)
        same = [m.slug for m in check.mistakes if check._equals_mistake(m, trials)]
        assert same == [mistake.slug]


@pytest.mark.long
@pytest.mark.precision
@each
def test_an_unsolved_stub_is_not_attempted(check):
    def stub(*inputs):
        raise NotImplementedError("write it here")

    verdict = check(stub, FRESH)
    assert repr(verdict) == "… not attempted yet"
    assert not verdict
    assert verdict.mistake is None


@exact
@each
def test_an_exercise_declares_stars_minutes_and_allowed_calls(check):
    assert 1 <= check.stars <= 3
    assert 1 <= check.minutes <= 60
    assert check.allowed.endswith(".")
    assert repr(check).startswith("★" * check.stars)
    known = *check.mistakes, *check.remarks
    assert all(not m.because.endswith((".", "?")) for m in known)


@exact
@pytest.mark.parametrize(("chapter", "name", "check"), list(checks()))
def test_the_section_to_reread_exists(chapter, name, check):
    page = CHAPTERS[find_chapter(f"attnbook.exercises.{chapter}")]
    headings = [x.title for x in read_sections(page.read_text("utf8"))]
    assert check.section in headings


@pytest.mark.long
@pytest.mark.precision
@each
def test_global_state_is_restored(check):
    def meddles(*inputs):
        torch.manual_seed(1)
        random.seed(1)
        np.random.seed(1)
        torch.set_default_dtype(torch.float64)
        torch.set_grad_enabled(False)
        return check.solution(*inputs)

    states = torch.get_rng_state(), random.getstate(), np.random.get_state()
    check(meddles, FRESH)
    assert torch.equal(states[0], torch.get_rng_state())
    assert states[1] == random.getstate()
    assert (states[2][1] == np.random.get_state()[1]).all()
    assert torch.get_default_dtype() == torch.float32
    assert torch.is_grad_enabled()


@pytest.mark.long
@pytest.mark.precision
@each
def test_checks_work_where_the_caller_disabled_gradients(check):
    for switched_off in (torch.no_grad, torch.inference_mode):
        with switched_off():
            trials = check.run_attempt(check.solution, (FIRST,))
            assert check.judge(trials, own=False)


@pytest.mark.long
@pytest.mark.precision
@each
def test_cases_come_from_their_seed_alone(check):
    def outcomes(seed):
        return [run(check.solution, case) for case in check.draw_cases(seed)]

    def same(one, other):
        return all(map(is_same_outcome, one, other))

    torch.manual_seed(3)
    first = outcomes(8)
    torch.manual_seed(4)
    draw_cases.cache_clear()
    assert same(first, outcomes(8))
    assert not same(first, outcomes(9))


@exact
@each
def test_the_inputs_of_cases_can_be_pickled(check):
    for seed in (FIRST, FRESH):
        inputs = [case.inputs for case in check.draw_cases(seed)]
        assert len(pickle.loads(pickle.dumps(inputs))) == len(inputs)


@pytest.mark.long
@pytest.mark.precision
@each
def test_the_verdict_needs_data_only(check):
    """Trials travel between processes; the judge never meets the attempt."""
    run_on = partial(check.run_attempt, seeds=(FRESH,))
    trials = pickle.loads(pickle.dumps(run_on(check.solution)))
    assert check.judge(trials, own=False)
    wrong = check.mistakes[0]
    trials = pickle.loads(pickle.dumps(run_on(wrong.answer)))
    assert check.judge(trials).mistake == wrong.slug


def test_what_an_edit_replaces_must_stand_once_in_the_solution():
    flops = cost.check_flops.solution
    halved = edit_solution(flops, "2 * B * H * T * S * D → B * H * T * S * D")
    assert halved(1, 1, 1, 3, 5, 7, 0)[0] * 2 == flops(1, 1, 1, 3, 5, 7, 0)[0]
    for old, count in ("softmax", 0), ("scores", 4):
        with pytest.raises(ValueError, match=f"'{old}' occurs {count} times"):
            edit_solution(flops, f"{old} → 1")


def test_a_mistake_can_say_what_it_replaces_in_the_solution():
    given = cost.check_flops
    edits = "2 * B * H * T * S * E → 0", ("back, → 0,", "back + → 0 +")
    one, two = (Mistake("edit", "an edit", "it is one", x) for x in edits)
    check = replace(given, mistakes=(one, two, *given.mistakes[:1]))
    assert check.mistakes[0].answer(1, 1, 1, 3, 5, 7, 2)[0] == 2 * 3 * 5 * 7
    assert check.mistakes[1].answer(1, 1, 1, 3, 5, 7, 0)[1:] == [
        0,
        2 * 3 * 5 * 7,
    ]
    assert check.mistakes[2] == given.mistakes[0]
    with pytest.raises(ValueError, match="'softmax' occurs 0 times"):
        replace(given, remarks=(replace(one, answer="softmax → 1"),))


# The engine itself, on an exercise of three lines.


def message(answer, fresh=1):
    return repr(double(answer, fresh))


def test_an_object_that_is_not_a_function_is_refused():
    assert message(None) == (
        "✗ The check got an object of type NoneType; it needs the function itself."
    )
    assert double(torch.zeros(2)).mistake == "not-a-function"


@pytest.mark.parametrize(
    ("answer", "slug", "words"),
    [
        (lambda x, n: None, "none", "returns None"),
        (lambda x, n: 3.0, "type", "returns a number; expected: a tensor"),
        (lambda x, n: True, "type", "returns a boolean"),
        (lambda x, n: (2 * x, x), "type", "returns 2 tensors"),
        (lambda x, n: (2 * x,), "type", "1 tensor in a tuple"),
        (lambda x, n: [2, 2], "type", "a list of integers; expected: a tensor"),
        (lambda x, n: (2 * x).numpy(force=True), "type", "type ndarray"),
        (lambda x, n: [2 * x, "y"], "type", "a list of Tensor, str"),
        (lambda x, n: 2 * x[:1], "shape", "shape (1,); expected: (2,)"),
        (lambda x, n: 2 * x.double(), "dtype", "float64; expected: float32"),
        (lambda x, n: 2 * x + 0j, "dtype", "complex64"),
        (lambda x, n: x / 0, "nan", "`y[0]` is NaN"),
        (lambda x, n: x.add_(x), "changed-input", "its input `x` is different"),
        (lambda x, n: x.zero_(), "changed-input", "its input `x` is different"),
        (lambda x, n: 2 * x + n, "numbers", "`y[0]` is 1; expected: 0"),
        (lambda x, n: 2 * x.detach(), "detached", "no gradient reaches `x`"),
        (lambda x, n: x + x.detach(), "gradient", "the gradient of `x[0]`"),
        (lambda x: x, "error", "TypeError"),
        (lambda x, n: 1 / 0, "error", "ZeroDivisionError: division by zero"),
        (lambda x, n: sys.exit("bye"), "error", "SystemExit: bye"),
        (lambda x, n: next(iter(())), "error", "StopIteration"),
        (lambda x, n: torch.ones(2, 7) @ x, "error", "RuntimeError"),
        (lambda x, n: x.tanh(out=x.long()), "error", "Error"),
        (lambda x, n: x + 0, "once", "Most likely, it is there once. Reread"),
        (lambda x, n: 2 * x * torch.rand(()), "random", "random numbers"),
        (lambda x, n: 2 * x * random.random(), "random", "random numbers"),
        (lambda x, n: 2 * x * np.random.rand(), "random", "random numbers"),
    ],
)
def test_a_bad_answer_gets_a_one_line_verdict(answer, slug, words):
    verdict = double(answer, 1)
    assert verdict.mistake == slug, verdict
    assert words in repr(verdict)
    assert "\n" not in repr(verdict)
    assert len(repr(verdict)) < 400


def test_an_error_in_the_backward_pass_is_a_verdict():
    class Broken(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, up):
            raise ArithmeticError("lost")

    verdict = double(lambda x, n: Broken.apply(x), 1)
    assert verdict.mistake == "error"
    assert "ArithmeticError: lost" in repr(verdict)


def test_a_keyboard_interrupt_is_raised():
    def interrupted(x, n):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        double(interrupted)


def test_a_not_implemented_error_of_torch_is_an_error():
    def unsupported(x, n):
        raise NotImplementedError("\"tanh\" not implemented for 'Int'")

    assert double(unsupported).mistake == "error"


@pytest.mark.parametrize(
    "torchs",
    [
        lambda x: torch.nn.Module()(x),
        lambda x: torch.sparse_coo_tensor([[0]], [1.0], (2,)).tanh_().cos(),
    ],
)
def test_what_torch_does_not_implement_is_not_a_stub(torchs):
    with pytest.raises(NotImplementedError):
        torchs(torch.zeros(2))
    assert double(lambda x, n: torchs(x)).mistake == "error"


def test_a_stub_in_a_helper_is_not_attempted():
    def helper(x):
        raise NotImplementedError

    assert repr(double(lambda x, n: helper(x))) == "… not attempted yet"


def test_a_branch_that_is_not_written_is_a_refusal():
    def half(x, n):
        if n == 2:
            raise NotImplementedError
        return 2 * x

    verdict = double(half, 1)
    assert verdict.mistake == "unfinished"
    assert "Tried on x: `x` (3,), `n` = 2." in repr(verdict)


def test_state_between_calls_is_caught_even_when_it_raises():
    calls = []

    def only_once(x, n):
        calls.append(n)
        if len(calls) > 2:
            raise RuntimeError("cache is full")
        return 2 * x

    assert double(only_once).mistake == "state"


def test_results_hard_coded_for_the_first_inputs_are_refused():
    known = [case.inputs[0] for case in double.draw_cases(FIRST)]

    def by_heart(x, n):
        hit = any(x.shape == k.shape and bool((x == k).all()) for k in known)
        return 2 * x if hit else 3 * x

    assert double(by_heart).mistake == "hard-coded"


def test_an_answer_that_fails_in_some_new_cases_is_not_said_to_know_results():
    """It is right on the first inputs, and a formula explains that."""

    def draw(rng):
        x = torch.randn(3, generator=rng)
        limit = x.abs().max() + 1
        seen = rng.initial_seed() == FIRST
        return (
            Case("on x", (x, 2)),
            Case("on large x", ((limit if seen else 100) * torch.ones(3), 2)),
        )

    asked = replace(double, draw=draw, mistakes=())
    verdict = asked(lambda x, n: (2 * x).clamp(-50, 50), 1)
    assert verdict.mistake == "numbers"
    assert "on large x" in repr(verdict)


def draw_beyond(rng):
    x = torch.randn(3, generator=rng)
    return (
        Case("on x", (x, 2)),
        Case("on large x", (1e5 * x, 2), asked=False),
        Case("in double precision", (x.double(), 2)),
    )


beyond = replace(
    double,
    draw=draw_beyond,
    mistakes=(),
    remarks=(
        Mistake(
            "clipped",
            "clipped",
            "large numbers are clipped",
            lambda x, n: (2 * x).clamp(-50, 50),
        ),
    ),
)


def test_what_lies_beyond_an_exercise_is_a_remark():
    verdict = beyond(lambda x, n: (2 * x).clamp(-50, 50), 1)
    assert verdict
    assert verdict.mistake is None
    assert verdict.remarks == ("large numbers are clipped",)
    assert repr(verdict) == ("✓ right. One more thing: large numbers are clipped.")


def test_a_remark_that_has_no_name_says_what_happened():
    verdict = beyond(lambda x, n: (2 * x).clamp(-40, 40), 1)
    assert verdict
    assert len(verdict.remarks) == 1
    assert verdict.remarks[0].startswith("on large x, the returned `y[0]` is")


def test_what_an_exercise_asks_stays_wrong():
    assert not beyond(lambda x, n: 3 * x, 1)
    assert not beyond(lambda x, n: (2 * x).clamp(-0.1, 0.1), 1)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            lambda x, n: (2 * (x.float() - 0.3) + 0.6).to(x.dtype),
            "in single precision",
        ),
        (lambda x, n: 2 * x.float(), "is float32; expected: float64"),
    ],
)
def test_single_precision_in_double_precision_is_a_remark(answer, words):
    verdict = beyond(answer, 1)
    assert verdict
    assert words in verdict.remarks[0]


def test_a_remark_ends_with_the_most_likely_cause():
    verdict = beyond(lambda x, n: (2 * (x.float() - 0.3) + 0.6).to(x.dtype), 1)
    likely = "Most likely, an intermediate result is in single precision."
    assert repr(verdict).endswith(f"). {likely}")


def test_other_numbers_in_double_precision_stay_wrong():
    wrong = beyond(lambda x, n: (2 + 1e-5 * (x.dtype == torch.float64)) * x, 1)
    assert wrong.mistake == "numbers"


@exact
@each
def test_hints_lead_from_a_question_to_a_line_of_the_solution(check):
    hints = [repr(check.hint(step)) for step in (1, 2, 3)]
    assert repr(check.hint()) == hints[0]
    assert hints[0].endswith("explains what you need.") and "?" in hints[0]
    assert check.section in hints[0]
    functions = check.solution, *check.helpers
    source = "\n".join(map(inspect.getsource, functions))
    line = hints[2].partition(" of the solution is")[2]
    assert line.strip()
    assert "".join(line.split()) in "".join(source.split())
    with pytest.raises(ValueError, match="no hint 4"):
        check.hint(4)


@exact
@each
def test_hints_name_no_check_of_inputs_and_no_function_of_the_solution(check):
    parts = check.hint(2).text.partition(" A common mistake: ")[0]
    assert "`ValueError`" not in parts and "`require_" not in parts
    for helper in check.helpers:
        assert f"`{helper.__name__}`" not in parts
    line = check.hint(3).text.partition("\n\n")[2].strip()
    assert not line.startswith(("raise ", "require_"))


@exact
@each
def test_the_second_hint_names_the_mistake_of_an_attempt(check):
    known = check.hint(2).text.partition(" A common mistake: ")[2]
    assert known and not known.startswith(("it ", "its "))
    for mistake in check.mistakes:
        if decides(check) and mistake.slug.startswith("always-"):
            assert mistake.because.partition(" ")[2] not in known


def average(x, scale):
    require_equal_counts(x, x)
    try:
        fits = float(scale) > 0
    except TypeError:
        fits = False
    if not fits:
        message = f"no scale: {scale!r}"
        raise ValueError(message)

    def shrink(value):
        return value / abs(scale)

    return sum(shrink(value) for value in x)


def test_a_hint_leaves_out_what_only_checks_inputs():
    assert [line for _, line in list_statements(average)] == [
        "return value / abs(scale)",
        "return sum(shrink(value) for value in x)",
    ]
    assert list(list_called(average)) == ["abs", "sum"]


def test_a_helper_is_hinted_at_by_what_it_calls():
    def total(x, scale):
        return average(x, scale)

    assert list(list_called(total, average)) == ["abs", "sum"]
    asked = replace(double, solution=total, helpers=(average,), mistakes=())
    assert "3 statements and uses `abs`, `sum`" in asked.hint(2).text
    assert "return value / abs(scale)" in asked.hint(3).text


def test_the_third_hint_shows_the_line_that_is_declared():
    line = "fits = float(scale) > 0"
    asked = replace(double, solution=average, mistakes=(), key_line=line)
    words = f"one line of the solution is\n\n    {line}"
    assert asked.hint(3).text == words
    asked = replace(asked, key_line="fits = (\n    True\n)")
    assert asked.hint(3).text.startswith("one statement of the solution is\n")


def test_shapes_in_a_hint_are_one_list():
    assert write_shapes([torch.ones(())]) == ", a tensor with a single number"
    assert write_shapes([torch.ones(2, 3)]) == " of shape (2, 3)"
    three = [torch.ones(n, 1) for n in (2, 3, 4)]
    assert write_shapes(three) == " of shapes (2, 1), (3, 1) and (4, 1)"


def test_an_exercise_that_tests_a_function_asks_for_inputs():
    assert "Which inputs would you try" in check_no_leak.hint(1).text
    assert "on paper" not in check_no_leak.hint(1).text
    assert "on paper" in check_attend.hint(1).text


@pytest.mark.parametrize("style", COUNTS.values(), ids=COUNTS)
def test_counts_may_be_held_in_any_ordinary_way(style):
    asked = replace(double, solution=lambda x, n: [n, 2 * n], mistakes=())
    assert asked(style(asked.solution), 1)
    wrong = asked(style(lambda x, n: [n, 2 * n + 1]), 1)
    assert wrong.mistake == "numbers"
    assert asked(style(lambda x, n: [n]), 1).mistake == "length"
    assert asked(lambda x, n: [n, 2.5 * n], 1).mistake == "numbers"
    assert asked(lambda x, n: [True, n], 1).mistake == "type"
    assert asked(lambda x, n: torch.ones(2, 2), 1).mistake == "type"
    assert asked(lambda x, n: n, 1).mistake == "type"


@pytest.mark.parametrize("style", NUMBERS.values(), ids=NUMBERS)
def test_a_number_may_be_held_in_any_ordinary_way(style):
    asked = replace(double, solution=lambda x, n: n / 4, mistakes=())
    assert asked(style(asked.solution), 1)
    assert asked(style(lambda x, n: n / 3), 1).mistake == "numbers"
    for other in ([0.5], True, torch.tensor(True), torch.ones(2)):
        assert asked(lambda x, n, y=other: y, 1).mistake == "type"


STYLES = {
    "a list of integers": COUNTS,
    "a number": NUMBERS,
    "a tensor": PRECISIONS,
    "tensors": PRECISIONS,
}


@pytest.mark.long
@pytest.mark.precision
@each
def test_styles_found_by_declared_type_match_the_result(check):
    form = run(check.solution, check.draw_cases(FIRST)[0]).form
    known = STYLES.get(form, STYLES.get(form.partition(" ")[2], {}))
    assert find_styles(check) == known


def ordinary():
    """Yield every exercise with each ordinary way to write its answer."""
    for entry in list_entries():
        for words, answer in list_ordinary(entry):
            name = f"{entry.module}-{entry.name}-{words}"
            yield pytest.param(entry.exercise, answer, id=name)


@pytest.mark.long
@pytest.mark.precision
@pytest.mark.parametrize(("check", "answer"), list(ordinary()))
def test_an_ordinary_way_to_write_the_answer_is_right(check, answer):
    verdict = check(answer, FRESH, own=False)
    assert verdict, verdict


@pytest.mark.parametrize(
    "attend",
    [
        lambda x: torch.nn.functional.scaled_dot_product_attention(x, x, x),
        lambda x: torch.ops.aten.scaled_dot_product_attention(x, x, x),
        lambda x: torch.nn.MultiheadAttention(1, 1)(x, x, x)[0],
        lambda x: torch.nn.MultiheadAttention(1, 1).eval()(x, x, x)[0],
    ],
)
def test_a_ready_made_attention_is_named(attend):
    verdict = double(lambda x, n: (attend(x[:, None]), 2 * x)[1], 1)
    assert verdict.mistake == "ready-made"
    assert "attention" in repr(verdict)


@pytest.mark.parametrize(
    ("ours", "right", "allowed", "words"),
    [
        (0.53360105, 0.53360102, 1e-9, "a number smaller by 3e-08 (the tol"),
        (-0.5, -0.50001, 1e-6, "a number smaller by 1e-05 (the tol"),
        (0.5, 0.25, 1e-6, "0.5; expected: 0.25"),
        (1.0, 0.0, 1e-6, "1; expected: 0"),
        (7, 8, 0.0, "7; expected: 8"),
        (123456, 123457, 0.0, "123,456; expected: a number larger"),
        (42044, 2073404, 0.0, "42,044; expected: 2,073,404"),
        (1234, 2345, 0.0, "1234; expected: 2345"),
        (True, False, 0.0, "True; expected: False"),
        (float("inf"), 1.0, 1e-6, "inf; expected: 1"),
        (0.0, -float("inf"), 1e-6, "0; expected: -inf"),
    ],
)
def test_numbers_that_look_alike_are_shown_by_their_difference(
    ours, right, allowed, words
):
    assert words in write_pair(ours, right, allowed)


def test_the_entry_that_is_shown_differs_clearly():
    wrong = torch.tensor([[False, True], [True, True]])
    for share, where in (
        ([[0.5, 20.0], [30.0, 2.0]], (0, 1)),
        ([[0.5, 2.0], [30.0, 2.0]], (1, 0)),
        ([[0.5, 2.0], [3.0, torch.inf]], (1, 1)),
    ):
        assert find_clear(wrong, torch.tensor(share)) == where
    assert find_clear(torch.tensor(True), torch.tensor(2.0)) == ()


def test_the_case_that_is_shown_differs_clearly():
    """In the first case, the difference looks like rounding."""

    def draw(rng):
        x = 1 + torch.rand(3, generator=rng)
        return Case("on x", (x, 2)), Case("on large x", (100 * x, 2))

    def answer(x, n):
        return 2 * x * (1 + (1e-5 if x.max() < 100 else 1e-2))

    asked = replace(double, draw=draw, mistakes=())
    assert "Tried on large x: " in repr(asked(answer, 1))
    assert "Tried on x: " in repr(asked(lambda x, n: 3 * x, 1))
    rounded = asked(lambda x, n: 2 * x * (1 + 1e-5), 1)
    assert "Tried on x: " in repr(rounded)


@pytest.mark.parametrize(
    ("ours", "right", "words"),
    [
        ((5, 3), (3, 5), "two axes are swapped"),
        ((5, 2, 3), (2, 3, 5), "the axes are in the wrong order"),
        ((3,), (3, 1), "an axis of size 1 is missing"),
        ((1, 3), (3,), "there is an extra axis of size 1"),
        ((2, 4), (2, 3, 4), "an axis of size 3 is missing"),
        ((2, 3, 4), (2, 4), "there is an extra axis of size 3"),
        ((2, 3), (2, 4), ""),
        ((5,), (2, 3), ""),
    ],
)
def test_another_shape_is_explained(ours, right, words):
    assert explain_shape(ours, right) == words


def test_a_case_names_its_inputs_and_repeats_no_text():
    case = Case("with the change “negate”", ("negate", "after", 2084610, 3))
    names = "change", "kind", "memory", "n"
    assert describe_case(case, names) == (
        "with the change “negate”: `kind` = 'after', `memory` = 2,084,610, `n` = 3"
    )


def test_a_refusal_says_what_was_done_to_compare_numbers():
    asked = replace(double, compared="After a softmax", mistakes=())
    words = repr(asked(lambda x, n: x + 0, 1))
    assert ". After a softmax, the returned `y[0]` is " in words
    words = repr(asked(lambda x, n: x[:1], 1))
    assert ". The returned `y` has the shape (1,); expected: (2,)" in words


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda x, n: x / 0, "Most likely, a number overflows"),
        (lambda x, n: x + x.detach(), "Most likely, a part of the computation"),
        (lambda x, n: 2 * x.double(), "Most likely, a conversion"),
    ],
)
def test_what_a_result_usually_means_is_said_last(answer, words):
    assert words in message(answer)


def test_a_refusal_has_its_parts_in_order():
    words = message(lambda x, n: x + 0)
    places = [
        words.index(part)
        for part in ("Tried on x: `x` (3,), `n` = 2", "`y[0]` is", "expected")
    ]
    rest = "Most likely, it is", "Reread the section “Twice”"
    places += map(words.index, rest)
    assert places == sorted(places)


@pytest.mark.long
def test_importing_the_exercises_leaves_the_seed_alone():
    code = (
        "import torch; torch.manual_seed(0); before = torch.get_rng_state()\n"
        "import attnbook.exercises.bahdanau, attnbook.exercises.encoder_decoder"
        ", attnbook.exercises.before_you_start\n"
        "assert torch.equal(before, torch.get_rng_state())"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@exact
@each
def test_the_solution_has_one_parameter_per_input(check):
    names = list(inspect.signature(check.solution).parameters)
    assert len(names) == len(check.draw_cases(0)[0].inputs)


@pytest.mark.parametrize(
    "truth",
    [True, np.bool_(True), torch.tensor(True), np.array(True)],
    ids=["Python", "NumPy", "torch", "an array"],
)
def test_a_boolean_of_python_numpy_or_torch_is_accepted(truth):
    asked = replace(double, solution=lambda x, n: True, mistakes=())
    assert asked(lambda x, n: truth, 1)
    assert asked(lambda x, n: not truth, 1).mistake == "numbers"
    assert asked(lambda x, n: torch.tensor([True]), 1).mistake == "type"


@pytest.mark.parametrize(
    ("meddle", "seen"),
    [
        (lambda model: model, False),
        (lambda model: model.train(), False),
        (lambda model: model.eval(), True),
        (lambda model: model[0].eval(), True),
        (lambda model: model[0].weight.data.zero_(), True),
        (lambda model: model.register_buffer("more", torch.ones(1)), True),
    ],
)
def test_a_changed_model_is_refused(meddle, seen):
    model = torch.nn.Sequential(torch.nn.Linear(2, 3))
    outcome = run(lambda model: (meddle(model), 1.0)[1], Case("", (model,)))
    assert bool(outcome.changed) == seen
    assert model.training and bool(model[0].weight.any())
    asked = replace(
        double,
        solution=lambda model: True,
        draw=lambda rng: (Case("on a model", (model,)),),
        mistakes=(),
    )
    verdict = asked(lambda model: (meddle(model), True)[1], 1)
    assert verdict.mistake == ("changed-model" if seen else None)


class Scaled(torch.nn.Module):
    """Returns its input times a number."""

    def __init__(self, number):
        super().__init__()
        self.number = torch.nn.Parameter(torch.tensor(number))

    def forward(self, x):
        return self.number * x


def double_in_place(model):
    model.register_forward_hook(lambda module, given, output: 2 * output)
    return model


@pytest.mark.parametrize(
    ("answer", "slug", "words"),
    [
        (lambda model: Scaled(6.0), None, ""),
        (lambda model: torch.nn.Sequential(model, Scaled(2.0)), None, ""),
        (lambda model: Scaled(5.0), "numbers", "`y[0, 0]` is 5; expected: 6"),
        (lambda model: double_in_place(model), "numbers", "`kept[0, 0]` is 6"),
        (lambda model: 6.0, "type", "a number; expected: a model"),
        (lambda model: None, "none", "returns None; expected: a model"),
        (lambda model: torch.nn.LSTM(2, 3), "type", "a model that returns a"),
        (
            lambda model: torch.nn.Linear(7, 1),
            "error",
            "the returned model, called with a tensor (1, 2), raises Runtime",
        ),
        (
            lambda model: (model.number.data.mul_(2), Scaled(6.0))[1],
            "changed-model",
            "",
        ),
    ],
)
def test_a_returned_model_is_compared_by_its_outputs(answer, slug, words):
    """And so is the given model, which must be as it was."""
    asked = replace(
        double,
        solution=lambda model: Scaled(2 * model.number.item()),
        returns=("y", "kept"),
        draw=lambda rng: (
            Case("on a model", (Scaled(3.0),), probe=(torch.ones(1, 2),)),
        ),
        mistakes=(),
    )
    verdict = asked(answer, 1)
    assert verdict.mistake == slug, verdict
    assert words in repr(verdict)


def test_outcomes_may_differ_in_what_does_not_count():
    """Here the mean: as a softmax does, the check takes it away."""

    def centred(outcome):
        output = tuple(x - x.mean() for x in outcome.output)
        return replace(outcome, output=output)

    up_to_a_constant = replace(double, compare_by=centred)
    assert up_to_a_constant(lambda x, n: 2 * x + n, 1)
    assert not double(lambda x, n: 2 * x + n, 1)
    verdict = up_to_a_constant(lambda x, n: x + 3, 1)
    assert verdict.mistake == "once"  # so do the mistakes known by name
    assert up_to_a_constant(lambda x, n: 3 * x, 1).mistake == "numbers"


@pytest.mark.refusal
@pytest.mark.parametrize(
    "parts",
    [
        ("once", "it returns x", lambda x: x),  # no title
        ("once", "", "it returns x", lambda x: x),
        ("once", "x once", "", lambda x: x),
        ("once", "x once", "it returns x"),
    ],
)
def test_a_mistake_without_title_sentence_or_answer_is_refused(parts):
    with pytest.raises(ValueError, match="'once' needs a slug, a title"):
        Mistake(*parts)
