import pytest
import torch
from torch import nn

from attnbook.attention.recurrent import (
    AdditiveAttention,
    ConcatScore,
    DotScore,
    GeneralScore,
    LocationScore,
    ScaledDotScore,
    concat_scores,
    dot_scores,
    general_scores,
    location_scores,
)
from attnbook.models.bahdanau import BahdanauDecoder
from attnbook.models.encoder import Encoder


def drawn(*shape):
    seed = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=seed, dtype=torch.float64)


QUERY, KEY = drawn(2, 3, 7), drawn(2, 5, 11)


def test_every_score_is_its_formula_for_every_pair():
    W, V, v = drawn(7, 11), drawn(13, 18), drawn(13)
    general = general_scores(QUERY, KEY, W)
    concat = concat_scores(QUERY, KEY, V, v)
    dot = dot_scores(QUERY, KEY[..., :7])
    for b in range(2):
        for t in range(3):
            for s in range(5):
                q, k = QUERY[b, t], KEY[b, s]
                both = torch.cat([q, k])
                pairs = (
                    (general, q @ W @ k),
                    (concat, v @ torch.tanh(V @ both)),
                    (dot, q @ k[:7]),
                )
                for ours, formula in pairs:
                    torch.testing.assert_close(ours[b, t, s], formula)


def test_location_scores_depend_on_the_query_alone():
    W = drawn(6, 7)
    scores = location_scores(QUERY, W, 5)
    torch.testing.assert_close(scores, (QUERY @ W.T)[..., :5])
    longer = location_scores(QUERY, W, 8)
    assert torch.equal(longer[..., :6], QUERY @ W.T)
    assert (longer[..., 6:] == -torch.inf).all()


def test_modules_agree_with_the_functions():
    torch.manual_seed(0)
    query, key = QUERY.float(), KEY.float()
    general = GeneralScore(7, 11)
    torch.testing.assert_close(
        general(query, general.key(key)),
        general_scores(query, key, general.key.weight),
    )
    concat = ConcatScore(7, 11, 13)
    assert concat.matrix.shape == (13, 18)
    torch.testing.assert_close(
        concat(query, concat.key(key)),
        concat_scores(query, key, concat.matrix, concat.v),
    )
    dot = DotScore(7, 7)
    near = key[..., :7]
    assert torch.equal(dot(query, dot.key(near)), dot_scores(query, near))
    scaled = ScaledDotScore(7, 7)
    torch.testing.assert_close(scaled(query, near), dot(query, near) / 7**0.5)
    location = LocationScore(7, 6)
    torch.testing.assert_close(
        location(query, location.key(key)),
        location_scores(query, location.place.weight, 5),
    )


def test_concat_initializes_its_matrix_as_one():
    torch.manual_seed(0)
    one = ConcatScore(40, 60, 30).matrix
    assert 0.09 < one.abs().max().item() <= 0.1


@pytest.mark.parametrize(
    "score",
    [
        AdditiveAttention(8, 8, 5),
        DotScore(8, 8),
        GeneralScore(8, 8),
        ConcatScore(8, 8, 5),
        LocationScore(8, 9),
    ],
    ids=lambda s: type(s).__name__,
)
def test_one_line_puts_any_score_into_the_decoder_of_chapter_2(score):
    encoder = Encoder(11, 3, 4)
    decoder = BahdanauDecoder(13, 3, 8, 8, 2, alignment=5)
    decoder.attention = score
    memory = encoder(torch.randint(4, 11, (2, 6)), torch.tensor([6, 4]))
    message = decoder(torch.randint(4, 13, (2, 7)), memory)
    assert message.weights.shape == (2, 7, 6)
    assert (message.weights[1, :, 4:] == 0).all()
    message.logits.sum().backward()
    learned = [p for p in score.parameters() if p.requires_grad]
    assert all(p.grad is not None for p in learned)


@pytest.mark.refusal
def test_widths_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="query is 7 wide and the key 11"):
        dot_scores(QUERY, KEY)
    with pytest.raises(ValueError, match="query is 7 wide and the key 11"):
        DotScore(7, 11)
    with pytest.raises(ValueError, match=r"W is \(11, 7\).*\(7, 11\) wide"):
        general_scores(QUERY, KEY, drawn(11, 7))
    with pytest.raises(ValueError, match=r"width 17 but.*7 \+ 11 = 18"):
        concat_scores(QUERY, KEY, drawn(13, 17), drawn(13))


def test_a_general_score_with_the_identity_is_a_dot_score():
    key = KEY[..., :7]
    eye = torch.eye(7, dtype=torch.float64)
    assert torch.equal(general_scores(QUERY, key, eye), dot_scores(QUERY, key))
    assert not list(nn.Module.parameters(DotScore(7, 7)))
