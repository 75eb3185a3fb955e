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
    """Write the softmax of a row."""
    raise NotImplementedError


@triton.jit
def empty(scores, weights, stride, length, BLOCK: tl.constexpr):
    """Write the softmax of a row."""


@triton.jit
def call_softmax(scores, weights, stride, length, BLOCK: tl.constexpr):
    columns = tl.program_id(0) * stride + tl.arange(0, BLOCK)
    x = tl.load(scores + columns, tl.arange(0, BLOCK) < length, float("-inf"))
    tl.store(weights + columns, tl.softmax(x), tl.arange(0, BLOCK) < length)


@triton.jit
def call_the_library(scores, weights, stride, length, BLOCK: tl.constexpr):
    process_keys(scores, weights)


@triton.jit
def write_the_input(scores, weights, stride, length, BLOCK: tl.constexpr):
    tl.store(scores, 1.0)


@triton.jit
def read_far_away(scores, weights, stride, length, BLOCK: tl.constexpr):
    tl.load(scores + 10**12)


@triton.jit
def use_an_unknown_name(scores, weights, stride, length, BLOCK: tl.constexpr):
    tl.store(weights, x)


@pytest.mark.parametrize("kernel", [stub, empty])
def test_a_stub_is_not_attempted(kernel):
    assert repr(check(kernel)) == "… not attempted yet"


@pytest.mark.parametrize(
    ("kernel", "slug", "words"),
    [
        (call_softmax, "ready-made", "`softmax`"),
        (call_the_library, "ready-made", "`process_keys`"),
        (flash_attention.softmax_kernel, "ready-made", "`softmax_kernel`"),
        (write_the_input, "error", "StoreError: tl.store writes 1 of 1 numbers"),
        (read_far_away, "error", "LoadError: tl.load reads 1 of 1 numbers outside"),
        (use_an_unknown_name, "error", "NameError: name 'x' is not defined"),
    ],
)
def test_what_a_kernel_may_not_do(kernel, slug, words):
    verdict = check(kernel)
    assert verdict.mistake == slug and words in repr(verdict), verdict


def test_a_check_leaves_triton_and_the_notebook_as_they_were():
    names, language = set(globals()), dict(vars(tl))
    assert not check(call_softmax)
    assert names == set(globals()) and language == vars(tl)


PROGRAM = """
from attnbook.exercises.flash_attention import check_softmax_kernel as check
assert check(check.solution, own=False)
for mistake in check.mistakes:
    assert check(mistake.answers[0], own=False).mistake == mistake.slug
"""


def test_verdicts_are_those_of_triton_imported_to_interpret():
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    subprocess.run([sys.executable, "-c", PROGRAM], env=environment, check=True)


WITHOUT = """
import sys
sys.modules["triton"] = None
from attnbook.exercises.flash_attention import check_softmax_kernel as check
from attnbook.exercises.kernels import tl, triton

@triton.jit
def my_kernel(scores, weights, stride, length, BLOCK: tl.constexpr):
    row = tl.program_id(0)

verdict = check(my_kernel)
print(verdict)
assert verdict.mark == "…" and verdict.mistake is None
"""


def test_without_triton_one_sentence_says_so():
    done = subprocess.run([sys.executable, "-c", WITHOUT], stdout=-1, text=True)
    assert done.returncode == 0
    assert done.stdout == f"{kernels.NEEDS_TRITON}\n"


def test_an_interpreter_that_fails_makes_no_answer_right(monkeypatch):
    def fail(*given, **more):
        raise OSError("no interpreter")

    monkeypatch.setattr(kernels.interpreter, "InterpretedFunction", fail)
    for kernel in stub, call_softmax:
        verdict = check(kernel, fresh=1234)
        assert verdict.mark == "…" and "OSError: no interpreter" in repr(verdict)
