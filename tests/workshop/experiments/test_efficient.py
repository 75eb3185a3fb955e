"""The tasks and the bookkeeping of chapter 12's recorded runs."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from attnbook.attention.scaled_dot_product import attend
from attnbook.masks import causal, window
from attnbook.models.sequence_mixers import MIXERS
from attnbook.records import read_record
from attnbook.training.losses import IGNORED_TARGET
from workshop.experiments import efficient_copying as copying
from workshop.experiments import efficient_cost as cost
from workshop.experiments import efficient_language_model as language
from workshop.experiments import efficient_methods as methods
from workshop.experiments import efficient_recall as recall

RNG = torch.Generator().manual_seed(0)


class Recalls(nn.Module):
    """Predict the value that follows the key that is the query."""

    def forward(self, ids):
        pairs = ids.shape[1] // 3
        keys, values = ids[:, : 2 * pairs : 2], ids[:, 1 : 2 * pairs : 2]
        found = (ids[:, :, None] == keys[:, None]).long().argmax(-1)
        logits = nn.functional.one_hot(values.gather(1, found), 192)
        return 20.0 * logits


class Repeats(nn.Module):
    """Predict the first value of the sequence at every position."""

    def forward(self, ids):
        first = ids[:, 1:2].expand_as(ids)
        return 20.0 * nn.functional.one_hot(first, 192)


def test_each_query_is_a_key_and_wants_its_value():
    ids, wanted = recall.draw_pairs(3, 5, RNG)
    assert ids.shape == wanted.shape == (3, 15)
    assert (wanted[:, :10] == IGNORED_TARGET).all()
    for row, targets in zip(ids.tolist(), wanted.tolist(), strict=True):
        stored = dict(zip(row[:10:2], row[1:10:2], strict=True))
        assert len(stored) == 5
        assert {*row[10:]} == {*stored}
        assert targets[10:] == [stored[key] for key in row[10:]]
        assert max(stored) < recall.KEYS <= min(stored.values())


def test_a_model_that_recalls_is_right_and_one_that_guesses_is_not():
    found = recall.measure_accuracy(Recalls())["accuracy"]
    assert found == [1.0] * len(recall.PAIRS)
    assert recall.validate(Recalls()) < 1e-3
    for pairs, share in zip(
        recall.PAIRS,
        recall.measure_accuracy(Repeats())["accuracy"],
        strict=True,
    ):
        assert share == pytest.approx(
            1 / pairs + (1 - 1 / pairs) / recall.VALUES, abs=0.02
        )
        assert share < recall.compute_guessing_accuracy(pairs) + 0.01


def test_the_largest_share_of_a_value_is_the_best_guess():
    assert recall.compute_guessing_accuracy(1) == 1
    two = 0.5 + 0.5 / recall.VALUES  # both values are equal once in VALUES
    assert recall.compute_guessing_accuracy(2) == pytest.approx(two, abs=3e-3)


def test_batches_have_equally_many_tokens_and_all_numbers_of_pairs():
    rng = torch.Generator().manual_seed(0)
    shapes = {recall.draw_batch(rng)[0].shape for _ in range(40)}
    assert {T for _, T in shapes} == {3 * n for n in recall.PAIRS}
    assert {count * T for count, T in shapes} == {recall.TOKENS}


def test_test_sequences_are_not_those_that_choose_the_rate():
    model = Recalls()
    chosen, tested = (recall.draw_test(s, 8, model)[0] for s in (1, 0))
    assert not torch.equal(chosen, tested)


def test_a_copying_model_has_no_error_at_any_length():
    class Copies(nn.Module):
        def forward(self, ids):
            half = ids.shape[1] // 2
            out = torch.zeros_like(ids)
            out[:, half:] = ids[:, :half]
            return 20.0 * nn.functional.one_hot(out, copying.SYMBOLS + 1)

    assert copying.measure_errors(Copies()) == {"error": [0.0, 0.0, 0.0]}
    assert copying.validate(Copies()) < 1e-3


def train_nothing(study, method, rate, seed):
    return {
        "method": method,
        "rate": rate,
        "seed": seed,
        "steps": study.steps,
        "valid_loss": abs(rate - 1e-2),
        "wall_s": 1.0,
        "cpu_s": 1.0,
    }


def test_a_rate_is_chosen_by_the_validation_loss_alone(monkeypatch):
    monkeypatch.setattr(methods, "train_and_measure", train_nothing)
    rows = methods.train_method(recall.STUDY, "delta")
    done = [(row["rate"], row["seed"], row["steps"]) for row in rows]
    steps = recall.STEPS
    first = [(rate, 0, steps) for rate in methods.RATES]
    others = [(1e-2, 1, steps), (1e-2, 2, steps)]
    assert done == [*first, *others, (1e-2, 0, methods.TIMES * steps)]
    assert {r["rate"] for r in rows if r["chosen"]} == {1e-2}
    assert len(methods.train_method(recall.STUDY, "full")) == 5


def test_an_interrupted_recording_goes_on(monkeypatch, tmp_path):
    monkeypatch.setattr(methods, "CACHE", tmp_path)
    monkeypatch.setattr(methods, "write_record", lambda made: None)
    done = []

    def train(study, method, rate, seed):
        if len(done) == 7:
            raise KeyboardInterrupt
        done.append((method, rate, seed))
        return train_nothing(study, method, rate, seed)

    monkeypatch.setattr(methods, "train_and_measure", train)
    with pytest.raises(KeyboardInterrupt):
        methods.record_study("tried", recall.STUDY, ["full", "window"], {})
    monkeypatch.setattr(methods, "train_and_measure", train_nothing)
    made = methods.record_study(
        "tried", recall.STUDY, ["full", "window"], {"found": 1}, pairs=3
    )
    rows = made["results"]["rows"]
    assert [row["method"] for row in rows] == ["full"] * 5 + ["window"] * 5
    assert made["results"]["found"] == 1
    assert made["cpu_s"] == 10
    assert not [*tmp_path.iterdir()]


STUDIES = {
    "recall": (lambda: recall.STUDY, MIXERS),
    "copying": (lambda: copying.STUDY, copying.METHODS),
    "language": (language.make_study, language.METHODS),
}


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_compares_equally_many_parameters(name):
    make, compared = STUDIES[name]
    study = make()
    assert {*methods.count_equal_parameters(study, compared)} == {*compared}
    narrow = replace(study, sizes=study.sizes | {"width": 4, "hidden": 9})
    with pytest.raises(ValueError, match="equally many parameters"):
        methods.count_equal_parameters(narrow, compared)


@pytest.mark.long
@pytest.mark.parametrize("name", STUDIES)
def test_a_seed_trains_the_same_model_twice(name):
    study = replace(STUDIES[name][0](), steps=2)
    first, again, other = (
        methods.train_model(study, "gated delta", 1e-3, seed) for seed in (3, 3, 4)
    )
    weights = [m.readout.weight for m in (first, again, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_the_language_model_measures_what_its_softmax_looks_at(monkeypatch):
    monkeypatch.setattr(language, "TESTED", 4)
    study = language.make_study()
    looks = {}
    for method in ("full", "linear", "window, learned sink", "window, gated"):
        model = methods.build_model(study, method, 0)
        found = looks[method] = language.measure_losses(model)
        mean = sum(found["loss_by_position"]) / len(found["loss_by_position"])
        assert found["loss"] == pytest.approx(mean, rel=1e-4)
        assert len(found["loss_by_position"]) == 8
    assert {*looks["linear"]} == {"loss", "loss_by_position"}
    for method, found in looks.items():
        if method != "linear":
            assert len(found["first_late"]) == 2
            assert all(0 < x < 1 for x in found["first_early"])
    assert max(looks["window, gated"]["first_late"]) == 0
    assert max(looks["full"]["sink"]) < 1e-5
    assert min(looks["window, learned sink"]["sink"]) > 0.01
    assert all(0 < x < 1 for x in looks["window, gated"]["gate"])


@pytest.fixture
def quick(monkeypatch):
    for name, value in {
        "ROUNDS": 1,
        "PAIRS": 3,
        "WINDOW": 5,
        "BLOCK": 8,
    }.items():
        monkeypatch.setattr(cost, name, value)


def test_windows_and_standard_attention_have_their_masks(quick):
    inputs = cost.draw_inputs(32, 2)[:3]
    found = cost.list_implementations(32, 2)
    for names, mask in (
        (("standard", "sdpa"), causal(32, 32)),
        (("window, blocks", "window, sdpa"), window(32, 32, 5)),
    ):
        for name in names:
            torch.testing.assert_close(
                found[name](*inputs),
                attend(*inputs, mask),
                rtol=1e-4,
                atol=1e-5,
            )
    torch.testing.assert_close(
        found["delta, chunked"](*inputs), found["delta, recurrent"](*inputs)
    )


def test_training_and_decoding_are_measured(quick):
    found = cost.measure_training(32)
    assert {*found["ms"]} == {*found["bytes"]} == {*cost.SWEPT}
    assert found["bytes"]["standard"] > 2 * 32 * 32 * 4
    short, long = (cost.measure_decoding(n) for n in (8, 64))
    assert {*short["ms"]} == {*short["bytes"]}
    for name in ("window", "linear", "delta"):
        assert short["bytes"][name] == long["bytes"][name]
    assert long["bytes"]["sdpa"] == 8 * short["bytes"]["sdpa"]
    ratio = cost.compare_pair("delta, chunked", "delta, recurrent", 32, 2)
    assert ratio["both"]["low"] <= ratio["both"]["high"]
    assert {*ratio["bytes, both"]} == {"delta, chunked", "delta, recurrent"}


RECORDED = {
    "efficient_recall": MIXERS,
    "efficient_copying": copying.METHODS,
    "efficient_language_model": language.METHODS,
}


@pytest.mark.parametrize("name", RECORDED)
def test_the_record_has_three_seeds_at_the_rate_that_was_best(name):
    record = read_record(name)
    rows = record["results"]["rows"]
    assert {row["method"] for row in rows} == {*RECORDED[name]}
    for method in RECORDED[name]:
        own = [row for row in rows if row["method"] == method]
        swept = [row for row in own if row["seed"] == record["seeds"][0]]
        assert [row["rate"] for row in swept] == record["rates"]
        best = min(swept, key=lambda row: row["valid_loss"])["rate"]
        chosen = [row for row in own if row["chosen"]]
        assert {row["rate"] for row in chosen} == {best}
        assert [row["seed"] for row in chosen] == record["seeds"]
    for row in record["results"]["longer"]:
        assert row["steps"] == methods.TIMES * record["steps"]
    counts = record["results"]["parameters"].values()
    assert max(counts) <= 1.001 * min(counts)


def test_the_cost_record_has_every_implementation_and_length():
    record = read_record("efficient_cost")
    for length in record["lengths"]:
        training = record["results"]["training"][str(length)]
        for name, longest in record["longest"].items():
            assert (name in training["ms"]) == (length <= longest)
        assert len(record["results"]["decoding"][str(length)]["ms"]) == 5
    assert {*record["results"]["ratios"]} == {*cost.COMPARED}
