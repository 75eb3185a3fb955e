"""The helpers of chapter 6's recorded runs: copies, penalties, removal."""

import torch

from attnbook.models.associative_recall import draw_tables
from workshop.experiments.heads import (
    build_model,
    compute_address_targets,
    copy_first_head,
    diversity_loss,
    measure_similarity,
    share_embeddings,
)
from workshop.experiments.pruning import make_pruned_measure, prune_greedily

TABLES = draw_tables(7, torch.Generator().manual_seed(0))


def test_a_seed_gives_the_same_model_and_keeps_the_global_random_state():
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    first, second = build_model(3, 8), build_model(3, 8)
    assert torch.equal(torch.rand(1), expected)
    for ours, theirs in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_only_copies_of_one_head_have_equal_weights():
    model = build_model(0, 8)
    _, before = model(TABLES)
    copy_first_head(model)
    _, after = model(TABLES)
    torch.testing.assert_close(after, after[:, :1].expand_as(after))
    torch.testing.assert_close(diversity_loss(after), torch.tensor(1.0))
    assert diversity_loss(before) < 0.99
    assert measure_similarity(model)["largest_similarity"] > 0.999


def test_heads_that_attend_to_different_items_are_not_penalised():
    apart = torch.eye(4)[None].expand(3, 4, 4)
    assert diversity_loss(apart).abs() < 1e-6


def test_equal_embeddings_cannot_be_distinguished():
    model = build_model(0, 8)
    share_embeddings(model)
    rows = model.address.weight.unflatten(0, (4, 8))
    assert torch.equal(rows, rows[:, :1].expand_as(rows))
    assert not model.address.weight.requires_grad
    assert len(model.address.weight.unique(dim=0)) == 4


def test_the_task_without_a_table_has_answers_in_range():
    target = compute_address_targets(TABLES)
    assert target.shape == TABLES.answers.shape
    assert target.max() < 16


def test_a_removed_head_contributes_nothing_and_is_restored():
    layer = torch.nn.Linear(6, 5)
    kept = layer.weight.detach().clone()
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(1))
    expected = x.clone()
    expected[:, 2:4] = 0
    got = make_pruned_measure(layer, 3, {1}, lambda: layer(x))
    torch.testing.assert_close(got, layer(expected))
    assert torch.equal(layer.weight, kept)


def test_the_greedy_order_removes_what_costs_least_first():
    layer = torch.nn.Linear(8, 1, bias=False)
    costs = torch.tensor([3.0, 1.0, 4.0, 2.0])
    with torch.no_grad():
        layer.weight.copy_(costs.repeat_interleave(2)[None])

    def lost():
        return 20 - layer.weight.sum().item()

    found = prune_greedily(layer, 4, lost, lambda: 2 * lost())
    assert found["alone"] == [12.0, 4.0, 16.0, 8.0]
    curve = found["curve"]
    assert [p["choice_error"] for p in curve] == [0, 2, 6, 12, 20]
    assert [p["error"] for p in curve] == [0, 4, 12, 24, 40]
    assert [p["gone"] for p in curve][1:4] == [[1], [1, 3], [0, 1, 3]]
