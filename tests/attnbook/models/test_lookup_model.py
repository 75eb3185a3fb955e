import pytest
import torch

from attnbook.attention.scaled_dot_product import attend
from attnbook.models.lookup_models import LookupModel, draw_copying, draw_lookup

B, S, V, ASKED = 64, 7, 11, 3


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def test_the_target_of_copying_is_the_symbol_at_the_position():
    task = draw_copying(B, S, V, rng())
    assert torch.equal(task.answer, task.values.gather(1, task.queries))
    assert torch.equal(task.keys, task.queries)
    assert task.values.unique().tolist() == list(range(V))


def test_each_name_occurs_once_and_its_partner_is_the_target():
    task = draw_lookup(B, S, V, ASKED, rng())
    assert all(len(row.unique()) == S for row in task.keys)
    place = (task.queries[:, :, None] == task.keys[:, None]).int()
    assert (place.sum(-1) == 1).all()
    assert torch.equal(task.values.gather(1, place.argmax(-1)), task.answer)
    assert task.keys.unique().tolist() == list(range(V))


@pytest.mark.parametrize("scale", [None, 1.0])
def test_the_model_is_attention_and_a_readout(scale):
    model = LookupModel(V, V, V, width=5, value=13, scale=scale)
    task = draw_lookup(B, S, V, ASKED, rng())
    logits, weights = model(*task[:3])
    attended = attend(
        *(model.query(task.queries), model.key(task.keys)),
        model.value(task.values),
        scale=scale,
    )
    torch.testing.assert_close(logits, model.readout(attended))
    assert weights.shape == (B, ASKED, S)


def test_the_order_of_the_pairs_does_not_matter():
    model = LookupModel(V, V, V, width=5, value=13)
    queries, keys, values, _ = draw_lookup(B, S, V, ASKED, rng())
    flipped = model(queries, keys.flip(1), values.flip(1))[0]
    torch.testing.assert_close(flipped, model(queries, keys, values)[0])


@pytest.mark.refusal
def test_more_pairs_than_names_are_refused():
    with pytest.raises(ValueError, match="12 pairs need as many names, not 11"):
        draw_lookup(B, 12, V, 1, rng())
