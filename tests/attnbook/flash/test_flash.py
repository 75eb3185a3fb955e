import pytest
import torch

from attnbook.flash import apply_sinks, flash_attention, flash_attention_with_lse
from attnbook.flash.sizes import choose_tile_sizes
from flash_cases import (
    BAD_LENGTHS,
    CASES,
    WITH_LSE,
    compute_masked_scores,
    compute_reference,
    compute_truth,
    draw_inputs,
)
from precision import run_with_gradients


@pytest.mark.parametrize("title", CASES)
def test_every_case_equals_the_reference_forward_and_backward(title):
    inputs, upstream = draw_inputs(title, torch.float64)
    options = CASES[title].options()
    found = run_with_gradients(
        lambda *x: flash_attention(*x, **vars(options)), inputs, upstream
    )
    torch.testing.assert_close(found, compute_truth(title, torch.float64))


def join_lse(*inputs, **options):
    output, lse = flash_attention_with_lse(*inputs, **options)
    return torch.cat([output, lse[..., None]], dim=-1)


@pytest.mark.parametrize("title", WITH_LSE)
def test_the_logsumexp_and_its_gradient_equal_the_reference(title):
    inputs, upstream = draw_inputs(title, torch.float64)
    upstream = torch.cat([upstream, upstream[..., :1]], dim=-1)
    options = vars(CASES[title].options())
    found = run_with_gradients(lambda *x: join_lse(*x, **options), inputs, upstream)
    torch.testing.assert_close(found, compute_truth(title, torch.float64, True))


def test_a_sink_is_one_more_logit_without_a_value():
    inputs, upstream = draw_inputs("causal, more queries", torch.float64)
    options = CASES["causal, more queries"].options()
    sinks = torch.tensor([0.3, -2.0]).double()

    def with_sinks(*inputs):
        *inputs, sinks = inputs
        return apply_sinks(*flash_attention_with_lse(*inputs, causal=True), sinks)

    def reference(query, key, value, sinks):
        scores = compute_masked_scores(query, key, options)
        column = sinks[:, None, None].expand(*scores.shape[:-1], 1)
        weights = torch.cat([scores, column], dim=-1).softmax(-1)
        return weights[..., :-1] @ value

    # The first queries can attend to no key: all of their weight is the sink's.
    given = [*inputs, sinks]
    torch.testing.assert_close(
        run_with_gradients(with_sinks, given, upstream),
        run_with_gradients(reference, given, upstream),
    )


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sinks": torch.ones(3)}, r"each of 2 heads on cpu, but .* shape \(3,\)"),
        ({"sinks": torch.ones(2).int()}, "floating-point .* but are torch.int32"),
        ({"sinks": torch.ones(2, device="meta")}, "on cpu, but are .* on meta"),
        ({"sinks": [0.5, 1.0]}, r"of 2 heads on cpu, but are \[0.5, 1.0\]"),
        (
            {"lse": torch.ones(2, 2, 1)},
            r"\(2, 2, 5, 3\) on cpu, but is .* \(2, 2, 1\) on cpu",
        ),
    ],
)
def test_sinks_and_logsumexps_that_do_not_fit_are_refused(change, message):
    output, lse = flash_attention_with_lse(**FITTING)
    given = {"output": output, "lse": lse, "sinks": torch.ones(2)}
    with pytest.raises(ValueError, match=message):
        apply_sinks(**given | change)


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
    *BAD_LENGTHS.values(),
    ({"key_lengths": Z(2).to(torch.uint16)}, "int32 or int64 .* torch.uint16"),
    (
        {"key_lengths": Z(2, dtype=torch.int32, device="meta")},
        "on cpu, but are .* on meta",
    ),
    (
        {"alibi_slopes": torch.ones(3)},
        r"\(2,\) or \(2, 2\) on cpu, but are .* \(3,\)",
    ),
    ({"alibi_slopes": [1.0, 2.0]}, r"on cpu, but are \[1.0, 2.0\]"),
    ({"key_lengths": [3, 7]}, r"int32 or int64 .* but are \[3, 7\]"),
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
