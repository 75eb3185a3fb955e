"""Inputs that the Triton kernels do not take: tiles, and one warning."""

import warnings

import pytest
import torch

from attnbook.attention.tiled import attend_tiled
from attnbook.flash import FallbackWarning, flash_attention, operators, sizes
from attnbook.flash.options import Options
from attnbook.flash.sizes import find_gpu_limit
from attnbook.profiling.allocations import measure_peak_bytes
from flash_cases import (
    CASES,
    compute_truth,
    draw_inputs,
)
from precision import run_with_gradients


@pytest.fixture
def on(monkeypatch):
    """Let tensors on the CPU pass for tensors on a GPU of some capability."""
    monkeypatch.setattr(sizes, "WARNED", set())

    def pretend(capability):
        monkeypatch.setattr(
            sizes,
            "find_device_limit",
            lambda device, dtype, width: find_gpu_limit(capability, dtype, width),
        )

    return pretend


def test_options_fall_back_with_the_same_results_and_one_warning(on):
    on((7, 5))
    with warnings.catch_warnings(record=True) as text:
        warnings.simplefilter("always")
        for title in "causal", "soft-cap, alibi, window, lengths":
            inputs, upstream = draw_inputs(title, torch.float64)
            options = CASES[title].options()
            found = run_with_gradients(
                lambda *x, o=options: flash_attention(*x, **vars(o)),
                inputs,
                upstream,
            )
            torch.testing.assert_close(found, compute_truth(title, torch.float64))
    (only,) = text
    assert only.category is FallbackWarning
    assert "7.5 the kernels take float16, not float64" in str(only.message)


def given(D=64, dtype=torch.float16):
    return [torch.zeros(1, 1, 3, D, dtype=dtype) for _ in "qkv"]


REASONS = {
    "single precision": ((9, 0), given(64, torch.float32), "not float32"),
    "bfloat16 on a T4": ((7, 5), given(64, torch.bfloat16), "not bfloat16"),
    "wide heads on a T4": ((7, 5), given(128), "up to 64 wide, not 128"),
    "very wide heads": ((9, 0), given(257), "up to 256 wide, not 257"),
    "an old GPU": ((7, 0), given(), "7.5 or later, not 7.0"),
}


@pytest.mark.refusal
@pytest.mark.parametrize("name", REASONS)
def test_each_reason_is_warned_of_once_and_raised_when_strict(on, name):
    capability, inputs, message = REASONS[name]
    on(capability)
    with pytest.warns(FallbackWarning, match=message):
        flash_attention(*inputs)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        flash_attention(*inputs)
    with pytest.raises(ValueError, match=f"strict=True excludes .*{message}"):
        flash_attention(*inputs, strict=True)


@pytest.mark.refusal
def test_tensors_on_the_cpu_give_no_warning_but_strict_raises():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        flash_attention(*given(dtype=torch.float32))
    with pytest.raises(ValueError, match="NVIDIA GPU, not tensors on the CPU"):
        flash_attention(*given(), strict=True)


def test_a_gpu_of_another_maker_is_named(monkeypatch):
    half = torch.float16, 64
    _, other = sizes.find_device_limit(torch.device("xpu"), *half)
    assert other == "tensors on 'xpu'"
    monkeypatch.setattr(torch.version, "hip", "6.4")
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "MI300X")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _=None: (9, 4))
    found = sizes.find_device_limit(torch.device("cuda", 0), *half)
    assert found == (sizes.NVIDIA, "an AMD GPU (MI300X)")


@pytest.mark.precision
def test_the_fallback_needs_as_much_memory_as_the_tiled_version(on):
    on((9, 0))
    inputs = [torch.zeros(1, 8, 1024, 16) for _ in "qkv"]
    with pytest.warns(FallbackWarning):
        most = measure_peak_bytes(lambda: flash_attention(*inputs))
    assert most <= 1.15 * measure_peak_bytes(lambda: attend_tiled(*inputs))


def test_the_tiled_version_reads_no_values_from_a_gpu():
    """On the device "meta" there is nothing to read."""
    query, key, value = (torch.zeros(2, 2, 5, 4, device="meta") for _ in "qkv")
    options = Options(
        window=3,
        key_lengths=torch.ones(2, dtype=torch.int64, device="meta"),
        alibi_slopes=torch.ones(2, device="meta"),
        softcap=2.0,
    )
    output, sums = operators.tiled_forward(query, key, value, options)
    grads = operators.tiled_backward(
        query, key, value, output, sums, output, options, sums[..., 0]
    )
    assert [x.shape for x in grads] == [query.shape] * 3
