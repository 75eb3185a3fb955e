import math

import pytest
import torch

from attnbook.diagnose import (
    entropy,
    head_similarity,
    leak_test,
    padding_test,
    uniformity,
)
from attnbook.scaled_dot_product import attend, attention_weights
from attnbook.self_attention import causal_mask

SEED = torch.Generator().manual_seed(0)
X = torch.randn(2, 5, 7, generator=SEED)
LENGTHS = torch.tensor([5, 3])


def test_entropy_runs_from_one_key_to_all_alike():
    rows = torch.tensor([[1.0, 0, 0, 0], [0.25] * 4, [0.0] * 4])
    expected = torch.tensor([0.0, math.log(4), 0.0])
    torch.testing.assert_close(entropy(rows), expected)


def test_uniformity_counts_only_what_may_be_seen():
    rows = torch.tensor([[0.5, 0.5, 0, 0], [1.0, 0, 0, 0]])
    half = torch.tensor([True, True, False, False])
    assert uniformity(rows).tolist() == pytest.approx([0.5, 0.0])
    assert uniformity(rows, half).tolist() == pytest.approx([1.0, 0.0])
    alone = torch.tensor([True, False, False, False])
    assert uniformity(rows, alone).isnan().all()


def test_heads_that_look_alike_have_cosine_one():
    one = torch.eye(3).expand(2, 3, 3)
    other = one.roll(1, -1)
    like = head_similarity(torch.stack([one, one, other], dim=1))
    expected = torch.tensor([[1.0, 1, 0], [1, 1, 0], [0, 0, 1]])
    torch.testing.assert_close(like, expected)


def test_two_random_heads_are_already_alike():
    # The rule of thumb "above 0.9 is collapse" needs to know this number.
    weights = torch.rand(50, 2, 4, 30, generator=SEED).softmax(-1)
    assert head_similarity(weights)[0, 1] > 0.85


def causal(x):
    return attend(x, x, x, causal_mask(x.shape[1], x.shape[1]))


def test_a_leak_is_found_where_it_is():
    assert leak_test(causal, X).abs().max() == 0
    assert (leak_test(lambda x: attend(x, x, x), X)[:-1] > 0.01).all()

    def only_the_second(x):
        return torch.cat([x[:, :1], x[:, 2:3], x[:, 2:]], dim=1)

    found = leak_test(only_the_second, X)
    assert (found > 0).tolist() == [False, True, False, False, False]


def masked(x, lengths):
    real = torch.arange(x.shape[1]) < lengths[:, None, None]
    return attend(x, x, x, real)


def test_padding_that_speaks_is_found():
    assert padding_test(masked, X, LENGTHS).tolist() == [0, 0]
    found = padding_test(lambda x, n: attend(x, x, x), X, LENGTHS)
    assert found[0] == 0
    assert found[1] > 0.01


def test_nothing_is_changed_in_place():
    kept = X.clone()
    leak_test(causal, X)
    padding_test(masked, X, LENGTHS)
    uniformity(attention_weights(X, X), causal_mask(5, 5))
    assert torch.equal(X, kept)
