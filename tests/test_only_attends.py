import pytest
import torch

from attnbook.only_attends import OnlyAttends, copying, looking_up
from attnbook.scaled_dot_product import attend

B, S, V, ASKED = 64, 7, 11, 3


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def test_to_copy_is_to_answer_with_the_symbol_of_the_place():
    task = copying(B, S, V, rng())
    assert torch.equal(task.answer, task.values.gather(1, task.asked))
    assert torch.equal(task.keys, task.asked)
    assert task.values.unique().tolist() == list(range(V))


def test_each_name_stands_once_and_its_partner_is_the_answer():
    task = looking_up(B, S, V, ASKED, rng())
    assert all(len(row.unique()) == S for row in task.keys)
    place = (task.asked[:, :, None] == task.keys[:, None]).int()
    assert (place.sum(-1) == 1).all()
    assert torch.equal(task.values.gather(1, place.argmax(-1)), task.answer)
    assert task.keys.unique().tolist() == list(range(V))


def test_the_seed_decides():
    first, same, other = (looking_up(B, S, V, 1, rng(n)) for n in (1, 1, 2))
    assert all(map(torch.equal, first, same))
    assert not torch.equal(first.values, other.values)


@pytest.mark.parametrize("scale", [None, 1.0])
def test_the_model_is_attention_and_a_readout(scale):
    model = OnlyAttends(V, V, V, width=5, value=13, scale=scale)
    task = looking_up(B, S, V, ASKED, rng())
    logits, weights = model(*task[:3])
    looked = attend(
        *(model.query(task.asked), model.key(task.keys)),
        model.value(task.values),
        scale=scale,
    )
    torch.testing.assert_close(logits, model.readout(looked))
    assert weights.shape == (B, ASKED, S)


def test_the_order_of_the_pairs_does_not_matter():
    model = OnlyAttends(V, V, V, width=5, value=13)
    asked, keys, values, _ = looking_up(B, S, V, ASKED, rng())
    turned = model(asked, keys.flip(1), values.flip(1))[0]
    torch.testing.assert_close(turned, model(asked, keys, values)[0])


@pytest.mark.refusal
def test_more_pairs_than_names_are_refused():
    with pytest.raises(ValueError, match="12 pairs need as many names, not 11"):
        looking_up(B, 12, V, 1, rng())
