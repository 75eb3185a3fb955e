import pytest
import torch

from attnbook.profiling import roofline
from attnbook.profiling.roofline import (
    DEVICES,
    MODELS,
    Machine,
    bound_seconds,
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


def test_the_attainable_rate_is_limited_by_memory_or_arithmetic():
    assert MACHINE.ridge_point == 10
    assert MACHINE.attainable_rate(5) == 50
    assert MACHINE.attainable_rate(10) == MACHINE.attainable_rate(1000) == 100


def test_each_step_is_limited_by_arithmetic_or_memory():
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


def test_this_machine_has_ceilings():
    assert measure_copy_rate(4, 2) > 1e6
    assert measure_product_rate(64, 2) > 1e6
    assert measure_product_rate(64, 2, torch.bfloat16) > 1e5


def test_heads_and_batch_leave_the_intensity_alone():
    one = count_fused(Sizes(1, 1, 512, 512, 64)).intensity
    assert count_fused(Sizes(7, 12, 512, 512, 64)).intensity == one
    twice = count_fused(Sizes(1, 1, 1024, 1024, 64)).intensity
    assert twice == pytest.approx(2 * one, rel=0.01)


def test_narrow_heads_are_memory_bound():
    """Scores of width D: at most D / itemsize operations a byte."""
    for D in (32, 64, 128):
        for step in ("scores", "values"):
            count = count_steps(Sizes(1, 1, 8192, 8192, D))[step]
            assert 0.9 * D / 2 < count.intensity < D / 2


@pytest.mark.parametrize("name", MODELS)
def test_the_parameters_of_a_model_are_those_in_its_name(name):
    block = MODELS[name].block
    layers = block.L * block.weights
    billions = {"7B": 7, "8B": 8, "70B": 70}
    size = next((n for x, n in billions.items() if name.endswith(x)), None)
    assert block.H * block.D == block.C
    if size:  # embeddings come on top
        assert 0.85 * size < layers / 1e9 < 1.02 * size


@pytest.mark.parametrize("name", DEVICES)
def test_a_device_multiplies_faster_than_it_moves(name):
    device = DEVICES[name]
    assert device.machine(2).ridge_point > device.machine(4).ridge_point > 9


@pytest.mark.refusal
def test_an_unknown_number_format_and_an_impossible_machine_are_refused():
    with pytest.raises(ValueError, match=r"of 8 bytes: known are \[2, 4\]"):
        DEVICES["T4"].machine(8)
    with pytest.raises(ValueError, match="does 0 operations and moves 1"):
        Machine(0, 1)


def test_the_calculator_adds_up():
    model, machine = MODELS["Llama 3 8B"].block, DEVICES["H100 SXM"].machine(2)
    sizes = Sizes(2, 32, 1024, 1024, 128, G=8, itemsize=2)
    steps = count_steps(sizes), count_backward_steps(sizes)
    read = calculate(model, machine, "prefill", 2, 1024, 2)
    assert read["flops"] == add_counts(steps[0].values()).flops
    assert read["bytes_fused"] == count_fused(sizes).bytes
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


@pytest.mark.refusal
def test_an_unknown_phase_is_refused():
    block = MODELS["GPT-2 (small)"].block
    with pytest.raises(ValueError, match="the phase is 'sleep', none of"):
        calculate(block, MACHINE, "sleep", 1, 1, 4)
