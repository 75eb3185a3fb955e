"""The models of chapter 6 that share keys and values."""

import torch

from attnbook.models.associative_recall import QUERIES, SYMBOLS, draw_tables
from attnbook.models.encoder_decoder import count_parameters
from workshop.experiments.shared_heads import (
    SETTINGS,
    FreeWidthAttention,
    SharedLookupModel,
    TwoHeadSizesModel,
)

TABLES = draw_tables(7, torch.Generator().manual_seed(0))


def test_models_called_equal_have_equally_many_parameters():
    parameters = {
        count_parameters(FreeWidthAttention(64, *setting))
        for setting in SETTINGS["equal parameters"]
    }
    assert parameters == {4 * 64 * 64}
    assert {2 * G * D for _, G, D in SETTINGS["equal cache"]} == {32}
    assert {H for H, _, _ in SETTINGS["equal heads"]} == {8}


def test_heads_may_have_any_width():
    layer = FreeWidthAttention(11, heads=6, groups=2, columns=5)
    x = torch.randn(2, 3, 11)
    output, weights = layer(x, need_weights=True)
    assert output.shape == x.shape
    assert weights.shape == (2, 6, 3, 3)
    assert layer.key.weight.shape == (10, 11)


def test_both_models_answer_four_queries():
    for build in SharedLookupModel, TwoHeadSizesModel:
        logits, weights = build(6, 2, 5)(TABLES)
        assert logits.shape == (7, QUERIES, SYMBOLS)
        assert weights.shape == (7, 6, TABLES.addresses.shape[1])


def test_two_of_the_four_queries_name_a_position():
    """Items change places: only the positions in the query change."""
    model = TwoHeadSizesModel(6, 2, 5)
    with torch.no_grad():
        model.position.weight.zero_()
        before, _ = model(TABLES)
        order = torch.randperm(24, generator=torch.Generator().manual_seed(1))
        moved = TABLES._replace(
            addresses=TABLES.addresses[:, order],
            symbols=TABLES.symbols[:, order],
        )
        assert not torch.allclose(model(moved)[0], before, atol=1e-4)
        for embed in model.query_embeddings[2:]:
            embed.weight.zero_()
        before, _ = model(TABLES)
        torch.testing.assert_close(model(moved)[0], before)
