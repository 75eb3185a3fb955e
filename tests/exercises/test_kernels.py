"""Kernels as answers: in both modes of Triton, and within their memory."""

import functools
import os
import subprocess
import sys

import numpy as np
import pytest
import triton
import triton.language as tl
from triton import language

from attnbook.exercises import flash_attention, kernels
from attnbook.flash.forward import process_keys

check = flash_attention.check_softmax_kernel
pytestmark = pytest.mark.precision


# Beside a notebook's kernels is IPython's `open`, which wraps the builtin one.
@functools.wraps(open)
def open_file(*given, **more):
    raise AssertionError


@functools.wraps(functools.partial(open_file, "x"))
def open_one_file(*given, **more):
    raise AssertionError


@triton.jit
def take_softmax(scores, weights, stride, length, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(scores + tl.program_id(0) * stride + at, at < length, -float("inf"))
    x = tl.exp(x - tl.max(x, 0))
    out = weights + tl.program_id(0) * stride + at
    tl.store(out, x / tl.sum(x, 0), at < length)


def test_functions_beside_a_kernel_do_no_harm():
    assert repr(check(take_softmax)) == "✓ right"


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
def write_the_input(scores, weights, stride, length, BLOCK: language.constexpr):
    language.store(scores, 1.0)


@triton.jit
def add_far_away(scores, weights, stride, length, BLOCK: tl.constexpr):
    tl.atomic_add(weights + 10**12, 1.0)


@triton.jit
def swap_far_away(scores, weights, stride, length, BLOCK: tl.constexpr):
    tl.atomic_cas(weights + 10**12, 0.0, 1.0)


@triton.jit
def read_far_away(scores, weights, stride, length, BLOCK: tl.constexpr):
    tl.load(scores + 10**12)


@triton.jit
def use_numpy(scores, weights, stride, length, BLOCK: tl.constexpr):
    np.exp(tl.load(scores))


def test_a_stub_is_not_attempted():
    assert repr(check(stub)) == "… not attempted yet"


@pytest.mark.parametrize(
    ("kernel", "slug", "words"),
    [
        (call_softmax, "ready-made", "`softmax`"),
        (call_the_library, "ready-made", "`process_keys`"),
        (write_the_input, "error", "StoreError: the kernel writes 1 of 1 numbers"),
        (add_far_away, "error", "StoreError: the kernel writes 1 of 1 numbers"),
        (swap_far_away, "error", "StoreError: the kernel writes 1 of 1 numbers"),
        (read_far_away, "error", "LoadError: the kernel reads 1 of 1 numbers outside"),
        (use_numpy, "error", "TypeError: a kernel computes with `tl`, not with `np`"),
        (lambda *x: None, "error", "a kernel is a function with `@triton.jit`"),
    ],
)
def test_what_a_kernel_may_not_do(kernel, slug, words):
    kept = kernels.interpreter.InterpretedFunction.rewritten_fn
    names, held, known = set(globals()), dict(vars(tl)), len(kept)
    verdict = check(kernel)
    assert verdict.mistake == slug and words in repr(verdict), verdict
    # As they were; and no kernel stays in memory.
    assert names == set(globals()) and held == vars(tl) and known == len(kept)


def test_a_helper_may_be_local_and_be_named_like_what_is_refused():
    @triton.jit
    def softmax(x):
        exponentials = language.exp(x - language.max(x, 0))
        return exponentials / language.sum(exponentials, 0)

    @triton.jit
    def answer(scores, weights, stride, length, BLOCK: language.constexpr):
        block = (length,), (1,), (0,), (BLOCK,), (0,)
        first = language.program_id(0) * stride
        given = language.make_block_ptr(scores + first, *block)
        x = language.load(given, boundary_check=(0,))
        x = language.where(language.arange(0, BLOCK) < length, x, -np.inf)
        written = language.make_block_ptr(weights + first, *block)
        language.store(written, softmax(x), boundary_check=(0,))

    assert check(answer)


def test_an_interpreter_that_fails_makes_no_answer_right(monkeypatch):
    monkeypatch.setattr(kernels.interpreter, "InterpretedFunction", None)
    verdict = check(call_softmax, fresh=1234)
    assert verdict.mark == "…" and "interpreter fails: TypeError" in repr(verdict)


def test_in_tritons_mode_of_interpreting(tmp_path):
    (tmp_path / "x.py").write_text(
        "from attnbook.exercises.flash_attention import check_softmax_kernel as check\n"
        "assert check(check.solution, own=False)\n"
        "for mistake in check.mistakes:\n"
        "    answer = mistake.answers[0]\n"
        "    assert check(answer, own=False).mistake == mistake.slug\n"
    )
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    subprocess.run([sys.executable, tmp_path / "x.py"], env=environment, check=True)
