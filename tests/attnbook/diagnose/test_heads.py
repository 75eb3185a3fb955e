import pytest
import torch

from attnbook.diagnose import (
    score_duplicate_token,
    score_first_token,
    score_induction,
    score_previous_token,
    uniform_causal_weights,
)
from attnbook.diagnose.heads import (
    mark_duplicate_tokens,
    mark_first_token,
    mark_induction,
    mark_previous_token,
)

RNG = torch.Generator().manual_seed(0)
# The cat saw the dog, then the cat: 0 1 2 0 3 0 1.
IDS = torch.tensor([0, 1, 2, 0, 3, 0, 1])


def one_hot(keys):
    """Return a head (1, T, T) with all weight of query t on keys[t]."""
    return torch.eye(len(keys))[torch.tensor(keys)][None]


def test_each_pattern_marks_its_keys():
    def keys(marked):
        return [row.nonzero().flatten().tolist() for row in marked]

    assert keys(mark_previous_token(4)) == [[], [0], [1], [2]]
    assert keys(mark_first_token(4)) == [[], [0], [0], [0]]
    assert keys(mark_duplicate_tokens(IDS)) == [*([], [], [], [0], [], [0, 3], [1])]
    assert keys(mark_induction(IDS)) == [[], [], [], [1], [], [1, 4], [2]]
    assert keys(mark_induction(torch.tensor([5, 5, 5]))) == [[], [1], [1, 2]]


def test_a_head_that_does_exactly_one_thing_has_score_one_for_it():
    assert score_previous_token(one_hot([0, 0, 1, 2, 3, 4, 5])) == 1
    assert score_duplicate_token(one_hot([0, 1, 2, 0, 4, 3, 1]), IDS) == 1
    assert score_induction(one_hot([0, 1, 2, 1, 4, 4, 2]), IDS) == 1
    assert score_first_token(one_hot([0] * 7)) == 1


def test_scores_without_a_marked_key_are_zero():
    weights = uniform_causal_weights(3)
    different = torch.arange(3)
    assert score_induction(weights, different).tolist() == [0]
    assert score_duplicate_token(weights, different).tolist() == [0]


def test_uniform_weights_give_the_chance_level():
    weights = uniform_causal_weights(4)
    torch.testing.assert_close(weights.sum(-1), torch.ones(1, 4))
    chance = (1 / 2 + 1 / 3 + 1 / 4) / 3
    assert score_previous_token(weights).item() == pytest.approx(chance)
    repeated = torch.tensor([7, 8, 7, 8])
    chance = (1 / 3 + 1 / 4) / 2
    assert score_induction(weights, repeated).item() == pytest.approx(chance)


@pytest.mark.refusal
def test_a_pattern_of_other_positions_is_refused():
    with pytest.raises(ValueError, match=r"queries and 5 keys .* 7 queries and 7"):
        score_induction(torch.ones(2, 5, 5), IDS)
