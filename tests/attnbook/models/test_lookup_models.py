"""Lookups: their tasks, and the models that learn them."""

import pytest
import torch
import torch.nn.functional as F

from attnbook.attention.scaled_dot_product import attend
from attnbook.attention.self_attention import self_attention
from attnbook.models.lookup_models import (
    ADDRESSES,
    ITEMS,
    QUERIES,
    RELATIONS,
    SYMBOLS,
    AssociativeRecallModel,
    LookupModel,
    RelationModel,
    draw_lookup,
    draw_relation,
    draw_tables,
    find_partner,
)
from attnbook.models.recurrent import count_parameters
from attnbook.training.associative_recall import train

B, S, V, ASKED = 64, 7, 11, 3
NAMES, COLORS, C = 8, 5, 7


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def test_each_name_occurs_once_and_its_partner_is_the_target():
    task = draw_lookup(B, S, V, ASKED, rng())
    assert all(len(row.unique()) == S for row in task.keys)
    place = (task.queries[:, :, None] == task.keys[:, None]).int()
    assert (place.sum(-1) == 1).all()
    assert torch.equal(task.values.gather(1, place.argmax(-1)), task.answer)
    assert task.keys.unique().tolist() == list(range(V))


def test_the_model_is_attention_and_a_readout():
    model = LookupModel(V, V, V, width=5, value=13, scale=0.3)
    task = draw_lookup(B, S, V, ASKED, rng())
    logits, weights = model(*task[:3])
    attended = attend(
        *(model.query(task.queries), model.key(task.keys)),
        model.value(task.values),
        scale=0.3,
    )
    torch.testing.assert_close(logits, model.readout(attended))
    assert weights.shape == (B, ASKED, S)


@pytest.mark.parametrize("relation", RELATIONS)
def test_the_answer_is_the_color_of_the_related_name(relation):
    task = draw_relation(B, NAMES, COLORS, RELATIONS[relation], rng())
    for names, colors, answer in zip(*task, strict=True):
        assert sorted(names.tolist()) == list(range(NAMES))
        color = dict(zip(names.tolist(), colors.tolist(), strict=True))
        other = {"successor": lambda x: (x + 1) % NAMES, "partner": lambda x: x ^ 1}
        wanted = [color[other[relation](name)] for name in names.tolist()]
        assert answer.tolist() == wanted
    assert task.colors.unique().tolist() == list(range(COLORS))


def test_the_model_adds_embeddings_attends_and_reads_out():
    model = RelationModel(NAMES, COLORS, C)
    task = draw_relation(B, NAMES, COLORS, RELATIONS["partner"], rng())
    x = model.name(task.names) + model.color(task.colors)
    both = torch.cat([x, self_attention(x, *model.W)], dim=-1)
    logits = model(task.names, task.colors)
    torch.testing.assert_close(logits, model.readout(both))


def test_the_answer_is_the_symbol_at_each_address():
    tables = draw_tables(50, torch.Generator().manual_seed(0))
    for addresses, symbols, queries, answers in zip(*tables, strict=True):
        table = dict(zip(addresses.tolist(), symbols.tolist(), strict=True))
        assert len(table) == ITEMS
        assert [table[a] for a in queries.tolist()] == answers.tolist()
        assert len({*queries.tolist()}) == QUERIES
    assert tables.addresses.max() < ADDRESSES
    assert tables.symbols.max() == SYMBOLS - 1


def test_weights_come_with_the_logits_and_heads_cost_no_parameters():
    logits, weights = AssociativeRecallModel(8)(draw_tables(3, rng()))
    assert logits.shape == (3, QUERIES, SYMBOLS)
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 8))
    assert len({count_parameters(AssociativeRecallModel(h)) for h in (1, 4, 64)}) == 1


def test_training_learns_and_is_repeated_by_its_seed():
    torch.manual_seed(0)
    first = AssociativeRecallModel(4, width=16)
    second = AssociativeRecallModel(4, width=16)
    second.load_state_dict(first.state_dict())
    tables = draw_tables(500, rng(1))

    def compute_loss(model):
        return F.cross_entropy(model(tables)[0].mT, tables.answers)

    before = compute_loss(first)
    train(first, 40, seed=3)
    torch.manual_seed(99)
    train(second, 40, seed=3)
    assert compute_loss(first) < before
    assert torch.equal(compute_loss(first), compute_loss(second))


@pytest.mark.refusal
def test_tasks_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="12 pairs need as many names, not 11"):
        draw_lookup(B, 12, V, 1, rng())
    with pytest.raises(ValueError, match="7 names do not form pairs"):
        find_partner(torch.arange(7), 7)
