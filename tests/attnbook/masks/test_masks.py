"""Masks: each against a loop over its definition; conventions; inspection."""

import doctest
import math

import pytest
import torch
from torch.nn.attention.flex_attention import create_mask

from attnbook import masks
from attnbook.attention.self_attention import causal_mask
from attnbook.masks import conventions, rules
from attnbook.masks.inspection import inspect_mask

SIZES = [(1, 1), (5, 5), (3, 7), (7, 3), (1, 5), (5, 1), (0, 3)]


def by_loop(T, S, rule):
    rows = [[rule(t + S - T, s) for s in range(S)] for t in range(T)]
    return torch.tensor(rows, dtype=torch.bool).reshape(T, S)


def test_the_drawings_in_the_docstrings_are_drawn():
    tried = doctest.testmod(masks, extraglobs={"torch": torch})
    assert tried.attempted >= 8
    assert tried.failed == 0


@pytest.mark.parametrize(("T", "S"), SIZES)
def test_each_mask_is_its_definition(T, S):
    same = torch.equal
    expected = by_loop(T, S, lambda t, s: s <= t)
    assert same(masks.causal(T, S), expected)
    assert same(masks.causal(T, S), causal_mask(T, S))
    expected = by_loop(T, S, lambda t, s: s in (t, t - 1, t - 2))
    assert same(masks.window(T, S, 3), expected)
    expected = by_loop(T, S, lambda t, s: s in (t, t - 2, t - 4))
    assert same(masks.dilated(T, S, 3, 2), expected)
    expected = by_loop(T, S, lambda t, s: s <= t or s < 2)
    assert same(masks.prefix(T, S, 2), expected)
    expected = by_loop(T, S, lambda t, s: s <= t and s < 2)
    assert same(masks.sinks(T, S, 2), expected)
    expected = by_loop(T, S, lambda t, s: abs(t - s) <= 2)
    assert same(masks.two_sided_window(T, S, 2), expected)
    expected = by_loop(T, S, lambda t, s: t - s in (-4, -2, 0, 2, 4))
    assert same(masks.two_sided_window(T, S, 2, step=2), expected)
    chosen = [0, S - 1]
    expected = by_loop(T, S, lambda t, s: t in chosen or s in chosen)
    assert same(masks.global_tokens(T, S, chosen), expected)
    assert not masks.global_tokens(T, S, []).any()


def test_masks_of_a_batch_have_its_axis():
    lengths = torch.tensor([0, 3, 5])
    mask = masks.padding(lengths, 5)
    assert mask.shape == (3, 1, 1, 5)
    assert mask.sum(-1).flatten().tolist() == [0, 3, 5]
    mask = masks.prefix(2, 5, torch.tensor([1, 5]))
    assert mask.shape == (2, 1, 2, 5)
    assert mask[0, 0].tolist() == masks.causal(2, 5).tolist()
    assert mask[1].all()
    ids = torch.tensor([[0, 0, 1], [4, 7, 4]])
    mask = masks.document(ids)
    assert mask.shape == (2, 1, 3, 3)
    for b in range(2):
        for t in range(3):
            for s in range(3):
                assert mask[b, 0, t, s] == (ids[b, t] == ids[b, s])


def test_positions_restart_where_the_document_changes():
    ids = torch.randint(3, (50, 11), generator=torch.Generator().manual_seed(0))
    positions = masks.reset_positions(ids).tolist()
    for row, found in zip(ids.tolist(), positions, strict=True):
        expected: list[int] = []
        for t, number in enumerate(row):
            same = t > 0 and number == row[t - 1]
            expected.append(expected[-1] + 1 if same else 0)
        assert found == expected
    assert masks.reset_positions(ids[:, :0]).shape == (50, 0)


def test_blocks_are_those_of_the_layout():
    layout = torch.tensor([[True, False, True], [False, True, False]])
    mask = masks.block_sparse(layout, 2)
    assert mask.shape == (4, 6)
    for t in range(4):
        for s in range(6):
            assert mask[t, s] == layout[t // 2, s // 2]


IDS = torch.tensor([[0, 0, 0, 1, 1], [2, 3, 3, 3, 3]])
LAYOUT = torch.tensor([[True, False], [True, True]])
KINDS = {
    "causal": rules.causal(3, 5),
    "padding": rules.padding(torch.tensor([2, 4])),
    "window": rules.window(3, 5, 2),
    "dilated": rules.dilated(3, 5, 2, 2),
    "prefix": rules.prefix(3, 5, 4),
    "prefixes": rules.prefix(3, 5, torch.tensor([0, 4])),
    "document": rules.document(IDS),
    "block_sparse": rules.block_sparse(LAYOUT, 3),
    "sinks": rules.sinks(3, 5, 1),
    "two_sided_window": rules.two_sided_window(3, 5, 2, step=2),
    "global_tokens": rules.global_tokens(3, 5, [0, 3]),
}


# FlexAttention counts a rule's arguments, which the shape hook hides.
@pytest.mark.compiled
@pytest.mark.parametrize("kind", KINDS)
def test_flex_attention_takes_the_same_rules(kind):
    theirs = create_mask(KINDS[kind], 2, 3, 3, 5, device="cpu")
    ours = masks.materialize_mask(KINDS[kind], 3, 5, batch=2, heads=3)
    assert torch.equal(ours.expand(2, 3, 3, 5), theirs)


def test_masks_combine_as_tensors_do():
    ids = torch.tensor([[0, 0, 1, 1]])
    packed = masks.causal(4, 4) & masks.document(ids)
    assert packed[0, 0].sum(-1).tolist() == [1, 2, 1, 2]
    streaming = masks.sinks(6, 6, 1) | masks.window(6, 6, 2)
    assert streaming.sum(-1).tolist() == [1, 2, 3, 3, 3, 3]
    assert (~masks.causal(3, 3)).int().tolist() == [
        [0, 1, 1],
        [0, 0, 1],
        [0] * 3,
    ]


@pytest.mark.parametrize("given", conventions.CONVENTIONS)
def test_every_convention_reaches_every_other_and_comes_back(given):
    mask = masks.causal(3, 5)
    for wanted in conventions.CONVENTIONS:
        written = conventions.write_mask(mask, given)
        before = written.clone()
        moved = conventions.convert_mask(written, given=given, wanted=wanted)
        assert torch.equal(conventions.read_mask(moved, wanted), mask), wanted
        moved.fill_(0)
        assert torch.equal(written, before), wanted


def test_each_convention_has_its_documented_values():
    mask = torch.tensor([True, False])
    written = {n: conventions.write_mask(mask, n) for n in conventions.CONVENTIONS}
    assert written["drop"].tolist() == [False, True]
    assert written["additive"].tolist() == [0.0, -math.inf]
    assert written["ones"].tolist() == [1.0, 0.0]
    half = conventions.write_mask(mask, "additive", torch.float16)
    assert half.dtype == torch.float16


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("mask", "given", "message"),
    [
        (torch.zeros(2), "nothing", "'nothing' is not a convention"),
        (torch.zeros(2), "keep", "the mask is torch.float32"),
        (torch.ones(2, dtype=torch.bool), "additive", "torch.bool"),
        (torch.tensor([0, -1e9]), "additive", "holds -1e+09"),
        (torch.tensor([0.5]), "ones", "holds 0.5"),
        (torch.tensor([math.nan]), "additive", "holds nan"),
    ],
)
def test_a_mask_that_breaks_its_convention_is_refused(mask, given, message):
    with pytest.raises(ValueError, match=r".") as caught:
        conventions.read_mask(mask, given)
    assert message in str(caught.value)


@pytest.mark.refusal
def test_bad_numbers_are_refused_with_both_values():
    for call, message in [
        (lambda: masks.padding(torch.tensor([2, 6]), 5), "S = 5"),
        (lambda: masks.padding(torch.tensor([-1]), 5), "[-1]"),
        (lambda: masks.window(3, 3, 0), "size must be at least 1, but is 0"),
        (lambda: masks.dilated(3, 3, 1, 0), "step"),
        (lambda: masks.causal(-1, 3), "T is -1"),
        (lambda: masks.two_sided_window(3, 3, -2), "at least 0, but is -2"),
        (lambda: masks.global_tokens(3, 5, [0, 5]), "position 5 is not one"),
        (lambda: masks.block_sparse(torch.ones(2, 2), 2), "float32"),
        (lambda: masks.draw_mask(torch.ones(2, 3, 3, dtype=bool)), "(2, 3, 3)"),
        (lambda: conventions.write_mask(torch.ones(2), "drop"), "float32"),
    ]:
        with pytest.raises(ValueError, match=r".") as caught:
            call()
        assert message in str(caught.value)


def found(mask, B=2, H=3, T=5, S=5):
    query, key = torch.zeros(B, H, T, 4), torch.zeros(B, H, S, 4)
    return {f.slug for f in inspect_mask(mask, query, key)}


def test_correct_masks_have_no_findings():
    assert found(masks.causal(5, 5)) == set()
    assert found(masks.causal(5, 7), S=7) == set()
    assert found(masks.padding(torch.tensor([3, 5]), 5)) == set()
    both = masks.causal(5, 5) & masks.padding(torch.tensor([3, 5]), 5)
    assert found(both) == set()


def test_each_mistake_is_found():
    causal = masks.causal(5, 5)
    assert found(~causal) == {"inverted", "empty-rows"}
    assert found(causal.T) == {"inverted"}
    assert found(masks.causal(5, 5).float()) == {"not-boolean"}
    assert found(torch.ones(4, 5, dtype=torch.bool)) == {"shape"}
    assert "nothing-hidden" in found(torch.ones(5, 5, dtype=torch.bool))
    lengths = torch.tensor([3, 5])
    real = torch.arange(7) < lengths[:, None]
    assert found(real, T=2, S=7) >= {"batch-as-queries"}
    per_text = causal & (torch.arange(5) < lengths[:, None])[:, None]
    assert "batch-as-heads" in found(per_text, H=2)
    rows = masks.padding(lengths, 5).mT
    assert "queries-not-keys" in found(rows)
    assert "empty-rows" in found(rows)
    top_left = torch.ones(3, 7, dtype=torch.bool).tril()
    assert found(top_left, T=3, S=7) == {"top-left"}


def test_inspection_changes_nothing():
    mask = masks.causal(5, 5)
    before = mask.clone()
    found(mask)
    assert torch.equal(mask, before)
