import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from attnbook.attention.scaled_dot_product import attend
from attnbook.attention.tiled import (
    accumulate_tiles,
    attend_tiled,
    attend_tiled_gradient,
)
from precision import assert_all_close_to

SHAPES = [(13, 17), (17, 13), (1, 23), (23, 1)]


def drawn(T, S, dtype=torch.float64, offset=0.0, lead=(2, 3)):
    rng = torch.Generator().manual_seed(100 * T + S)
    query, key, value, upstream = (
        torch.randn(*lead, *s, generator=rng, dtype=torch.float64)
        for s in ((T, 5), (S, 5), (S, 7), (T, 7))
    )
    query[..., 0] += abs(offset) ** 0.5 * 5**0.5
    key[..., 0] += offset / max(1, abs(offset)) ** 0.5
    return [x.to(dtype) for x in (query, key, value)], upstream.to(dtype)


def tiled(inputs, upstream, block):
    output, lse = attend_tiled(*inputs, block)
    return output, *attend_tiled_gradient(*inputs, output, lse, upstream, block)


def compute_reference(inputs, upstream):
    inputs = [x.clone().requires_grad_() for x in inputs]
    output = attend(*inputs)
    return output, *torch.autograd.grad(output, inputs, upstream)


@pytest.mark.parametrize("block", [4, 100])
@pytest.mark.parametrize(("T", "S"), SHAPES)
def test_tiled_attention_equals_the_reference(T, S, block):
    inputs, upstream = drawn(T, S)
    expected = compute_reference(inputs, upstream)
    torch.testing.assert_close(tiled(inputs, upstream, block), expected)
    _, lse = attend_tiled(*inputs, block)
    scores = inputs[0] @ inputs[1].mT * 5**-0.5
    torch.testing.assert_close(lse, scores.logsumexp(-1))


@pytest.mark.parametrize(
    ("dtype", "offset"),
    [
        (torch.float32, 0.0),
        (torch.float16, 200.0),
        (torch.bfloat16, -200.0),
    ],
)
def test_tiles_of_lower_precision_equal_the_reference(dtype, offset):
    """Half precision is computed in single, so large logits lose no digits."""
    inputs, upstream = drawn(37, 41, dtype, offset)
    truth = compute_reference([x.double() for x in inputs], upstream.double())
    assert_all_close_to(tiled(inputs, upstream, 8), truth)


@pytest.mark.parametrize("offset", [2000.0, -2000.0])
def test_one_logarithm_loses_digits_that_maximum_and_total_keep(offset):
    """Weights of a query sum to 1, so the values' gradients to the upstream's.

    That holds whatever the scores are: their errors cancel, and what is left
    is the rounding of 41 weights, of their sum in 6 tiles and of two products.
    Half an ulp of 2000 is 6e-5: that much the logarithm loses.
    """
    inputs, upstream = drawn(1, 41, torch.float32, offset)
    output, maximum, total = accumulate_tiles(*inputs, 8)
    lse = maximum + total.log()
    by_logarithm, by_both = (
        attend_tiled_gradient(*inputs, output, sums, up, 8)[2].double().sum(-2)
        for sums, up in (
            (lse, upstream),
            (maximum, upstream / total[..., None]),
        )
    )
    u = torch.finfo(torch.float32).eps / 2
    expected = upstream[..., 0, :].double()
    allowed = (41 + 4 * 6 + 10) * u * expected.abs()
    assert ((by_both - expected).abs() <= allowed).all()
    assert ((by_logarithm - expected).abs() > 5 * allowed).any()


def test_the_logarithms_of_half_precision_are_single():
    inputs, _ = drawn(5, 7, torch.float16)
    output, lse = attend_tiled(*inputs, 4)
    assert (output.dtype, lse.dtype) == (torch.float16, torch.float32)


def test_leading_axes_broadcast_and_gradients_are_summed_over_them():
    (query, key, value), upstream = drawn(6, 9)
    inputs = [query, key[:, :1], value[:1]]
    torch.testing.assert_close(
        tiled(inputs, upstream, 4), compute_reference(inputs, upstream)
    )


def test_inputs_are_not_changed_and_may_be_strided():
    inputs, upstream = drawn(6, 9)
    odd = [x.mT.contiguous().mT for x in inputs]
    before = [x.clone() for x in odd]
    torch.testing.assert_close(
        tiled(odd, upstream, 4), compute_reference(inputs, upstream)
    )
    assert all(map(torch.equal, odd, before))


def test_a_nan_surfaces_in_every_query():
    (query, key, value), _ = drawn(5, 9)
    key[0, 0, 8, 2] = torch.nan
    output, lse = attend_tiled(query, key, value, 4)
    assert output[0, 0].isnan().all()
    assert lse[0, 0].isnan().all()
    assert output[1].isfinite().all()


class Largest(TorchDispatchMode):
    """Note the largest tensor that any operation makes."""

    numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        for x in tree_leaves(made):
            if isinstance(x, torch.Tensor):
                self.numbers = max(self.numbers, x.numel())
        return made


def test_the_full_score_matrix_is_never_allocated():
    inputs, upstream = drawn(512, 512, torch.float32, lead=(1,))
    with Largest() as seen:
        tiled(inputs, upstream, 32)
    assert seen.numbers == 512 * 7
    with Largest() as seen:
        attend(*inputs)
    assert seen.numbers == 512 * 512


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"block": 0}, "block must be at least 1, not 0"),
        ({"key": torch.zeros(2, 3, 9, 4)}, "5 wide but keys are 4"),
        ({"value": torch.zeros(2, 3, 8, 7)}, "9 keys but 8 values"),
    ],
)
def test_inputs_of_unequal_sizes_are_refused(change, message):
    (query, key, value), upstream = drawn(6, 9)
    given = {"query": query, "key": key, "value": value} | change
    with pytest.raises(ValueError, match=message):
        attend_tiled(**given)
    with pytest.raises(ValueError, match=message):
        attend_tiled_gradient(
            **given, output=upstream, lse=upstream[..., 0], upstream=upstream
        )
