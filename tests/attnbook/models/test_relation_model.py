import pytest
import torch

from attnbook.attention.scaled_dot_product import attend
from attnbook.attention.self_attention import self_attention
from attnbook.models.relation_model import (
    PROJECTIONS,
    RELATIONS,
    RelationModel,
    draw_relation,
    find_partner,
    find_successor,
)

B, NAMES, COLORS, C = 64, 8, 5, 7


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("relation", RELATIONS)
def test_the_answer_is_the_color_of_the_related_name(relation):
    task = draw_relation(B, NAMES, COLORS, RELATIONS[relation], rng())
    for names, colors, answer in zip(*task, strict=True):
        assert sorted(names.tolist()) == list(range(NAMES))
        color = dict(zip(names.tolist(), colors.tolist(), strict=True))
        other = RELATIONS[relation](names, NAMES).tolist()
        assert answer.tolist() == [color[name] for name in other]
    assert task.colors.unique().tolist() == list(range(COLORS))


def test_a_partners_partner_is_oneself_and_a_successors_successor_is_not():
    names = torch.arange(NAMES)
    twice = find_partner(find_partner(names, NAMES), NAMES)
    assert torch.equal(twice, names)
    assert not (find_partner(names, NAMES) == names).any()
    twice = find_successor(find_successor(names, NAMES), NAMES)
    assert not (twice == names).any()
    assert find_successor(torch.tensor(NAMES - 1), NAMES) == 0


@pytest.mark.refusal
def test_an_odd_number_of_names_has_no_pairs():
    with pytest.raises(ValueError, match="7 names do not form pairs"):
        find_partner(torch.arange(7), 7)


@pytest.mark.parametrize("version", PROJECTIONS)
def test_each_version_uses_the_projections_that_its_name_says(version):
    x, W = torch.randn(2, 5, C, generator=rng()), torch.randn(3, C, C)
    query, key, value = (x @ matrix.T for matrix in W)
    signs = torch.tensor([-1.0, 1] * C)[:C]
    expected = {
        "three projections": (query, key, value),
        "W_q = W_k": (query, query, value),
        "W_k = W_q, half negated": (query, query * signs, value),
    }[version]
    torch.testing.assert_close(PROJECTIONS[version](x, *W), attend(*expected))


def test_the_model_adds_embeddings_attends_and_reads_out():
    model = RelationModel(NAMES, COLORS, C)
    task = draw_relation(B, NAMES, COLORS, RELATIONS["partner"], rng())
    x = model.name(task.names) + model.color(task.colors)
    both = torch.cat([x, self_attention(x, *model.W)], dim=-1)
    logits = model(task.names, task.colors)
    torch.testing.assert_close(logits, model.readout(both))
