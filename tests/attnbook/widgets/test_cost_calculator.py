"""The cost calculator: its Python, its JavaScript, held to the library."""

import random
from dataclasses import replace

import pytest

from attnbook.profiling.roofline import DEVICES, MODELS, PHASES, calculate
from attnbook.widgets.cost_calculator import (
    CostCalculator,
    format_duration,
    format_number,
)
from javascript import Module


def states(count=60):
    rng = random.Random(0)
    for _ in range(count):
        model = rng.choice([*MODELS])
        groups = rng.choice([1, 2, 4, 8])
        yield {
            "model": model,
            "device": rng.choice([*DEVICES]),
            "phase": rng.choice(PHASES),
            "n": rng.choice([1, 7, 129, 4096, 2**20, rng.randrange(1, 2**21)]),
            "batch": rng.randrange(1, 600),
            "heads": groups * rng.randrange(1, 17),
            "groups": groups,
            "itemsize": rng.choice([2, 4]),
        }


@pytest.fixture(scope="module")
def script():
    return Module("cost_calculator")


def test_the_page_computes_what_the_library_does(script):
    for state in states():
        widget = CostCalculator(**state)
        heads = {"H": state["heads"], "G": state["groups"]}
        block = replace(MODELS[state["model"]].block, **heads)
        machine = DEVICES[state["device"]].machine(state["itemsize"])
        sizes = state["phase"], state["batch"], state["n"], state["itemsize"]
        wanted = calculate(block, machine, *sizes)
        assert widget.numbers() == wanted
        found = script.call("computeCosts", script.call("cleanState", widget.state()))
        for name, value in wanted.items():
            assert found[name] == pytest.approx(value, rel=1e-6), name
        assert found["ridge"] == pytest.approx(machine.ridge_point, rel=1e-6)
        assert script.call("formatRows", found) == [[*row] for row in widget.rows()]


def test_python_and_javascript_format_numbers_alike(script):
    rng = random.Random(1)
    for _ in range(200):
        x = 10 ** rng.uniform(-11, 22)
        assert script.call("formatDuration", x) == format_duration(x)
        assert script.call("formatNumber", x, "B") == format_number(x, "B")
