"""The hand-made circuit does what it says, and needs no other head."""

import pytest
import torch

from attnbook.diagnose import (
    record_attention,
    score_first_token,
    score_induction,
    score_previous_token,
)
from attnbook.models.attention_only import InductionCircuit
from attnbook.models.hooks import (
    ablate_heads,
    patch_heads,
    record_heads,
)

MODEL = InductionCircuit(13, 17)
# Start, then A B C D twice.
IDS = torch.tensor([[0, 3, 1, 4, 7, 3, 1, 4, 7]])


def weights_of(ids):
    with record_attention(MODEL) as kept:
        MODEL(ids)
    return [calls[0][0] for calls in kept.values()]


def test_it_predicts_what_followed_the_same_token():
    best = MODEL(IDS).argmax(-1)[0]
    assert best[5:8].tolist() == IDS[0, 6:].tolist()
    # The last D follows the first copy's last token: after it stood A.
    assert best[8] == 3


def test_the_scores_name_the_heads():
    first, second = weights_of(IDS)
    assert score_previous_token(first).tolist() == pytest.approx([1, 1])
    assert score_induction(second, IDS[0]).tolist() == pytest.approx([1, 0], abs=1e-6)
    assert score_first_token(second)[1].item() == pytest.approx(1)


def test_ablation_finds_the_heads_that_are_needed():
    for head in [(0, 0), (0, 1), (1, 0), (1, 1)]:
        with ablate_heads(MODEL, [head]):
            best = MODEL(IDS).argmax(-1)[0]
        assert (best[5:8].tolist() == IDS[0, 6:].tolist()) == (head[1] == 1)


def test_patching_the_previous_token_head_restores_the_prediction():
    corrupted = IDS.clone()
    corrupted[0, [1, 3]] = IDS[0, [3, 1]]  # exchange A and C in the first copy
    clean_answer, other_answer = 1, 7

    def difference(ids):
        logits = MODEL(ids[:, :6])[0, -1]
        return (logits[clean_answer] - logits[other_answer]).item()

    with record_heads(MODEL) as outputs:
        assert difference(IDS) == pytest.approx(1, abs=1e-5)
    assert difference(corrupted) == pytest.approx(-1, abs=1e-5)
    shares = {}
    for head in [(0, 0), (0, 1), (1, 0), (1, 1)]:
        with patch_heads(MODEL, [head], outputs):
            shares[head] = (difference(corrupted) + 1) / 2
    wanted = {(0, 0): 1, (0, 1): 0, (1, 0): 1, (1, 1): 0}
    assert shares == pytest.approx(wanted, abs=1e-5)


@pytest.mark.refusal
def test_a_longer_sequence_is_refused():
    with pytest.raises(ValueError, match=r"17 positions, but .* have 18"):
        MODEL(torch.zeros(1, 18, dtype=torch.long))
