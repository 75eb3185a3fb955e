"""The cost calculator: its Python, its JavaScript, held to the library."""

import random

import pytest

from attnbook.profiling.calculator import PHASES, calculate
from attnbook.profiling.presets import DEVICES, MODELS, Model
from attnbook.widgets.cost_calculator import (
    CostCalculator,
    describe_device,
    describe_model,
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
    widget = CostCalculator("Llama 3 8B", "H100 SXM", "decode", 4096, 3)
    model, device = MODELS["Llama 3 8B"], DEVICES["H100 SXM"]
    wanted = calculate(model.block, device.machine(4), "decode", 3, 4096, 4)
    assert widget.numbers() == wanted
    half = CostCalculator("Llama 3 8B", "T4", itemsize=2, heads=8, groups=2)
    assert half.machine() == DEVICES["T4"].machine(2)
    assert (half.block().H, half.block().G, half.block().D) == (8, 2, 128)


def test_the_initial_state_is_the_chapters_example():
    found = CostCalculator().numbers()
    scores = 12 * 4096**2 * 4
    assert 3 * scores < found["memory"] < 3.1 * scores
    assert found["memory_fused"] < found["memory"] / 40


def test_the_fallback_is_a_table_of_the_numbers():
    data, _ = CostCalculator()._repr_mimebundle_()
    text = data["text/html"]
    fallback = text.split("</script>")[1]
    assert "GPT-2 (small) trains on 4096 positions" in fallback
    assert "<th scope='row'>operations</th><td>156 GFLOP</td>" in fallback
    assert "peak memory" in fallback


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"model": "GPT-9"}, "'GPT-9' is none of"),
        ({"device": "abacus"}, "'abacus' is none of"),
        ({"phase": "sleep"}, "phase is 'sleep', none of"),
        ({"itemsize": 8}, r"itemsize is 8, none of \(4, 2\)"),
        ({"n": 0}, "n is 0, outside 1 to 2097152"),
        ({"batch": 5000}, "batch is 5000, outside 1 to 4096"),
        ({"heads": 6, "groups": 4}, "6 heads do not divide into 4 groups"),
    ],
)
def test_invalid_sizes_and_names_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        CostCalculator(**given)


@pytest.mark.parametrize(
    ("x", "expected"),
    [(0, "0 B"), (1, "1.00 B"), (999.4, "999 B"), (999.6, "1.00 kB"),
     (12345, "12.3 kB"), (8.05e8, "805 MB"), (1e21, "1000 EB")],
)  # fmt: skip
def test_numbers_are_formatted_with_three_digits(x, expected):
    assert format_number(x, "B") == expected


@pytest.mark.parametrize(
    ("x", "expected"),
    [(2.5, "2.50 s"), (0.0125, "12.5 ms"), (3e-6, "3.00 µs"),
     (4e-9, "4.00 ns")],
)  # fmt: skip
def test_durations_are_formatted_with_three_digits(x, expected):
    assert format_duration(x) == expected


@pytest.fixture(scope="module")
def script():
    return Module("cost_calculator")


@pytest.mark.javascript
def test_the_page_computes_what_the_library_does(script):
    for state in states():
        widget = CostCalculator(**state)
        found = script.call("computeCosts", script.call("cleanState", widget.state()))
        wanted = widget.numbers()
        for name, value in wanted.items():
            assert found[name] == pytest.approx(value, rel=1e-6), name
        assert found["ridge"] == pytest.approx(widget.machine().ridge_point, rel=1e-6)
        assert script.call("formatRows", found) == [[*row] for row in widget.rows()]


@pytest.mark.javascript
@pytest.mark.parametrize("phase", PHASES)
def test_the_formula_alone_is_the_librarys(script, phase):
    machine = {"flops": 8.1e12, "bandwidth": 3.2e11}
    for name, model in MODELS.items():
        block = describe_model(name, model)
        for B, n, itemsize in ((1, 1, 4), (3, 4096, 2), (64, 131072, 2)):
            found = script.call("calculate", block, machine, phase, B, n, itemsize)
            device = DEVICES["T4"].machine(4)
            wanted = calculate(model.block, device, phase, B, n, itemsize)
            assert found == pytest.approx(wanted, rel=1e-6)
        assert script.call("countWeights", block) == model.block.weights


@pytest.mark.javascript
def test_python_and_javascript_format_numbers_alike(script):
    rng = random.Random(1)
    for _ in range(200):
        x = 10 ** rng.uniform(-11, 22)
        assert script.call("formatDuration", x) == format_duration(x)
        assert script.call("formatNumber", x, "B") == format_number(x, "B")


@pytest.mark.javascript
def test_groups_are_divisors_of_the_heads(script):
    assert script.call("listDivisors", 12) == [1, 2, 3, 4, 6, 12]
    assert script.call("listDivisors", 1) == [1]


@pytest.mark.javascript
def test_invalid_states_are_replaced_by_valid_ones(script):
    empty = script.call("cleanState", {})
    assert (empty["models"], empty["devices"], empty["model"]) == ([], [], "")
    odd = {
        "models": [None, 3, {"name": "x", "H": "many", "G": 7, "C": -2}],
        "devices": [{"name": "y", "rates": None, "bandwidth": "NaN"}],
        "model": "none",
        "phase": "sleep",
        "n": 1e308,
        "batch": None,
        "heads": 6,
        "groups": 4,
        "itemsize": "2",
    }
    drawn = script.call("cleanState", odd)
    assert drawn["model"] == "x" and drawn["phase"] == "prefill"
    assert (drawn["n"], drawn["batch"], drawn["itemsize"]) == (2**21, 1, 2)
    assert drawn["groups"] == 6  # 4 does not divide 6
    assert drawn["models"][0]["G"] == drawn["models"][0]["H"] == 1
    found = script.call("computeCosts", drawn)
    assert found["flops"] > 0 and found["seconds"] > 0


@pytest.mark.javascript
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "Step by step it is memory-bound, fused it is compute-bound"),
        ({"phase": "decode"}, "Both ways are memory-bound"),
        ({"device": "A100 SXM 80 GB", "n": 2**17}, "One layer's scores alone"),
        ({}, "(the ridge point of this device is 25.3 operations per byte)"),
    ],
)
def test_the_result_is_described_in_words(script, given, words):
    state = script.call("cleanState", CostCalculator(**given).state())
    expected = script.call("describeCosts", state, script.call("computeCosts", state))
    assert words in expected, expected


def test_every_preset_can_be_chosen():
    for name, model in MODELS.items():
        made = CostCalculator(name, n=model.length)
        assert isinstance(model, Model)
        assert made.heads == model.block.H and made.groups == model.block.G
    for name, device in DEVICES.items():
        assert describe_device(name, device)["rates"]["2"] > 1e12
