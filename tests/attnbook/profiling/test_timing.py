"""The timer: warm-up, rounds in a random order, seconds."""

import time
from functools import partial
from itertools import groupby

import pytest

from attnbook.profiling.timing import measure_seconds, time_calls


def test_a_call_is_timed_in_seconds():
    assert measure_seconds(lambda: time.sleep(0.02)) == pytest.approx(0.02, rel=0.5)


def test_the_first_call_is_not_timed():
    made = []

    def slow_at_first():
        time.sleep(0.2 * (not made))
        made.append(1)

    assert max(time_calls({"call": slow_at_first}, 3)["call"]) < 0.1


def test_every_call_is_timed_in_every_round_in_changing_order():
    order = []

    def call(name):
        time.sleep(0.002)  # so that one call is enough
        order.append(name)

    calls = {name: partial(call, name) for name in "abc"}
    taken = time_calls(calls, rounds=9)
    assert [len(times) for times in taken.values()] == [9, 9, 9]
    rounds = [name for name, _ in groupby(order[3:])]
    assert {*rounds} == {*"abc"}
    assert rounds != rounds[:3] * 9
