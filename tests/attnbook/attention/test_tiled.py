import pytest
import torch

from attnbook.attention.scaled_dot_product import attend
from attnbook.attention.tiled import (
    attend_tiled,
    attend_tiled_gradient,
    merge,
    online_softmax,
)
from attnbook.profiling.allocations import measure_peak_bytes
from precision import assert_all_close_to, draw, run_with_gradients

# Online softmax.


@pytest.mark.parametrize("sizes", [[1] * 17, [5, 11, 1]])
def test_chunks_give_the_softmax_of_all_scores(sizes):
    whole = 3 * draw((3, 5, 17))[0]
    whole[1, 2] = -torch.inf
    whole[2, 3, :12] = -torch.inf
    maximum, total = online_softmax(iter(whole.split(sizes, dim=-1)))
    assert torch.equal(maximum, whole.amax(-1))
    torch.testing.assert_close(maximum + total.log(), whole.logsumexp(-1))
    assert total[1, 2] == 0


@pytest.mark.parametrize("order", [slice(None), torch.arange(16, -1, -1)])
def test_neither_rising_nor_falling_logits_overflow(order):
    rising = torch.linspace(-3000, 3000, 17)[order]
    maximum, total = online_softmax(rising[None].split(4, dim=-1))
    assert (maximum.item(), total.item()) == (3000, 1)


def attend_part(keys):
    """Attention to some of 13 keys, and its logsumexp."""
    query, key, value = draw((2, 3, 7), (2, 13, 7), (2, 13, 5))
    scores = query @ key[:, keys].mT * 7**-0.5
    if not scores.shape[-1]:
        return query.new_zeros(2, 3, 5), query.new_full((2, 3), -torch.inf)
    return scores.softmax(-1) @ value[:, keys], scores.logsumexp(-1)


@pytest.mark.parametrize("cut", [0, 1, 6])
def test_merged_parts_equal_the_whole(cut):
    found = merge(*attend_part(slice(0, cut)), *attend_part(slice(cut, 13)))
    torch.testing.assert_close(found, attend_part(slice(0, 13)))


def test_two_empty_parts_merge_to_an_empty_one_without_nan_gradients():
    empty = torch.zeros(2, 3, requires_grad=True)
    none = torch.full((2,), -torch.inf, requires_grad=True)
    output, lse = merge(empty, none, empty.detach(), none.detach())
    assert torch.equal(output, torch.zeros(2, 3))
    assert torch.equal(lse, none)
    upstream = torch.ones(2, 3), torch.zeros(2)
    gradients = torch.autograd.grad([output, lse], [empty, none], upstream)
    assert all(x.isfinite().all() for x in gradients)


# Tiles of queries and keys.


def draw_inputs(T, S, offset=0.0, lead=(2, 3)):
    """Return query, key and value, and the upstream gradient."""
    query, key, value, upstream = draw(
        *((*lead, *s) for s in ((T, 5), (S, 5), (S, 7), (T, 7)))
    )
    query[..., 0] += abs(offset) ** 0.5 * 5**0.5
    key[..., 0] += offset / max(1, abs(offset)) ** 0.5
    return [query, key, value], upstream


def tiled(inputs, upstream, block):
    output, lse = attend_tiled(*inputs, block)
    return [output, *attend_tiled_gradient(*inputs, output, lse, upstream, block)]


@pytest.mark.parametrize("block", [4, 100])
@pytest.mark.parametrize(("T", "S"), [(13, 17), (23, 1)])
def test_tiled_attention_equals_the_reference(T, S, block):
    inputs, upstream = draw_inputs(T, S)
    expected = run_with_gradients(attend, inputs, upstream)
    torch.testing.assert_close(tiled(inputs, upstream, block), expected)
    _, lse = attend_tiled(*inputs, block)
    scores = inputs[0] @ inputs[1].mT * 5**-0.5
    torch.testing.assert_close(lse, scores.logsumexp(-1))


@pytest.mark.parametrize(
    ("dtype", "offset"),
    [(torch.float32, 0.0), (torch.float16, 200.0), (torch.bfloat16, -200.0)],
)
def test_tiles_of_lower_precision_equal_the_reference(dtype, offset):
    """Half precision is computed in single, so large logits lose no digits."""
    inputs, upstream = draw_inputs(37, 41, offset)
    inputs, upstream = [x.to(dtype) for x in inputs], upstream.to(dtype)
    wide = [x.double() for x in inputs]
    truth = run_with_gradients(attend, wide, upstream.double())
    assert_all_close_to(tiled(inputs, upstream, 8), truth)
    assert attend_tiled(*inputs, 8)[1].dtype == torch.float32


def test_the_full_score_matrix_is_never_allocated():
    inputs, upstream = draw_inputs(512, 512, lead=(1,))
    assert measure_peak_bytes(lambda: tiled(inputs, upstream, 32)) < 8 * 512 * 512 / 2


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
    (query, key, value), upstream = draw_inputs(6, 9)
    given = {"query": query, "key": key, "value": value} | change
    with pytest.raises(ValueError, match=message):
        attend_tiled(**given)
    with pytest.raises(ValueError, match=message):
        attend_tiled_gradient(
            **given, output=upstream, lse=upstream[..., 0], upstream=upstream
        )
