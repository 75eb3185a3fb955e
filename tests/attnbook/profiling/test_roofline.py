import pytest

from attnbook.profiling import roofline
from attnbook.profiling.roofline import (
    DEVICES,
    MODELS,
    Machine,
    bound_seconds,
    bound_seconds_by_ceiling,
    calculate,
    measure_copy_rate,
    measure_machine,
    measure_product_rate,
)
from attnbook.profiling.sizes import Count, Sizes, add_counts
from attnbook.profiling.steps import (
    count_backward_steps,
    count_fused,
    count_fused_backward,
    count_steps,
)

MACHINE = Machine(100.0, 10.0)
ONE = Sizes(1, 1, 1, 1, 1)


def test_the_attainable_rate_is_limited_by_memory_or_arithmetic():
    assert MACHINE.ridge_point == 10
    assert MACHINE.attainable_rate(5) == 50
    assert MACHINE.attainable_rate(10) == MACHINE.attainable_rate(1000) == 100
    long, wide = Count(1000, 5, 5), Count(10, 50, 50)
    assert MACHINE.find_bottleneck(long) == "arithmetic"
    assert MACHINE.find_bottleneck(wide) == "memory"
    assert MACHINE.seconds(long) == 10 and MACHINE.seconds(wide) == 10
    assert bound_seconds(MACHINE, [long, wide]) == 20
    assert MACHINE.seconds(long + wide) < 20  # in one piece both overlap


def test_the_ceilings_are_rates_of_what_was_done(monkeypatch):
    def half_a_second(calls, rounds, device):
        for call in calls.values():
            call()
        return {name: [0.75, 0.5] for name in calls}

    monkeypatch.setattr(roofline, "time_calls", half_a_second)
    assert measure_copy_rate(megabytes=2) == 2 * 2e6 / 0.5
    assert measure_product_rate(16) == 2 * 16**3 / 0.5
    assert measure_machine() == Machine(2 * 512**3 / 0.5, 2 * 32e6 / 0.5)


def test_the_calculator_adds_up():
    model, machine = MODELS["Llama 3 8B"].block, DEVICES["H100 SXM"].machine(2)
    sizes = Sizes(2, 32, 1024, 1024, 128, G=8, itemsize=2)
    steps = count_steps(sizes), count_backward_steps(sizes)
    read = calculate(model, machine, "prefill", 2, 1024, 2)
    assert read["flops"] == add_counts(steps[0].values()).flops
    assert read["bytes_fused"] == count_fused(sizes).bytes
    assert read["memory_fused"] == sizes.output
    assert read["seconds"] == bound_seconds(machine, steps[0].values())
    train = calculate(model, machine, "train", 2, 1024, 2)
    counts = [*steps[0].values(), *steps[1].values()]
    assert train["bytes"] == add_counts(counts).bytes
    assert train["seconds_fused"] == bound_seconds(
        machine, [count_fused(sizes), count_fused_backward(sizes)]
    )
    assert train["share"] == read["share"]
    write = calculate(model, machine, "decode", 2, 1024, 2)
    assert write["cache"] == read["cache"] == 2 * 2 * 32 * 8 * 1024 * 128 * 2
    assert write["flops"] == pytest.approx(read["flops"] / 1024)


def test_each_ceiling_is_counted_by_hand():
    sizes = Sizes(2, 3, 5, 7, 11, 13, itemsize=2)
    found = bound_seconds_by_ceiling(MACHINE, 1.0, sizes)
    pairs = 2 * 3 * 5 * 7
    moved = 2 * 2 * 3 * (5 * 11 + 7 * 11 + 7 * 13 + 5 * 13)
    assert found == {
        "memory": moved / 10,
        "products": 2 * pairs * (11 + 13) / 100,
        "exponentials": pairs,
    }


@pytest.mark.refusal
def test_an_unknown_phase_is_refused():
    with pytest.raises(ValueError, match="the phase is 'sleep', none of"):
        calculate(MODELS["Llama 2 7B"].block, MACHINE, "sleep", 1, 1, 4)
