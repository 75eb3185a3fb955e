"""The recorded predictions of SmolLM2, on a tiny model without its weights.

tests/oracles/against_recorded.py compares them with the real weights.
"""

import pytest
import torch

from attnbook.models.modern_decoder import DecoderConfig, ModernDecoder
from attnbook.models.smollm2 import SHA256
from attnbook.records import read_record
from workshop.experiments import smollm2


def build():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return ModernDecoder(DecoderConfig(11, 8, 2, 1, 10, 1)).eval()


def test_the_best_symbols_have_the_largest_logits():
    model, ids = build(), [3, 1, 4]
    found = smollm2.predict_next(model, ids)
    last = model(torch.tensor([ids]))[0, -1]
    order = last.argsort(descending=True)[: smollm2.TOP]
    assert found["best"] == order.tolist()
    assert found["logits"] == pytest.approx(last[order].tolist(), abs=1e-4)
    assert found["ids"] == ids


def test_the_loss_is_that_of_the_second_half():
    model, ids = build(), torch.tensor([3, 1, 4, 1, 5, 9, 2, 6])
    likely = model(ids[None])[0].log_softmax(-1).detach()
    wanted = -sum(float(likely[t, ids[t + 1]]) for t in (4, 5, 6)) / 3
    found = smollm2.compute_second_half_loss(model, ids)
    assert found == pytest.approx(wanted, rel=1e-4)


def test_passages_follow_each_other():
    found = smollm2.split_into_passages([*range(8)], count=2, length=3)
    assert found.tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.refusal
def test_a_text_that_is_too_short_is_refused():
    with pytest.raises(ValueError, match="6 symbols, but the text has 5"):
        smollm2.split_into_passages([*range(5)], count=2, length=3)


def test_the_record_is_that_of_the_pinned_weights_and_of_the_prompts():
    record = read_record("smollm2_predictions")
    assert record["sha256"] == SHA256
    results = record["results"]
    assert [x["text"] for x in results["prompts"]] == [*smollm2.PROMPTS]
    assert len(results["passages"]) == smollm2.PASSAGES
    mean = sum(results["passages"]) / smollm2.PASSAGES
    assert results["help_text_loss"] == pytest.approx(mean, abs=1e-3)
    for one in results["prompts"]:
        assert one["logits"] == sorted(one["logits"], reverse=True)
        assert len(one["best"]) == smollm2.TOP
    first = len(results["prompts"][-1]["ids"])
    assert results["continuation"]["ids"][:first] == (results["prompts"][-1]["ids"])
