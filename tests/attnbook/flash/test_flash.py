import pytest
import torch

from attnbook.attention.scaled_dot_product import attend
from attnbook.flash import flash_attention
from attnbook.flash.sizes import choose_tile_sizes
from attnbook.positions.biases import alibi, alibi_slopes
from flash_cases import (
    BAD_LENGTHS,
    CASES,
    LENGTHS_BEYOND_7,
    compute_reference,
    draw_inputs,
)
from precision import run_with_gradients


@pytest.mark.parametrize("title", CASES)
def test_every_case_equals_the_reference_forward_and_backward(title):
    inputs, upstream = draw_inputs(title, torch.float64)
    options = CASES[title].options()
    ours = run_with_gradients(
        lambda *x: flash_attention(*x, **vars(options)),
        inputs,
        upstream,
    )
    theirs = run_with_gradients(
        lambda *x: compute_reference(*x, options), inputs, upstream
    )
    torch.testing.assert_close(ours, theirs)


def test_alibi_is_the_bias_of_chapter_8():
    inputs, _ = draw_inputs("three heads a group", torch.float64)
    query, key, value = inputs
    key, value = (x.repeat_interleave(3, dim=1) for x in (key, value))
    bias = alibi(6, 37, 37).to(query)
    torch.testing.assert_close(
        flash_attention(*inputs, alibi_slopes=alibi_slopes(6)),
        attend(query, key, value, bias=bias),
    )


def test_only_the_required_gradients_are_returned():
    (query, key, value), upstream = draw_inputs("causal", torch.float64)
    value.requires_grad_()
    output = flash_attention(query, key, value, causal=True)
    (found,) = torch.autograd.grad(output, value, upstream)
    reference = compute_reference(query, key, value, CASES["causal"].options())
    (expected,) = torch.autograd.grad(reference, value, upstream)
    torch.testing.assert_close(found, expected)


def test_second_derivatives_are_refused_not_forgotten():
    (query, key, value), _ = draw_inputs("causal", torch.float64)
    value.requires_grad_()
    output = flash_attention(query, key, value, causal=True)
    upstream = torch.ones_like(output, requires_grad=True)
    (first,) = torch.autograd.grad(output, value, upstream, create_graph=True)
    with pytest.raises(NotImplementedError, match="create_graph=True"):
        first.sum().backward()


def test_an_unmasked_nan_surfaces_and_a_masked_out_one_does_not():
    (query, key, value), _ = draw_inputs("causal", torch.float64)
    key[0, 0, 20, 3] = torch.nan
    output = flash_attention(query, key, value, causal=True)
    assert output[0, :, 20:].isnan().all()
    assert output[0, :, :20].isfinite().all()
    assert output[1].isfinite().all()


Z = torch.zeros
FITTING = {"query": Z(2, 2, 5, 4), "key": Z(2, 1, 7, 4), "value": Z(2, 1, 7, 3)}
REFUSED = [
    ({"query": Z(2, 5, 4)}, r"query must have 4 axes .* but has 3: \(2, 5, 4\)"),
    ({"key": Z(2, 1, 7, 4, device="meta")}, "on cpu, but key .* on meta"),
    ({"value": Z(2, 1, 7, 3).half()}, "query is torch.float32 .* torch.float16"),
    (
        {n: x.int() for n, x in FITTING.items()},
        "query is torch.int32, but must be float16",
    ),
    ({"key": Z(3, 1, 7, 4)}, "queries of 2 sequences, but keys of 3"),
    ({"query": Z(2, 2, 5, 6)}, "6 wide but keys are 4"),
    ({"value": Z(2, 1, 6, 3)}, "keys have 1 heads of 7 but values 1 of 6"),
    (
        {"key": Z(2, 3, 7, 4), "value": Z(2, 3, 7, 3)},
        "2 heads do not divide into 3 groups",
    ),
    ({"key": Z(2, 1, 0, 4), "value": Z(2, 1, 0, 3)}, "T = 5 queries, S = 0 keys"),
    ({"value": Z(2, 1, 7, 0)}, "E = 0 wide"),
    ({"window": 0}, "at least 1, not 0"),
    ({"window": 2.5}, "at least 1, not 2.5"),
    ({"softcap": 0.0}, "softcap must be a finite number above 0.0, not 0.0"),
    ({"softcap": torch.ones(1)}, "softcap must be a finite number"),
    ({"scale": float("nan")}, "not nan"),
    *[*BAD_LENGTHS.values(), *LENGTHS_BEYOND_7.values()],
    (
        {"key_lengths": Z(2, dtype=torch.int32, device="meta")},
        "on cpu, but are .* on meta",
    ),
    (
        {"alibi_slopes": torch.ones(3)},
        r"\(2,\) or \(2, 2\) on cpu, but are .* \(3,\)",
    ),
    ({"alibi_slopes": torch.ones(2).int()}, "floating point .* but are torch.int32"),
    (
        {"alibi_slopes": torch.ones(2, requires_grad=True)},
        "requires_grad=True, but only query, key and value",
    ),
]


@pytest.mark.refusal
@pytest.mark.parametrize(("change", "message"), REFUSED)
def test_unsupported_inputs_are_refused_with_both_values(change, message):
    with pytest.raises(ValueError, match=message):
        flash_attention(**FITTING | change)


@pytest.mark.refusal
def test_tile_sizes_that_a_gpu_does_not_have_are_refused():
    with pytest.raises(ValueError, match="up to 64 wide, not 65"):
        choose_tile_sizes("forward", (7, 5), torch.float16, 65)
