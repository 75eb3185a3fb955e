"""Kernels as answers: in both modes of Triton, within their memory, or without it."""

import os
import subprocess
import sys

import pytest
import triton
import triton.language as tl

from attnbook.exercises import flash_attention, kernels
from attnbook.flash.forward import process_keys

check = flash_attention.check_softmax_kernel
pytestmark = pytest.mark.precision


@triton.jit
def stub(scores, weights, stride, length, BLOCK: tl.constexpr):
    raise NotImplementedError


@triton.jit
def call_softmax(scores, weights, stride, length, BLOCK: tl.constexpr):
    tl.store(weights + tl.arange(0, BLOCK), tl.softmax(tl.zeros((BLOCK,), tl.float32)))


@triton.jit
def call_the_library(scores, weights, stride, length, BLOCK: tl.constexpr):
    process_keys(scores, weights)


@triton.jit
def write_the_input(scores, weights, stride, length, BLOCK: tl.constexpr):
    tl.store(scores, 1.0)


@triton.jit
def read_far_away(scores, weights, stride, length, BLOCK: tl.constexpr):
    tl.load(scores + 10**12)


def test_a_stub_is_not_attempted():
    assert repr(check(stub)) == "… not attempted yet"


@pytest.mark.parametrize(
    ("kernel", "slug", "words"),
    [
        (call_softmax, "ready-made", "`softmax`"),
        (call_the_library, "ready-made", "`process_keys`"),
        (write_the_input, "error", "StoreError: tl.store writes 1 of 1 numbers"),
        (read_far_away, "error", "LoadError: tl.load reads 1 of 1 numbers outside"),
    ],
)
def test_what_a_kernel_may_not_do(kernel, slug, words):
    names, language = set(globals()), dict(vars(tl))
    verdict = check(kernel)
    assert verdict.mistake == slug and words in repr(verdict), verdict
    assert names == set(globals()) and language == vars(tl)  # as they were


def test_an_interpreter_that_fails_makes_no_answer_right(monkeypatch):
    monkeypatch.setattr(kernels.interpreter, "InterpretedFunction", None)
    verdict = check(call_softmax, fresh=1234)
    assert verdict.mark == "…" and "interpreter fails: TypeError" in repr(verdict)


PROGRAMS = {
    "in Triton's mode of interpreting": """
assert check(check.solution, own=False)
for mistake in check.mistakes:
    assert check(mistake.answers[0], own=False).mistake == mistake.slug
""",
    "without Triton": """
@triton.jit
def my_kernel(scores, BLOCK: tl.constexpr):
    return scores

assert repr(check(my_kernel)).startswith("… not attempted: Triton, whose")
""",
}


@pytest.mark.parametrize("mode", PROGRAMS)
def test_elsewhere(mode, tmp_path):
    head = 'import sys\nsys.modules["triton"] = None\n' * (mode == "without Triton")
    source = (
        f"{head}from attnbook.exercises.kernels import tl, triton\n"
        "from attnbook.exercises.flash_attention import check_softmax_kernel as check\n"
    )
    (tmp_path / "x.py").write_text(source + PROGRAMS[mode], "utf8")
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    subprocess.run([sys.executable, tmp_path / "x.py"], env=environment, check=True)
