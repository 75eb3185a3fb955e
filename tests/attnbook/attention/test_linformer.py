"""Linformer against its formula, and what it cannot do."""

import pytest
import torch

from attnbook import masks
from attnbook.attention.linear import LinformerAttention, attend_linformer
from attnbook.attention.multi_head import MultiHeadAttention
from precision import assert_equals_reference, each_dtype

B, H, T, D, E, P, L = 2, 3, 5, 7, 4, 2, 11


def draw(S, dtype=torch.float64, spread=1.0):
    """Return query, key, value, two matrices and an upstream gradient."""
    rng = torch.Generator().manual_seed(S)
    shapes = (B, H, T, D), (B, H, S, D), (B, H, S, E), (P, L), (P, L)
    made = [
        torch.randn(s, generator=rng, dtype=torch.float64)
        for s in (*shapes, (B, H, T, E))
    ]
    made[0] = made[0] * spread
    return [x.to(dtype) for x in made]


def formula(query, key, value, key_matrix, value_matrix, real=None):
    """Softmax(Q (E K)ᵀ / √D) F V, with the padding left out of both sums."""
    S = key.shape[2]
    if real is not None:
        key, value = key * real, value * real
    key, value = key_matrix[:, :S] @ key, value_matrix[:, :S] @ value
    return (query * D**-0.5 @ key.mT).softmax(-1) @ value


@each_dtype
def test_it_is_its_formula(dtype):
    *inputs, upstream = draw(9, dtype)
    assert_equals_reference(attend_linformer, formula, inputs, upstream)


@pytest.mark.parametrize(("S", "spread"), [(L, 1.0), (1, 8.0)])
def test_it_is_its_formula_for_as_many_keys_as_it_takes_and_for_one(S, spread):
    *inputs, upstream = draw(S, torch.float32, spread)
    assert_equals_reference(attend_linformer, formula, inputs, upstream)


def test_padding_is_left_out_of_the_mixtures():
    *inputs, upstream = draw(L, torch.float32)
    real = masks.padding(torch.tensor([6, 0]), L)
    assert_equals_reference(
        lambda *x: attend_linformer(*x, real),
        lambda *x: formula(*x, real.mT.double()),
        inputs,
        upstream,
    )
    output = attend_linformer(*inputs, real)
    assert torch.equal(output[1], torch.zeros_like(output[1]))


def test_the_module_projects_heads_and_shares_its_matrices():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = LinformerAttention(6, 2, L, P).eval()
    rng = torch.Generator().manual_seed(1)
    x = torch.randn(B, L, 6, generator=rng)
    output, weights = module(x, need_weights=True)
    assert weights.shape == (B, 2, L, P)
    q, k, v = module.project(x, x)
    mixed = attend_linformer(q, k, v, module.key_matrix, module.value_matrix)
    expected = module.output(mixed.transpose(1, 2).flatten(2))
    torch.testing.assert_close(output, expected)
    # With the identity for both matrices it is multi-head attention.
    exact = LinformerAttention(6, 2, L, L).eval()
    exact.load_state_dict(
        module.state_dict() | {f"{x}_matrix": torch.eye(L) for x in ("key", "value")}
    )
    plain = MultiHeadAttention(6, 2).eval()
    plain.load_state_dict(module.state_dict(), strict=False)
    torch.testing.assert_close(exact(x), plain(x))


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda m: m(torch.zeros(1, L + 1, 6)),
            "made for at most 11 keys and cannot take 12",
        ),
        (
            lambda m: m(torch.zeros(1, 5, 6), mask=masks.causal(5, 5)),
            "the 5 rows of the mask differ between queries, as in a causal "
            "mask, but the 5 keys are mixed into 2",
        ),
        (
            lambda m: m(torch.zeros(1, 5, 6), bias=torch.zeros(5, 5)),
            r"a bias of shape \(5, 5\) belongs to single keys, but here 2",
        ),
        (
            lambda m: LinformerAttention(6, 2, L, L + 1),
            "11 positions can be projected to between 1 and 11 keys, not to 12",
        ),
    ],
)
def test_what_it_cannot_do_is_refused_with_both_values(call, message):
    with pytest.raises(ValueError, match=message):
        call(LinformerAttention(6, 2, L, P))
