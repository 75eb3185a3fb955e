"""What surrounds a learner's call: time, prints, state, ready-made answers."""

import contextlib
import io
import os
import signal
import sys
import threading
import time

import pytest
import torch

from attnbook.attention import luong, self_attention
from attnbook.attention.scaled_dot_product import attend
from attnbook.exercises import (
    cached_outcomes,
    guard,
    limits,
    runner,
    scaled_dot_product,
)
from attnbook.exercises import luong as luong_checks
from attnbook.exercises import self_attention as self_checks
from attnbook.exercises.limits import Stopped, TooLong, TooMuch
from attnbook.exercises.outcome import Outcome
from doubling import double

pytestmark = pytest.mark.precision
alarms = pytest.mark.skipif(
    not hasattr(signal, "setitimer"), reason="this platform has no alarm"
)


@pytest.fixture
def short(monkeypatch):
    """Limits that a test can wait for.

    An import that the alarm cut short would stay broken; a first check makes
    PyTorch import all that it imports late.
    """
    assert double(lambda x, n: 2 * x, 1)
    for call in runner.run_rounds, runner.run:
        given = *call.__defaults__[:-1], 0.2  # the seconds stand last
        monkeypatch.setattr(call, "__defaults__", given)
    monkeypatch.setattr(limits, "CHARACTERS", 5000)


@alarms
def test_an_infinite_loop_is_stopped_once_and_named(short):
    calls = []

    def endless(x, n):
        calls.append(n)
        while True:
            with contextlib.suppress(Exception):
                x = x + 1

    began = time.monotonic()
    verdict = double(endless, 1)
    assert verdict.mistake == "too-long"
    assert "It was stopped after" in repr(verdict)
    assert len(calls) == 1
    assert time.monotonic() - began < 20


@alarms
def test_a_stop_in_a_later_round_is_named(short):
    calls = []

    def later(x, n):
        calls.append(n)
        while len(calls) > 3:
            pass
        return 2 * x

    assert double(later, 1).mistake == "too-long"


def test_a_stopped_call_is_not_cached(monkeypatch):
    real, calls = cached_outcomes.run, []

    def sleepy(*given, **more):
        calls.append(given)
        if len(calls) == 1:
            return Outcome(stopped="too-long")
        return real(*given, **more)

    monkeypatch.setattr(cached_outcomes, "run", sleepy)
    cached_outcomes.compute_outcome.cache_clear()
    assert double(lambda x, n: x + x, 1)
    assert double(lambda x, n: x + x, 1)
    cached_outcomes.compute_outcome.cache_clear()


@alarms
def test_waiting_is_stopped_later_than_work(short):
    assert double(lambda x, n: (time.sleep(0.25), 2 * x)[1], 1)
    assert double(lambda x, n: time.sleep(1000), 1).mistake == "too-long"


@alarms
def test_the_alarm_is_cleared_and_a_previous_one_restored(short):
    def rung(number, frame):
        raise AssertionError("too early")

    before = signal.signal(signal.SIGALRM, rung)
    try:
        signal.setitimer(signal.ITIMER_REAL, 1000)
        assert double(lambda x, n: 2 * x, 1)
        assert signal.getsignal(signal.SIGALRM) is rung
        assert 900 < signal.setitimer(signal.ITIMER_REAL, 0)[0] <= 1000
    finally:
        signal.signal(signal.SIGALRM, before)


def test_in_another_thread_a_check_works_without_the_alarm():
    message = []
    thread = threading.Thread(
        target=lambda: message.append(double(lambda x, n: x + x, 1))
    )
    thread.start()
    thread.join()
    assert message[0]


def test_endless_printing_is_stopped_after_a_few_lines(short):
    def flood(x, n):
        while True:
            print("water")

    screen = io.StringIO()
    was, sys.stdout = sys.stdout, screen
    try:
        verdict = double(flood, 1)
    finally:
        sys.stdout = was
    assert verdict.mistake == "too-much"
    assert 0 < len(screen.getvalue()) <= limits.SHOWN


def test_prints_are_shown_for_the_first_call_only(capsys):
    def talks(x, n):
        print("x is", tuple(x.shape))
        return 2 * x

    assert double(talks, 1)
    assert capsys.readouterr().out == "x is (2,)\n"


@pytest.mark.parametrize(
    ("raised", "message"),
    [
        (SystemExit(3), "SystemExit: 3"),
        (GeneratorExit(), "GeneratorExit"),
        (BaseException("all of it"), "BaseException: all of it"),
        (MemoryError(), "MemoryError"),
        (RecursionError("too deep"), "RecursionError: too deep"),
    ],
)
def test_every_kind_of_exception_becomes_a_verdict(raised, message):
    def raises(x, n):
        raise raised

    verdict = double(raises, 1)
    assert verdict.mistake == "error"
    assert message in repr(verdict)


def test_an_interrupt_stops_the_check():
    def interrupted(x, n):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        double(interrupted, 1)


def test_except_exception_does_not_catch_a_stop():
    assert not issubclass(Stopped, Exception)
    assert {TooLong.slug, TooMuch.slug} == {"too-long", "too-much"}


def test_settings_and_working_directory_are_restored(tmp_path):
    def meddles(x, n):
        torch.set_default_device("meta")
        torch.use_deterministic_algorithms(True)
        torch.set_float32_matmul_precision("medium")
        torch.autograd.set_detect_anomaly(True)
        torch.set_num_threads(1 + torch.get_num_threads() % 2)
        os.chdir(tmp_path)
        return 2 * x

    here, threads = os.getcwd(), torch.get_num_threads()
    double(meddles, 1)
    assert os.getcwd() == here
    assert torch.get_num_threads() == threads
    assert torch.zeros(1).device.type == "cpu"
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.get_float32_matmul_precision() == "highest"
    assert not torch.is_anomaly_enabled()


def through_a_name_of_ones_own(query, key, W):
    return luong.general_scores(query, key, W)


def with_keywords(x, W_query, W_key, W_value):
    return self_attention.self_attention(
        x=x, W_key=W_key, W_query=W_query, W_value=W_value
    )


def with_extra_steps(query, key, value, mask=None):
    return attend(query, key, value, mask).clone() + 0


@pytest.mark.parametrize(
    ("check", "answer", "name"),
    [
        (
            luong_checks.check_general_scores,
            luong.general_scores,
            "attnbook.attention.luong.general_scores",
        ),
        (
            luong_checks.check_general_scores,
            through_a_name_of_ones_own,
            "attnbook.attention.luong.general_scores",
        ),
        (
            self_checks.check_self_attention,
            with_keywords,
            "attnbook.attention.self_attention.self_attention",
        ),
        (
            scaled_dot_product.check_attend,
            with_extra_steps,
            "attnbook.attention.scaled_dot_product.attend",
        ),
    ],
)
def test_a_function_of_the_library_is_refused_as_an_answer(check, answer, name):
    verdict = check(answer)
    assert verdict.mistake == "ready-made", verdict
    assert name in repr(verdict)
    assert check(answer, own=False)


def test_a_function_of_the_library_on_part_of_the_inputs_is_allowed():
    def built(x, W_query, W_key, W_value):
        return attend(x @ W_query.T, x @ W_key.T, x @ W_value.T)

    assert self_checks.check_self_attention(built)


def test_the_call_recorder_restores_a_profiler():
    def profiler(frame, event, arg):
        return None

    before = sys.getprofile()
    sys.setprofile(profiler)
    try:
        assert double(lambda x, n: 2 * x, 1)
        assert sys.getprofile() is profiler
    finally:
        sys.setprofile(before)


def test_equal_numbers_do_not_count_as_all_inputs():
    assert guard.has_every_input([4, 4, 4], [4, 4, 4])
    assert not guard.has_every_input([4, 4, 4], [4, 4])
    x = torch.zeros(2)
    assert guard.has_every_input([x, 4], [4, None, x])
    assert not guard.has_every_input([x, 4], [4, x.clone()])
    assert not guard.has_every_input([], [])
