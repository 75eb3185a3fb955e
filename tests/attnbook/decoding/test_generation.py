"""Greedy and beam search against the probabilities of whole sequences."""

import itertools

import pytest
import torch
import torch.nn.functional as F

from attnbook.data.vocabulary import END, START
from attnbook.decoding.generation import beam_search, greedy_search
from small_models import LENGTHS, V, make_model, make_sources


@pytest.fixture(params=[False, True], ids=["fixed", "attention"])
def model(request):
    made = make_model(attention=request.param)
    with torch.no_grad():  # far from uniform, so that beams differ
        for parameter in made.parameters():
            parameter.mul_(4)
    return made


@torch.no_grad()
def probability(model, source, ids, ended=True):
    message = [*ids, END] if ended else list(ids)
    previous = torch.tensor([[START, *message[:-1]]])
    logits = model(source[None], torch.tensor([len(source)]), previous).logits[0]
    return -float(F.cross_entropy(logits, torch.tensor(message), reduction="sum"))


def test_greedy_search_returns_the_score_of_its_symbols(model):
    for row, found in enumerate(greedy_search(model, make_sources(), LENGTHS, limit=6)):
        source = make_sources()[row, : LENGTHS[row]]
        ended = len(found.ids) < 6
        score = probability(model, source, found.ids, ended)
        assert found.score == pytest.approx(score, abs=1e-4)
        assert END not in found.ids
        if found.weights is not None:
            rows = len(found.ids) + ended
            assert found.weights.shape == (rows, make_sources().shape[1])


def test_beam_search_of_width_one_equals_greedy_search(model):
    for row, found in enumerate(greedy_search(model, make_sources(), LENGTHS, limit=6)):
        (only,) = beam_search(model, make_sources()[row, : LENGTHS[row]], 1, limit=6)
        assert only.ids == found.ids
        assert only.score == pytest.approx(found.score, abs=1e-4)


def test_a_wide_beam_finds_the_most_probable_sequence(model):
    source, limit = make_sources()[0], 3
    symbols = [i for i in range(V) if i != END]
    best = max(
        (probability(model, source, ids), ids)
        for n in range(limit)
        for ids in itertools.product(symbols, repeat=n)
    )
    found = beam_search(model, source, width=V**limit, limit=limit)
    ended = [f for f in found if len(f.ids) < limit]
    assert ended[0].ids == best[1]
    assert ended[0].score == pytest.approx(best[0], abs=1e-4)


def test_length_power_normalizes_scores_by_length(model):
    for power in (0.0, 1.0):
        found = beam_search(model, make_sources()[0], 5, limit=6, length_power=power)
        fitness = [f.score / (len(f.ids) + 1) ** power for f in found]
        assert fitness == sorted(fitness, reverse=True)


@pytest.mark.refusal
def test_beam_width_below_one_is_refused(model):
    with pytest.raises(ValueError, match="width is 0 and limit is 64"):
        beam_search(model, make_sources()[0], width=0)
    with pytest.raises(ValueError, match="limit is 0"):
        greedy_search(model, make_sources(), LENGTHS, limit=0)
