import pytest
import torch

from attnbook.attention.scaled_dot_product import attend
from attnbook.attention.tiled import merge, online_softmax


def scores(*shape, spread=3.0, seed=0):
    rng = torch.Generator().manual_seed(seed)
    return spread * torch.randn(*shape, generator=rng, dtype=torch.float64)


@pytest.mark.parametrize("sizes", [[17], [1] * 17, [5, 0, 11, 1], [0, 17]])
def test_chunks_give_the_softmax_of_all_scores(sizes):
    whole = scores(3, 5, 17)
    whole[1, 2] = -torch.inf
    whole[2, 3, :12] = -torch.inf
    maximum, total = online_softmax(iter(whole.split(sizes, dim=-1)))
    assert torch.equal(maximum, whole.amax(-1))
    lse = maximum + total.log()
    torch.testing.assert_close(lse, whole.logsumexp(-1))
    assert total[1, 2] == 0
    assert (total.flatten()[:7] >= 1).all()


@pytest.mark.parametrize("order", [slice(None), torch.arange(16, -1, -1)])
def test_neither_rising_nor_falling_logits_overflow(order):
    rising = torch.linspace(-3000, 3000, 17)[order]
    maximum, total = online_softmax(rising[None].split(4, dim=-1))
    assert maximum.item() == 3000
    assert total.item() == 1


def test_each_chunk_is_read_once():
    seen = []

    def parts():
        for i, part in enumerate(scores(2, 12).split(4, dim=-1)):
            seen.append(i)
            yield part

    online_softmax(parts())
    assert seen == [0, 1, 2]


def test_a_nan_score_surfaces():
    bad = scores(2, 6)
    bad[0, 4] = torch.nan
    _, total = online_softmax(bad.split(2, dim=-1))
    assert total.isnan().tolist() == [True, False]


def of_part(keys):
    """Attention to some of 13 keys, and its logsumexp."""
    query, key, value = scores(2, 3, 7), scores(2, 13, 7), scores(2, 13, 5)
    tile = query @ key[:, keys].mT * 7**-0.5
    if not tile.shape[-1]:
        return query.new_zeros(2, 3, 5), query.new_full((2, 3), -torch.inf)
    return tile.softmax(-1) @ value[:, keys], tile.logsumexp(-1)


@pytest.mark.parametrize("cut", [0, 1, 6, 13])
def test_merged_parts_equal_the_reference(cut):
    output, lse = merge(*of_part(slice(0, cut)), *of_part(slice(cut, 13)))
    expected = attend(scores(2, 3, 7), scores(2, 13, 7), scores(2, 13, 5))
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(lse, of_part(slice(0, 13))[1])


def test_the_order_of_merging_does_not_matter():
    parts = [of_part(slice(i, i + 3)) for i in range(0, 12, 3)]
    left = parts[0]
    for part in parts[1:]:
        left = merge(*left, *part)
    pairs = merge(*merge(*parts[3], *parts[1]), *merge(*parts[0], *parts[2]))
    torch.testing.assert_close(left, pairs)


def test_logits_too_large_to_exponentiate_are_merged():
    one, two = torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 6.0]])
    lse = torch.tensor([5000.0])
    output, joined = merge(one, lse, two, lse)
    torch.testing.assert_close(output, torch.tensor([[2.0, 4.0]]))
    torch.testing.assert_close(joined, lse + torch.tensor(2.0).log())


def test_two_empty_parts_merge_to_an_empty_one_without_nan_gradients():
    empty = torch.zeros(2, 3, requires_grad=True)
    none = torch.full((2,), -torch.inf, requires_grad=True)
    output, lse = merge(empty, none, empty.detach(), none.detach())
    assert torch.equal(output, torch.zeros(2, 3))
    assert torch.equal(lse, none)
    upstream = torch.ones(2, 3), torch.zeros(2)
    gradients = torch.autograd.grad([output, lse], [empty, none], upstream)
    assert all(x.isfinite().all() for x in gradients)


def test_gradients_of_merged_parts_equal_those_of_the_whole():
    whole = scores(3, 8).requires_grad_()
    values = scores(8, 5, seed=1)
    parts = []
    for keys in (slice(0, 3), slice(3, 8)):
        some = whole[:, keys]
        parts += [some.softmax(-1) @ values[keys], some.logsumexp(-1)]
    output, lse = merge(*parts)
    upstream = scores(3, 5, seed=2), scores(3, seed=3)
    found = torch.autograd.grad([output, lse], whole, upstream)
    reference = whole.softmax(-1) @ values, whole.logsumexp(-1)
    torch.testing.assert_close(found, torch.autograd.grad(reference, whole, upstream))


@pytest.mark.refusal
def test_an_empty_list_of_chunks_is_refused():
    with pytest.raises(ValueError, match="at least 1 chunk is needed, not 0"):
        online_softmax(iter([]))
