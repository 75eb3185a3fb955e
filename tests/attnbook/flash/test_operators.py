"""`flash_attention` under autograd, torch.compile and capture."""

import sys
from dataclasses import replace
from unittest.mock import Mock

import pytest
import torch

from attnbook.flash import flash_attention, operators
from attnbook.flash.options import NO_PACKING
from flash_cases import (
    CASES,
    KEY_OFFSETS,
    PACKED,
    QUERY_OFFSETS,
    compute_truth,
    draw_inputs,
    draw_packed,
)
from precision import run_with_gradients

ALL = "soft-cap, alibi, window, lengths"
SOME = "causal", "alibi both ways, a text's own", ALL


def made(title, kind=torch.float64):
    """Return the inputs, the upstream gradient, and a call of a case."""
    inputs, upstream = draw_inputs(title, kind)
    given = vars(CASES[title].options(kind))
    return inputs, upstream, lambda *x: flash_attention(*x, **given)


@pytest.mark.parametrize("name", ["key_lengths", "alibi_slopes"])
def test_an_edit_in_place_before_the_backward_pass_is_refused(name):
    inputs, _ = draw_inputs(ALL, torch.float64)
    given = vars(CASES[ALL].options())
    leaves = [x.requires_grad_() for x in inputs]
    output = flash_attention(*leaves, **given)
    given[name].mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        output.sum().backward()


@pytest.mark.compiled
@pytest.mark.parametrize("title", SOME)
def test_torch_compile_without_a_graph_break_gives_the_same(title):
    inputs, upstream, call = made(title)
    torch._dynamo.reset()
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    found = run_with_gradients(compiled, inputs, upstream)
    torch.testing.assert_close(found, compute_truth(title, torch.float64))


@pytest.mark.compiled
@pytest.mark.parametrize("title", ["columns", ALL, "packed, causal"])
def test_the_operators_keep_the_rules_of_pytorch(title):
    packing, options = NO_PACKING, (CASES | PACKED)[title]
    if title in PACKED:
        packing = QUERY_OFFSETS, KEY_OFFSETS
        drawn = draw_packed(torch.float64)
        *inputs, upstream = (x.transpose(0, 1)[None] for x in drawn)
    else:
        inputs, upstream, _ = made(title)
        options = options.options()
    tensors = options.key_lengths, options.alibi_slopes, *packing
    numbers = options.numbers(inputs[0].shape[-1], inputs[1].shape[-2])
    sums = operators.flash_forward(*inputs, *tensors, *numbers)
    back = *inputs, *tensors, *sums, upstream, *numbers
    torch.library.opcheck(operators.flash_backward, back)
    leaves = [x.requires_grad_() for x in inputs]
    torch.library.opcheck(operators.flash_forward, (*leaves, *tensors, *numbers))


@pytest.mark.kernel
@pytest.mark.skipif(sys.platform != "linux", reason="Triton needs Linux")
def test_a_launch_reads_no_number_of_a_tensor(monkeypatch):
    """A captured launch cannot wait for a number, nor can one in training.

    On the device "meta" no number can be read: a length, a slope, a sum.
    """
    from triton.runtime.jit import JITFunction

    from attnbook.flash import launch
    from attnbook.flash.sizes import TileSizes

    launched = Mock()
    monkeypatch.setattr(JITFunction, "__getitem__", lambda *_: launched)
    inputs, _ = draw_inputs(ALL, torch.float16)
    options = CASES[ALL].options(torch.float16)
    lengths, slopes = options.key_lengths.to("meta"), options.alibi_slopes.to("meta")
    options = replace(options, key_lengths=lengths, alibi_slopes=slopes)
    inputs, tile = [x.to("meta") for x in inputs], TileSizes(16, 16, 4, 1)
    offsets = torch.zeros(3, dtype=torch.int64, device="meta")
    for packing in NO_PACKING, (offsets, offsets):
        output, lse = launch.forward(*inputs, options, tile, packing)
        more = output, options, tile, lse, packing
        launch.backward(*inputs, output, lse, *more)
    assert launched.call_count == 6


def test_no_window_is_wider_than_the_keys_for_an_operator():
    (query, key, value), _, _ = made("causal, more queries")
    torch.testing.assert_close(
        flash_attention(query, key, value, window=2**70),
        flash_attention(query, key, value, causal=True),
    )
