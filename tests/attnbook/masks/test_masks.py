"""Masks: each against a loop over its definition; conventions; inspection."""

import doctest
import math

import pytest
import torch
from torch.nn.attention.flex_attention import create_mask

from attnbook import masks
from attnbook.masks import conventions, layouts, rules
from attnbook.masks.inspection import inspect_mask


@pytest.mark.parametrize("module", [masks, layouts])
def test_the_drawings_in_the_docstrings_are_drawn(module):
    tried = doctest.testmod(module, extraglobs={"torch": torch})
    assert tried.attempted and not tried.failed


@pytest.mark.parametrize(("T", "S"), [(5, 5), (3, 7), (7, 3), (0, 3)])
def test_each_mask_is_its_definition(T, S):
    chosen = [0, S - 1]
    for mask, definition in [
        (masks.causal(T, S), lambda t, s: s <= t),
        (masks.window(T, S, 3), lambda t, s: s in (t, t - 1, t - 2)),
        (masks.dilated(T, S, 3, 2), lambda t, s: s in (t, t - 2, t - 4)),
        (masks.prefix(T, S, 2), lambda t, s: s <= t or s < 2),
        (masks.sinks(T, S, 2), lambda t, s: s <= t and s < 2),
        (masks.two_sided_window(T, S, 2), lambda t, s: abs(t - s) <= 2),
        (
            masks.two_sided_window(T, S, 2, step=2),
            lambda t, s: t - s in (-4, -2, 0, 2, 4),
        ),
        (
            masks.global_tokens(T, S, chosen),
            lambda t, s: t in chosen or s in chosen,
        ),
    ]:
        rows = [[definition(t + S - T, s) for s in range(S)] for t in range(T)]
        expected = torch.tensor(rows, dtype=torch.bool).reshape(T, S)
        assert torch.equal(mask, expected)


def test_masks_of_a_batch_have_its_axis():
    lengths = torch.tensor([0, 3, 5])
    mask = masks.padding(lengths, 5)
    assert mask.shape == (3, 1, 1, 5)
    assert mask.sum(-1).flatten().tolist() == [0, 3, 5]
    ids = torch.tensor([[0, 0, 1], [4, 7, 4]])
    assert torch.equal(masks.document(ids)[:, 0], ids[:, :, None] == ids[:, None])


def test_positions_restart_where_the_document_changes():
    ids = torch.tensor([[0, 0, 1, 0, 0, 0], [2, 1, 1, 1, 5, 5]])
    expected = [[0, 1, 0, 0, 1, 2], [0, 0, 1, 2, 0, 1]]
    assert masks.reset_positions(ids).tolist() == expected
    assert masks.reset_positions(ids[:, :0]).shape == (2, 0)


LAYOUT = torch.tensor([[True, False], [True, True]])
RULES = {
    "padding": rules.padding(torch.tensor([2, 4])),
    "dilated": rules.dilated(3, 5, 2, 2),
    "prefix": rules.prefix(3, 5, 4),
    "document": rules.document(torch.tensor([[0, 0, 0, 1, 1], [2, 3, 3, 3, 3]])),
    "block_sparse": rules.block_sparse(LAYOUT, 3),
    "global_tokens": rules.global_tokens(3, 5, [0, 3]),
}


# FlexAttention counts a rule's arguments, which the shape hook hides.
@pytest.mark.compiled
@pytest.mark.parametrize("kind", RULES)
def test_flex_attention_takes_the_same_rules(kind):
    theirs = create_mask(RULES[kind], 2, 3, 3, 5, device="cpu")
    ours = masks.materialize_mask(RULES[kind], 3, 5, batch=2, heads=3)
    assert torch.equal(ours.expand(2, 3, 3, 5), theirs)


@pytest.mark.parametrize("given", conventions.CONVENTIONS)
def test_every_convention_reaches_every_other_and_comes_back(given):
    mask = masks.causal(3, 5)
    for wanted in conventions.CONVENTIONS:
        written = conventions.write_mask(mask, given)
        before = written.clone()
        moved = conventions.convert_mask(written, given=given, wanted=wanted)
        assert torch.equal(conventions.read_mask(moved, wanted), mask), wanted
        moved.fill_(0)  # a new tensor, even where the convention is the same
        assert torch.equal(written, before), wanted


def test_each_convention_has_its_documented_values():
    mask = torch.tensor([True, False])
    written = {n: conventions.write_mask(mask, n) for n in conventions.CONVENTIONS}
    assert written["drop"].tolist() == [False, True]
    assert written["additive"].tolist() == [0.0, -math.inf]
    assert written["lowest"].tolist() == [0.0, torch.finfo(torch.float32).min]
    assert written["ones"].tolist() == [1.0, 0.0]
    half = conventions.write_mask(mask, "additive", torch.float16)
    assert half.dtype == torch.float16


@pytest.mark.parametrize(
    "rule",
    [rules.causal(12, 18), rules.dilated(12, 18, 2, 5), lambda b, h, q, k: k == 5],
)
def test_a_rule_is_covered_by_the_fewest_blocks(rule):
    size = 3
    mask = masks.materialize_mask(rule, 12, 18).expand(12, 18)
    layout = layouts.cover_rule(rule, 12, 18, size)
    assert torch.equal(mask & masks.block_sparse(layout, size), mask)
    for n, m in layout.nonzero().tolist():
        rows = slice(n * size, (n + 1) * size)
        assert mask[rows, m * size : (m + 1) * size].any()


def test_random_blocks_are_new_ones_as_many_as_wanted_or_left():
    taken = layouts.bigbird_layout(11, 1, 1, 0, seed=0)
    found = layouts.random_layout(taken, 8, seed=5)
    assert not (found & taken).any()
    assert torch.equal(found.sum(-1), (~taken).sum(-1).clamp(max=8))


def test_a_window_reaches_one_window_less_one_further_with_every_layer():
    mask = masks.window(23, 23, 4)
    for layers in 1, 2, 5:
        found = layouts.receptive_field(mask, layers)
        assert torch.equal(found, masks.window(23, 23, 1 + layers * 3))


def test_a_path_is_found_as_by_following_the_graph():
    rng = torch.Generator().manual_seed(0)
    mask = torch.rand(2, 9, 9, generator=rng) < 0.15
    found = layouts.receptive_field(mask, 3)
    for b, start in ((b, t) for b in range(2) for t in range(9)):
        reached = {start}
        for _ in range(3):
            reached |= {s for t in reached for s in range(9) if bool(mask[b, t, s])}
        assert set(found[b, start].nonzero()[:, 0].tolist()) == reached


def test_masks_are_converted_between_libraries():
    """A padding mask that moves to another library must not be turned around."""
    keep = torch.tensor([True, False])
    for given in conventions.LIBRARIES:
        theirs = conventions.write_mask(keep, given)
        for wanted in conventions.LIBRARIES:
            moved = masks.convert_mask(theirs, given=given, wanted=wanted)
            assert torch.equal(conventions.read_mask(moved, wanted), keep), wanted
    module, sdpa = "torch nn.MultiheadAttention", "torch sdpa"
    assert masks.convert_mask(keep, given=module, wanted=sdpa).tolist() == [0, 1]
    numbers = torch.tensor([0.0, -math.inf])
    assert masks.convert_mask(numbers, given=module, wanted="jax").tolist() == [1, 0]
    lowest = masks.convert_mask(keep, given="jax", wanted="transformers 4-D eager")
    assert lowest.tolist() == [0, torch.finfo(torch.float32).min]
    ones = torch.tensor([1, 0])
    assert masks.convert_mask(ones, given="keras", wanted=module).tolist() == [0, 1]


ONE = torch.ones(1, dtype=torch.bool)


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: masks.padding(torch.tensor([2, 6]), 5), "S = 5, but are [2, 6]"),
        (lambda: masks.padding(torch.tensor([-1]), 5), "[-1]"),
        (lambda: masks.window(3, 3, 0), "size must be at least 1, but is 0"),
        (lambda: masks.dilated(3, 3, 1, 0), "step must be at least 1, but is 0"),
        (lambda: masks.two_sided_window(3, 3, -2), "at least 0, but is -2"),
        (lambda: masks.global_tokens(3, 5, [0, 5]), "position 5 is not one of the 5"),
        (lambda: masks.block_sparse(torch.ones(2, 2), 2), "float32 of shape (2, 2)"),
        (lambda: masks.draw_mask(ONE.expand(2, 3, 3)), "its shape is (2, 3, 3)"),
        (
            lambda: layouts.cover_rule(rules.causal(12, 13), 12, 13, 4),
            "blocks of 4 do not divide a sequence of length 13",
        ),
        (
            lambda: layouts.receptive_field(masks.causal(3, 5), 2),
            "the mask has 3 queries but 5 keys",
        ),
        (lambda: layouts.receptive_field(masks.causal(3, 3), 0), "but is 0"),
        (lambda: conventions.write_mask(torch.ones(2), "drop"), "torch.float32"),
        (lambda: conventions.read_mask(ONE, "no"), "'no' is not a convention"),
        (lambda: conventions.read_mask(torch.zeros(2), "keep"), "is torch.float32"),
        (lambda: conventions.read_mask(ONE, "additive"), "is torch.bool"),
        (
            lambda: conventions.read_mask(torch.tensor([0, -1e9]), "additive"),
            "holds -1e+09",
        ),
        (lambda: conventions.read_mask(torch.tensor([0.5]), "ones"), "holds 0.5"),
        (lambda: conventions.read_mask(torch.tensor([math.nan]), "lowest"), "nan"),
    ],
)
def test_what_does_not_fit_is_refused_with_both_values(call, message):
    with pytest.raises(ValueError, match=r".") as caught:
        call()
    assert message in str(caught.value)


def found(mask, B=2, H=3, T=5, S=5):
    query, key = torch.zeros(B, H, T, 4), torch.zeros(B, H, S, 4)
    return {f.slug for f in inspect_mask(mask, query, key)}


def test_correct_masks_have_no_findings():
    causal, padding = masks.causal(5, 5), masks.padding(torch.tensor([3, 5]), 5)
    for mask in causal, padding, causal & padding:
        assert found(mask) == set()
    assert found(masks.causal(5, 7), S=7) == set()


def test_each_mistake_is_found():
    causal = masks.causal(5, 5)
    assert found(~causal) == {"inverted", "empty-rows"}
    assert found(causal.T) == {"inverted"}
    assert found(causal.float()) == {"not-boolean"}
    assert found(torch.ones(4, 5, dtype=torch.bool)) == {"shape"}
    assert "nothing-hidden" in found(torch.ones(5, 5, dtype=torch.bool))
    lengths = torch.tensor([3, 5])
    real = torch.arange(7) < lengths[:, None]
    assert found(real, T=2, S=7) >= {"batch-as-queries"}
    per_text = causal & (torch.arange(5) < lengths[:, None])[:, None]
    assert "batch-as-heads" in found(per_text, H=2)
    assert found(masks.padding(lengths, 5).mT) >= {"queries-not-keys", "empty-rows"}
    top_left = torch.ones(3, 7, dtype=torch.bool).tril()
    assert found(top_left, T=3, S=7) == {"top-left"}
