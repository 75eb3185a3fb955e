"""Layouts of blocks, and what a pattern reaches through several layers."""

import doctest

import pytest
import torch

from attnbook import masks
from attnbook.masks import layouts, rules
from attnbook.masks.layouts import (
    bigbird_layout,
    cover_rule,
    global_layout,
    random_layout,
    window_layout,
)

BLOCKS = 11


@pytest.mark.parametrize("module", [layouts])
def test_the_drawings_in_the_docstrings_are_drawn(module):
    tried = doctest.testmod(module, extraglobs={"torch": torch})
    assert tried.attempted and not tried.failed


@pytest.mark.parametrize(
    "rule",
    [
        rules.causal(12, 18),
        rules.window(12, 18, 4),
        rules.dilated(12, 18, 2, 5),
        rules.two_sided_window(12, 18, 4),
        rules.global_tokens(12, 18, [7]),
        lambda b, h, q, k: k == 5,
    ],
)
def test_a_rule_is_covered_by_the_fewest_blocks(rule):
    size = 3
    mask = masks.materialize_mask(rule, 12, 18).expand(12, 18)
    layout = cover_rule(rule, 12, 18, size)
    kept = masks.block_sparse(layout, size)
    assert torch.equal(mask & kept, mask)
    for n, m in layout.nonzero().tolist():
        rows = slice(n * size, (n + 1) * size)
        assert mask[rows, m * size : (m + 1) * size].any()


def test_the_blocks_of_a_window_cover_the_window_of_keys():
    for size, keys in (4, 9), (4, 8), (3, 1):
        reach = -(-(keys - 1) // size)
        rule = rules.window(12, 12, keys)
        blocks = 12 // size
        kept = window_layout(blocks, reach).tril()
        assert torch.equal(kept, cover_rule(rule, 12, 12, size))


def test_random_blocks_are_new_ones_and_depend_on_the_seed_alone():
    taken = window_layout(BLOCKS, 1) | global_layout(BLOCKS, 1)
    found = random_layout(taken, 3, seed=5)
    assert not (found & taken).any()
    left = (~taken).sum(-1)
    assert torch.equal(found.sum(-1), left.clamp(max=3))
    torch.manual_seed(1)
    before = torch.get_rng_state()
    assert torch.equal(random_layout(taken, 3, seed=5), found)
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.equal(random_layout(taken, 3, seed=6), found)


def test_every_free_block_is_drawn_about_equally_often():
    taken = window_layout(BLOCKS, 0)
    draws = [random_layout(taken, 2, seed) for seed in range(500)]
    share = torch.stack(draws).float().mean(0)[~taken]
    expected = 2 / (BLOCKS - 1)
    # Six standard errors of 500 draws.
    error = (expected * (1 - expected) / 500) ** 0.5
    assert ((share - expected).abs() < 6 * error).all()


def test_bigbird_has_its_three_parts():
    found = bigbird_layout(BLOCKS, 1, 2, 3, seed=0)
    fixed = window_layout(BLOCKS, 1) | global_layout(BLOCKS, 2)
    assert torch.equal(found & fixed, fixed)
    assert torch.equal((found & ~fixed), random_layout(fixed, 3, 0))


def test_a_window_reaches_one_window_less_one_further_with_every_layer():
    T, size = 23, 4
    mask = masks.window(T, T, size)
    for layers in 1, 2, 3, 5:
        found = layouts.receptive_field(mask, layers)
        whole = masks.window(T, T, 1 + layers * (size - 1))
        assert torch.equal(found, whole)
    mask = masks.two_sided_window(T, T, 2)
    found = layouts.receptive_field(mask, 3)
    assert torch.equal(found, masks.two_sided_window(T, T, 6))


def test_a_path_is_found_as_by_following_the_graph():
    rng = torch.Generator().manual_seed(0)
    mask = torch.rand(2, 9, 9, generator=rng) < 0.15
    found = layouts.receptive_field(mask, 3)
    for b, start in ((b, t) for b in range(2) for t in range(9)):
        reached = {start}
        for _ in range(3):
            reached |= {s for t in reached for s in range(9) if bool(mask[b, t, s])}
        assert set(found[b, start].nonzero()[:, 0].tolist()) == reached


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: cover_rule(rules.causal(12, 13), 12, 13, 4),
            "blocks of 4 do not divide a sequence of length 13",
        ),
        (
            lambda: cover_rule(rules.causal(12, 12), 12, 12, 0),
            "size must be at least 1, but is 0",
        ),
        (
            lambda: layouts.receptive_field(masks.causal(3, 5), 2),
            "the mask has 3 queries but 5 keys",
        ),
        (
            lambda: layouts.receptive_field(masks.causal(3, 3), 0),
            "layers must be at least 1, but is 0",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_both_values(call, message):
    with pytest.raises(ValueError, match=message):
        call()
