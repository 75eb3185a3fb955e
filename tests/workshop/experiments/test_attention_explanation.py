"""Tests of attention as an explanation, on a model written by hand."""

import math

import pytest
import torch

from attnbook.models.attention_classifier import (
    CLASSES,
    NAMES,
    WORDS,
    AttentionClassifier,
    EmbeddingEncoder,
    QuestionBatch,
    UniformClassifier,
    draw_question_task,
)
from attnbook.records import read_record
from workshop.experiments import attention_explanation as study

MEASURES = ["attention", "weighted value", "erasure", "gradient"]


@torch.no_grad()
def write_model(kind=AttentionClassifier):
    """Return a model that attends to the word whose name is the question.

    A state has a one-hot name and a one-hot class. The score is negative, and
    closer to 0 where the names of the question and the word are the same.
    """
    model = kind(EmbeddingEncoder(WORDS, NAMES + CLASSES), width=NAMES)
    words = torch.arange(WORDS)
    model.encoder.embed.weight.copy_(
        torch.cat(
            [torch.eye(NAMES)[words // CLASSES], torch.eye(CLASSES)[words % 4]],
            dim=1,
        )
    )
    model.question.weight.copy_(torch.eye(NAMES))
    model.attention.query.weight.copy_(torch.eye(NAMES))
    model.attention.key.weight.copy_(torch.eye(NAMES, NAMES + CLASSES))
    model.attention.v.fill_(-20.0)
    model.output.weight.zero_()
    model.output.weight[:, NAMES:] = 6 * torch.eye(CLASSES)
    model.output.bias.zero_()
    return model


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(study, "TESTED", 60)
    monkeypatch.setattr(study, "STEPS", {"question": 2, "keyword": 2})


def test_every_measure_names_the_evidence_of_a_model_written_by_hand(quick):
    found = study.summarize(study.test_model(write_model(), "question"))
    assert found["accuracy"] == 1
    assert found["evidence_weight"] > 0.99
    assert found["naming"] == dict.fromkeys(MEASURES, 1.0)
    assert found["naming_by_class"]["erasure"] == [1.0] * CLASSES


@pytest.mark.long
def test_adversarial_weights_need_another_word_of_the_class(quick):
    """The word that attention names is the only one that it can read."""
    tested = study.test_model(write_model(), "question")
    twins = study.find_twins(tested.batch)
    found = study.change_weights(tested, seed=0)
    assert 0 < found["with_twin"] == int(twins.sum()) < len(twins)
    assert found["adversarial_divergence_without"] < 0.1
    assert found["adversarial_divergence_with_twin"] > 0.6
    assert found["adversarial_divergence"] <= math.log(2)
    assert found["adversarial_change"] <= study.EPSILON
    assert found["adversarial_naming"] < 0.5 < found["shuffled_change"]


def test_another_word_has_the_class_of_the_answer():
    words = torch.tensor([[4, 9, 14], [4, 8, 15]])  # classes 0 1 2 and 0 0 3
    zero = torch.zeros(2, dtype=torch.long)
    batch = QuestionBatch(words, torch.tensor([1, 1]), zero, zero)
    assert study.find_twins(batch).tolist() == [False, True]


def test_equal_weights_have_no_order(quick):
    tested = study.test_model(write_model(UniformClassifier), "question")
    found = study.summarize(tested)
    assert found["tau"]["attention, erasure"] is None
    assert found["naming"]["attention"] < 0.5


def test_a_model_is_compared_with_another(quick):
    one = study.test_model(write_model(), "question")
    same = study.compare_models(one, one)
    assert same["output_change"] == 0
    assert same["divergence"] == pytest.approx(0, abs=1e-6)
    assert same["tau"] == pytest.approx(
        {name: 1 for name in MEASURES if name != "weighted value"}
    )
    other = study.test_model(write_model(UniformClassifier), "question")
    assert study.compare_models(other, one)["divergence"] > 0.3


def test_the_penalty_is_added_to_the_cross_entropy():
    batch = draw_question_task(9, 6, torch.Generator().manual_seed(0))
    model = write_model()
    plain, some, more = (
        float(study.train_to_answer(model, x, batch).detach()) for x in (0.0, 1.0, 2.0)
    )
    assert plain < 0.1
    assert some - plain == pytest.approx((more - plain) / 2)
    assert some > 4  # nearly all weight is on the evidence
    assert study.train_to_imitate(model, model, batch).item() == pytest.approx(
        0, abs=1e-5
    )


@pytest.mark.long
@pytest.mark.parametrize("encoder", study.ENCODERS)
def test_a_seed_trains_the_same_models_twice(quick, encoder):
    first, again, other = (
        study.run_seed("keyword", encoder, seed) for seed in (0, 0, 1)
    )
    assert [*first] == [
        *("plain", "uniform", "deceptive 0.1", "deceptive 1", "adversary")
    ]
    for name in first:
        assert torch.equal(first[name].output, again[name].output)
        assert not torch.equal(first[name].output, other[name].output)
    rows = study.summarize_seed("keyword", encoder, 0, first)
    assert [row["training"] for row in rows] == [*first]
    example = study.describe_example(first, 3)
    assert len(example["words"]) == study.LENGTH
    assert [*example["measures"]["plain"]] == MEASURES


def test_both_encoders_give_states_of_one_width():
    widths = {
        study.build_model(encoder, 0, AttentionClassifier).encoder.width
        for encoder in study.ENCODERS
    }
    assert widths == {2 * study.HIDDEN}


def list_recorded(task, encoder, training):
    rows = read_record("attention_explanation")["results"]["rows"]
    found = [
        row
        for row in rows
        if (row["task"], row["encoder"], row["training"]) == (task, encoder, training)
    ]
    assert [row["seed"] for row in found] == [*study.SEEDS]
    return found


def get_range(rows, measure):
    shares = [row["naming"][measure] for row in rows]
    return min(shares), max(shares)


def test_the_record_has_every_model_and_no_nan():
    record = read_record("attention_explanation")
    assert record["seeds"] == [*study.SEEDS]
    assert record["epsilon"] == study.EPSILON
    assert record["steps"] == study.STEPS
    rows = record["results"]["rows"]
    assert len(rows) == len(study.TASKS) * len(study.ENCODERS) * 3 * 5
    assert "NaN" not in str(rows) and "nan" not in str(rows)
    assert len(record["results"]["between_seeds"]) == 4 * 3
    assert record["cpu_s"] < 600


@pytest.mark.parametrize("encoder", study.ENCODERS)
def test_recorded_attention_names_the_word_that_a_question_needs(encoder):
    rows = list_recorded("question", encoder, "plain")
    assert min(row["accuracy"] for row in rows) == 1
    assert get_range(rows, "attention")[0] > 0.99
    assert get_range(rows, "erasure")[0] > 0.98
    uniform = list_recorded("question", encoder, "uniform")
    assert max(row["accuracy"] for row in uniform) < 0.45


def test_recorded_training_misleads_unless_states_are_single_words():
    recurrent = list_recorded("question", "recurrent", "deceptive 1")
    embedding = list_recorded("question", "embedding", "deceptive 1")
    assert min(row["accuracy"] for row in recurrent + embedding) > 0.95
    assert get_range(recurrent, "attention") == (0, 0)
    assert get_range(recurrent, "weighted value") == (0, 0)
    assert get_range(recurrent, "erasure")[0] > 0.94
    assert get_range(embedding, "attention")[0] > 0.6
    assert get_range(embedding, "weighted value")[0] > 0.98
    for row in list_recorded("keyword", "embedding", "deceptive 1"):
        assert row["accuracy"] == 1
        assert row["naming"]["attention"] == 0
        assert row["naming"]["weighted value"] == row["naming"]["erasure"]


@pytest.mark.parametrize("encoder", study.ENCODERS)
def test_recorded_adversarial_weights_move_to_words_of_the_same_class(encoder):
    for row in list_recorded("question", encoder, "plain"):
        assert row["adversarial_change"] <= study.EPSILON * 1.001
        assert row["adversarial_divergence"] > 0.8 * math.log(2)
        assert row["adversarial_divergence_with_twin"] > 0.63
        assert row["adversarial_divergence_without"] < 0.15
        assert row["adversarial_naming"] < 0.16


def test_the_recorded_adversary_succeeds_where_attention_is_not_needed():
    for task, least, most in (
        ("question", 0.06, 0.27),
        ("keyword", 0.66, math.log(2)),
    ):
        for row in list_recorded(task, "recurrent", "adversary"):
            found = row["against_plain"]
            assert found["output_change"] < 0.025
            assert least < found["divergence"] < most


def test_a_recorded_model_needs_no_evidence_of_one_class():
    """It answers by the absence of the others; erasure says the same."""
    first, *others = list_recorded("keyword", "embedding", "plain")
    assert first["accuracy"] == 1
    for name in MEASURES:
        by_class = first["naming_by_class"][name]
        assert sorted(by_class) == [0, 1, 1, 1]
        assert by_class == first["naming_by_class"]["erasure"]
    assert {row["naming"]["attention"] for row in others} == {1}


def test_recorded_rank_correlations_are_low_where_the_first_word_is_the_same():
    rows = list_recorded("question", "recurrent", "plain")
    for row in rows:
        assert 0.38 < row["tau"]["attention, erasure"] < 0.42
    between = read_record("attention_explanation")["results"]["between_seeds"]
    for row in between:
        if (row["task"], row["encoder"]) == ("question", "recurrent"):
            assert row["output_change"] < 0.001
            assert 0.27 < row["tau"]["attention"] < 0.34
            assert 0.48 < row["tau"]["erasure"] < 0.53
