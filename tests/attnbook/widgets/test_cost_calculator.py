"""The cost calculator: its Python, its JavaScript, held to the library."""

import random

import pytest

from attnbook.profiling.roofline import DEVICES, MODELS, PHASES, Model, calculate
from attnbook.widgets.cost_calculator import (
    CostCalculator,
    describe_device,
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


def test_its_numbers_are_the_librarys():
    widget = CostCalculator("Llama 3 8B", "H100 SXM", "decode", 4096, 3, itemsize=4)
    model, device = MODELS["Llama 3 8B"], DEVICES["H100 SXM"]
    wanted = calculate(model.block, device.machine(4), "decode", 3, 4096, 4)
    assert widget.numbers() == wanted
    half = CostCalculator("Llama 3 8B", "T4", itemsize=2, heads=8, groups=2)
    assert half.machine() == DEVICES["T4"].machine(2)
    assert (half.block().H, half.block().G, half.block().D) == (8, 2, 128)


def test_the_fallback_is_a_table_of_the_numbers():
    data, _ = CostCalculator(
        "GPT-2 (small)", "T4", "train", 4096, itemsize=4
    )._repr_mimebundle_()
    text = data["text/html"]
    fallback = text.split("</script>")[1]
    assert "GPT-2 (small) trains on 4096 positions" in fallback
    assert "<th scope='row'>operations</th><td>156 GFLOP</td>" in fallback
    assert "peak memory" in fallback


@pytest.fixture(scope="module")
def script():
    return Module("cost_calculator")


def test_the_page_computes_what_the_library_does(script):
    for state in states():
        widget = CostCalculator(**state)
        found = script.call("computeCosts", script.call("cleanState", widget.state()))
        wanted = widget.numbers()
        for name, value in wanted.items():
            assert found[name] == pytest.approx(value, rel=1e-6), name
        assert found["ridge"] == pytest.approx(widget.machine().ridge_point, rel=1e-6)
        assert script.call("formatRows", found) == [[*row] for row in widget.rows()]


def test_python_and_javascript_format_numbers_alike(script):
    rng = random.Random(1)
    for _ in range(200):
        x = 10 ** rng.uniform(-11, 22)
        assert script.call("formatDuration", x) == format_duration(x)
        assert script.call("formatNumber", x, "B") == format_number(x, "B")


def test_every_preset_can_be_chosen():
    for name, model in MODELS.items():
        made = CostCalculator(name, n=model.length)
        assert isinstance(model, Model)
        assert made.heads == model.block.H and made.groups == model.block.G
    for name, device in DEVICES.items():
        assert describe_device(name, device)["rates"]["2"] > 1e12
