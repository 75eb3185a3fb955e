import itertools

import pytest
import torch

from attnbook.search import beam, greedy
from attnbook.vocabulary import END, START
from test_encoder_decoder import LENGTHS, V, make, sources


@pytest.fixture(params=[False, True], ids=["fixed", "attention"])
def model(request):
    made = make(attention=request.param)
    with torch.no_grad():  # far from uniform, so that beams differ
        for parameter in made.parameters():
            parameter.mul_(4)
    return made


@torch.no_grad()
def probability(model, source, ids, ended=True):
    said = [*ids, END] if ended else list(ids)
    previous = torch.tensor([[START, *said[:-1]]])
    logits = model(source[None], torch.tensor([len(source)]), previous).logits[
        0
    ]
    return float(
        logits.log_softmax(-1)[
            torch.arange(len(said)), torch.tensor(said)
        ].sum()
    )


def test_greedy_says_the_likeliest_and_scores_it(model):
    for row, found in enumerate(greedy(model, sources(), LENGTHS, limit=6)):
        source = sources()[row, : LENGTHS[row]]
        ended = len(found.ids) < 6
        score = probability(model, source, found.ids, ended)
        assert found.score == pytest.approx(score, abs=1e-4)
        assert END not in found.ids
        if found.weights is not None:
            rows = len(found.ids) + ended
            assert found.weights.shape == (rows, sources().shape[1])


def test_a_beam_of_one_is_greedy(model):
    for row, found in enumerate(greedy(model, sources(), LENGTHS, limit=6)):
        (only,) = beam(model, sources()[row, : LENGTHS[row]], 1, limit=6)
        assert only.ids == found.ids
        assert only.score == pytest.approx(found.score, abs=1e-4)


def test_a_wide_beam_finds_the_best_of_all(model):
    source, limit = sources()[0], 3
    best = max(
        (
            (probability(model, source, ids, ended=True), ids)
            for n in range(limit)
            for ids in itertools.product(
                [i for i in range(V) if i != END], repeat=n
            )
        ),
    )
    found = beam(model, source, width=V**limit, limit=limit)
    ended = [f for f in found if len(f.ids) < limit]
    assert ended[0].ids == best[1]
    assert ended[0].score == pytest.approx(best[0], abs=1e-4)


def test_scores_of_a_beam_fall(model):
    found = beam(model, sources()[0], width=5, limit=6)
    scores = [f.score for f in found]
    assert scores == sorted(scores, reverse=True)
    assert len({f.ids for f in found}) == len(found)


def test_length_counts_when_asked(model):
    found = beam(model, sources()[0], 5, limit=6, length_power=1.0)
    fitness = [f.score / (len(f.ids) + 1) for f in found]
    assert fitness == sorted(fitness, reverse=True)


@pytest.mark.refusal
def test_a_beam_that_keeps_nothing_is_refused(model):
    with pytest.raises(ValueError, match="width is 0"):
        beam(model, sources()[0], width=0)
    with pytest.raises(ValueError, match="limit is 0"):
        greedy(model, sources(), LENGTHS, limit=0)
