import torch

from attnbook.models.lookup_models import (
    ADDRESSES,
    ITEMS,
    QUERIES,
    SYMBOLS,
    AssociativeRecallModel,
    compute_lookup_loss,
    draw_tables,
)
from attnbook.models.recurrent import count_parameters
from attnbook.training.associative_recall import (
    train,
)


def test_the_answer_is_the_symbol_at_each_address():
    tables = draw_tables(50, torch.Generator().manual_seed(0))
    for addresses, symbols, queries, answers in zip(*tables, strict=True):
        table = dict(zip(addresses.tolist(), symbols.tolist(), strict=True))
        assert len(table) == ITEMS
        assert [table[a] for a in queries.tolist()] == answers.tolist()
        assert len({*queries.tolist()}) == QUERIES
    assert tables.addresses.max() < ADDRESSES
    assert tables.symbols.max() == SYMBOLS - 1


def test_the_number_of_heads_costs_no_parameters():
    assert len({count_parameters(AssociativeRecallModel(h)) for h in (1, 4, 64)}) == 1


def test_training_learns_and_is_repeated_by_its_seed():
    torch.manual_seed(0)
    first = AssociativeRecallModel(4, width=16)
    second = AssociativeRecallModel(4, width=16)
    second.load_state_dict(first.state_dict())
    tables = draw_tables(500, torch.Generator().manual_seed(1))
    before = compute_lookup_loss(first(tables)[0], tables.answers)
    train(first, 40, seed=3)
    torch.manual_seed(99)
    train(second, 40, seed=3)
    after = compute_lookup_loss(first(tables)[0], tables.answers)
    assert after < before
    again = compute_lookup_loss(second(tables)[0], tables.answers)
    assert torch.equal(after, again)


def test_weights_come_with_the_logits():
    tables = draw_tables(3, torch.Generator().manual_seed(0))
    logits, weights = AssociativeRecallModel(8)(tables)
    assert logits.shape == (3, QUERIES, SYMBOLS)
    assert weights.shape == (3, 8, ITEMS)
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 8))
