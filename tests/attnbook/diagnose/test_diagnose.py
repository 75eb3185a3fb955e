import math
from itertools import pairwise, product

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from attnbook.attention.multi_head import MultiHeadAttention
from attnbook.attention.scaled_dot_product import attend, attention_weights
from attnbook.attention.self_attention import causal_mask
from attnbook.diagnose import (
    attention_rollout,
    compare_with_reference,
    entropy,
    find_known_mistakes,
    find_missing_gradients,
    head_similarity,
    measure_batch_effect,
    measure_leak,
    measure_order_effect,
    measure_padding_effect,
    measure_prefix_effect,
    measure_randomness,
    measure_weight_errors,
    normalized_entropy,
    record_attention,
)
from attnbook.diagnose.reference import MISTAKES

SEED = torch.Generator().manual_seed(0)
X = torch.randn(2, 5, 7, generator=SEED)
LENGTHS = torch.tensor([5, 3])


def test_entropy_ranges_from_one_key_to_uniform_weights():
    rows = torch.tensor([[1.0, 0, 0, 0], [0.25] * 4, [0.0] * 4])
    expected = torch.tensor([0.0, math.log(4), 0.0])
    torch.testing.assert_close(entropy(rows), expected)
    rows = torch.tensor([[0.5, 0.5, 0, 0], [1.0, 0, 0, 0]])
    half = torch.tensor([True, True, False, False])
    assert normalized_entropy(rows).tolist() == pytest.approx([0.5, 0.0])
    assert normalized_entropy(rows, half).tolist() == pytest.approx([1.0, 0.0])
    alone = torch.tensor([True, False, False, False])
    assert normalized_entropy(rows, alone).isnan().all()


def test_identical_heads_have_cosine_similarity_one():
    one = torch.eye(3).expand(2, 3, 3)
    other = one.roll(1, -1)
    like = head_similarity(torch.stack([one, one, other], dim=1))
    expected = torch.tensor([[1.0, 1, 0], [1, 1, 0], [0, 0, 1]])
    torch.testing.assert_close(like, expected)


def causal(x):
    return attend(x, x, x, causal_mask(x.shape[1], x.shape[1]))


def test_a_leak_is_found_where_it_is():
    kept = X.clone()
    assert measure_leak(causal, X).abs().max() == 0
    assert torch.equal(X, kept)  # nothing is changed in place
    assert (measure_leak(lambda x: attend(x, x, x), X)[:-1] > 0.01).all()

    def only_the_second(x):
        return torch.cat([x[:, :1], x[:, 2:3], x[:, 2:]], dim=1)

    found = measure_leak(only_the_second, X)
    assert (found > 0).tolist() == [False, True, False, False, False]


def masked(x, lengths):
    real = torch.arange(x.shape[1]) < lengths[:, None, None]
    return attend(x, x, x, real)


def test_padding_that_changes_outputs_is_found():
    assert measure_padding_effect(masked, X, LENGTHS).tolist() == [0, 0]
    found = measure_padding_effect(lambda x, n: attend(x, x, x), X, LENGTHS)
    assert found[0] == 0
    assert found[1] > 0.01


TOKENS = torch.tensor([[3, 1, 4, 1, 5], [2, 7, 1, 0, 0]])
TABLE = torch.randn(9, 7, generator=SEED)


def reads(model):
    """Take tokens instead of vectors."""
    return lambda tokens, *more: model(TABLE[tokens], *more)


def test_tokens_are_tested_as_vectors_are():
    assert measure_leak(reads(causal), TOKENS).max() == 0
    assert (measure_leak(reads(lambda x: attend(x, x, x)), TOKENS)[:-1] > 0).all()
    assert measure_padding_effect(reads(masked), TOKENS, LENGTHS).max() == 0
    wrong = reads(lambda x, lengths: attend(x, x, x))
    assert measure_padding_effect(wrong, TOKENS, LENGTHS).gt(0.01).tolist() == [0, 1]


def test_a_causal_model_may_still_depend_on_the_length():
    found = measure_prefix_effect(lambda x: causal(x) + len(x[0]), X)
    assert found.tolist() == pytest.approx([4, 3, 2, 1, 0], abs=1e-5)
    assert measure_prefix_effect(causal, X).max() < 1e-6


def test_sequences_of_a_batch_must_be_independent():
    assert measure_batch_effect(causal, X).max() == 0
    mixed = measure_batch_effect(lambda x: x - x.mean((0, 1)), X)
    assert (mixed > 0.01).all()
    with pytest.raises(ValueError, match="1 sequence has no others"):
        measure_batch_effect(causal, X[:1])


def test_order_test_separates_order_sensitive_models():
    assert measure_order_effect(lambda x: attend(x, x, x), X) < 1e-6
    assert measure_order_effect(causal, X) > 0.01


@pytest.mark.parametrize("test", [measure_leak, measure_order_effect])
def test_a_model_in_training_mode_is_refused(test):
    noisy = nn.Dropout(0.5)
    assert measure_randomness(noisy, X) > 0.01
    with pytest.raises(ValueError, match="is the model in evaluation mode"):
        test(noisy, X)
    assert measure_randomness(noisy.eval(), X) == 0
    with pytest.raises(ValueError, match="all tokens are 3"):
        measure_leak(reads(causal), torch.full((1, 4), 3))


RIGHT = attention_weights(X, X, causal_mask(5, 5))


@pytest.mark.parametrize(
    ("key", "broken"),
    [
        ("not finite", torch.where(RIGHT > 0.99, torch.nan, RIGHT)),
        ("sums", F.dropout(RIGHT, 0.5)),
        ("hidden", attention_weights(X, X)),
        ("negative", 2 * RIGHT - RIGHT.flip(0)),
    ],
)
def test_invalid_attention_weights_are_reported(key, broken):
    right = measure_weight_errors(RIGHT, causal_mask(5, 5))
    assert max(right.values()) < 1e-6
    assert measure_weight_errors(broken, causal_mask(5, 5))[key] > 0.01
    mask, rows = torch.eye(2)[[0, 0]].bool(), torch.eye(2)[[0, 0]]
    mask[1], rows[1] = False, 0  # a fully masked row need not sum to one
    assert max(measure_weight_errors(rows, mask).values()) == 0


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.ours = MultiHeadAttention(8, 2)
        self.theirs = nn.MultiheadAttention(8, 2, batch_first=True)
        self.unused = nn.Linear(8, 8)

    def forward(self, x):
        x = self.ours(x)
        return self.theirs(x, x, x, need_weights=False)[0]


def test_every_attention_layers_weights_are_recorded():
    model, x = Twice().eval(), torch.randn(3, 5, 8, generator=SEED)
    expected = model(x)
    _, ours = model.ours(x, need_weights=True)
    with record_attention(model) as seen:
        watched = model(x)
        model(x)
    assert torch.equal(watched, expected)
    assert {n: len(w) for n, w in seen.items()} == {"ours": 2, "theirs": 2}
    torch.testing.assert_close(seen["ours"][0], ours)
    assert seen["theirs"][0].shape == (3, 2, 5, 5)
    model(x)
    assert len(seen["ours"]) == 2
    assert "forward" not in vars(model.ours)


def test_weights_are_recorded_despite_the_fast_path():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    x = torch.randn(3, 5, 8, generator=SEED)
    with torch.no_grad(), record_attention(layer) as seen:
        layer(x)
    assert seen["self_attn"][0].shape == (3, 2, 5, 5)
    assert torch.backends.mha.get_fastpath_enabled()
    with pytest.raises(ValueError, match="Linear has no layer"):
        record_attention(nn.Linear(2, 2)).__enter__()


def test_parameters_that_learn_nothing_are_named():
    model = Twice()
    x = torch.randn(3, 5, 8, generator=SEED)
    found = find_missing_gradients(model, model(x).square().mean())
    assert found == {
        "unused.weight": "not in the graph",
        "unused.bias": "not in the graph",
    }
    uniform = find_missing_gradients(model, model(0 * x).square().mean())
    assert uniform["ours.query.weight"] == "all zero"
    assert all(p.grad is None for p in model.parameters())


def test_a_correct_function_passes_the_reference_test():
    def torchs(q, k, v, mask=None):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    for right in attend, torchs:
        assert max(compare_with_reference(right).values()) < 1e-4
        assert find_known_mistakes(right) == []
    assert find_known_mistakes(lambda q, k, v, mask=None: 2 * attend(q, k, v)) == []
    with pytest.raises(ValueError, match="fails at 'no mask': RuntimeError"):
        compare_with_reference(lambda q, k, v, mask=None: q @ k)
    with pytest.raises(ValueError, match=r"at 'no mask' it gives \(2, 3, 5, 7"):
        compare_with_reference(lambda q, k, v, mask=None: q @ k.mT)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_every_known_mistake_is_distinguished_from_the_others(mistake):
    wrong = MISTAKES[mistake]
    assert max(compare_with_reference(wrong).values()) > 0.1
    assert find_known_mistakes(wrong) == [mistake]


def test_rollout_is_the_sum_over_all_paths_from_an_input_to_an_output():
    L, T = 3, 5
    weights = torch.randn(L, 2, T, T).double().softmax(-1)
    layers = (weights.mean(1) + torch.eye(T)) / 2
    paths = torch.zeros(T, T, dtype=torch.float64)
    for path in product(range(T), repeat=L + 1):  # the input first
        share = torch.ones((), dtype=torch.float64)
        for layer, (before, after) in zip(layers, pairwise(path), strict=True):
            share = share * layer[after, before]
        paths[path[-1], path[0]] += share
    torch.testing.assert_close(attention_rollout(weights), paths)
    weights[:, :, 0] = 0.0  # a query without keys
    rows = attention_rollout(weights).sum(-1)
    torch.testing.assert_close(rows, torch.ones(T).double())
