"""Faults that are made on purpose, and what is counted about them."""

import pytest
import torch
from torch import nn

from attnbook.attention.grouped_query import GroupedQueryAttention
from attnbook.attention.multi_head import MultiHeadAttention
from attnbook.diagnose import measure_weight_errors
from attnbook.diagnose.head_alarms import THRESHOLDS, measure_heads
from attnbook.models.devices import use_seed
from attnbook.models.modern_decoder import DecoderConfig, ModernDecoder
from attnbook.records import read_record
from attnbook.training.losses import IGNORED_TARGET
from workshop.experiments import alarm_cases as cases
from workshop.experiments import broken_encoders as encoders
from workshop.experiments import head_alarms as alarms
from workshop.experiments import head_faults as faults

RNG = torch.Generator().manual_seed(0)
CONFIG = DecoderConfig(symbols=11, width=24, heads=6, groups=2, hidden=16, blocks=2)
IDS = torch.tensor([1, 5, 3, 7, 2, 9, 4, 8, 6, 10, 0, 3])


def make_decoder():
    with use_seed(0):
        return ModernDecoder(CONFIG).eval()


def make_layers():
    with use_seed(0):
        return {
            "theirs": nn.MultiheadAttention(24, 6, batch_first=True),
            "ours": MultiHeadAttention(24, 6),
            "grouped": GroupedQueryAttention(24, 6, 2),
        }


def test_each_word_lacks_one_letter():
    words = alarms.draw_words()
    assert (
        words.ids.shape
        == words.targets.shape
        == (
            alarms.WORDS,
            encoders.LONGEST,
        )
    )
    missing = words.ids == encoders.MISSING
    assert (missing.sum(dim=1) == 1).all()
    assert torch.equal(missing, words.targets != IGNORED_TARGET)
    assert torch.equal(words.mark_real().sum(dim=1), words.lengths)
    assert words.targets[missing].min() > encoders.MISSING


def test_the_layer_that_faults_edit_is_pytorchs():
    theirs = make_layers()["theirs"].eval()
    x = torch.randn(2, 5, 24, generator=RNG)
    hidden = torch.zeros(2, 5)
    hidden[1, 3:] = -1e9
    expected = theirs(x, x, x, hidden, average_attn_weights=False)
    theirs.__class__ = encoders.EditedAttention
    theirs.scale = 4**-0.5
    for ours, other in zip(theirs(x, x, x, hidden), expected, strict=True):
        torch.testing.assert_close(ours, other)
    theirs.__class__ = encoders.QuerySoftmaxAttention
    weights = theirs(x, x, x, hidden)[1]
    torch.testing.assert_close(weights.sum(-2), torch.ones(2, 6, 5))


@pytest.mark.long
@pytest.mark.parametrize("name", encoders.BUILDS)
def test_every_encoder_runs_and_its_fault_is_what_it_says(name):
    build, words = encoders.BUILDS[name], alarms.draw_words()
    model = encoders.train_model(build, seed=0, steps=1)
    case = cases.make_encoder_case(model, words)
    with torch.no_grad():
        assert case.run().isfinite().all()
        trained = model.train()(words.ids, words.lengths)
        torch.testing.assert_close(trained, model.eval()(*words[:2]))
    found = {test: run() for test, run in case.tests.items()}
    padded = ("padding attended to", "mask on padded queries")
    mixed = name == "batch taken for positions"
    normalized = name == "softmax over queries"
    assert (found["padding effect"] > 1e-3) == (name in padded or mixed or normalized)
    assert (found["longer padding"] > 1e-3) == (name in padded or normalized)
    assert (found["batch effect"] > 1e-3) == mixed
    assert (found["order effect"] < 1e-3) == (name == "no positions")
    invalid = cases.measure_invalid_weights(case) > 1e-3
    assert invalid == (name in padded or normalized)


@pytest.mark.long
def test_queries_stay_zero_in_training():
    build = encoders.BUILDS["queries stay zero"]
    model = encoders.train_model(build, seed=0, steps=2)
    for block in model.encoder.layers:
        queries, keys, _ = block.self_attn.in_proj_weight.chunk(3)
        assert not queries.any()
        assert not block.self_attn.in_proj_bias[: encoders.WIDTH].any()
        assert keys.any()


def test_a_heads_rows_are_those_of_its_group():
    for name, layer in make_layers().items():
        for part in ("query", "key"):
            weight, _ = faults.view_rows(layer, part, 4)
            assert weight.shape == (4, 24)
            if name == "theirs":
                whole = layer.in_proj_weight.chunk(3)[part == "key"]
            else:
                whole = getattr(layer, part).weight
            first = 4 if name == "grouped" and part == "key" else 16
            assert torch.equal(weight, whole[first : first + 4])
        assert faults.find_partner(layer, 5) == (3 if name == "grouped" else 0)


@pytest.mark.parametrize("fault", faults.HEAD_FAULTS)
@pytest.mark.parametrize("name", ["theirs", "ours", "grouped"])
def test_a_fault_changes_its_heads_only_and_is_undone(fault, name):
    layer = make_layers()[name].eval()
    x = torch.randn(2, 5, 24, generator=RNG)
    model = nn.ModuleDict({"attention": layer})

    def run():
        found = layer(x, x, x) if name == "theirs" else layer(x)
        return found[0] if isinstance(found, tuple) else found

    def measure():
        return measure_heads(model, run, effects=False)["attention"]

    before, state = (
        measure(),
        {k: v.clone() for k, v in layer.state_dict().items()},
    )
    with faults.break_heads(model, [("attention", 1)], fault, 0) as affected:
        after = measure()
    for key, values in layer.state_dict().items():
        assert torch.equal(values, state[key])
    heads = [head for _, head in affected]
    others = [head for head in range(6) if head not in heads]
    torch.testing.assert_close(before["entropy"][others], after["entropy"][others])
    if fault == "output projection zero":
        assert after["output"][1] == 0
        assert (after["output"][others] > 0).all()
    elif fault == "copy of another head":
        assert heads == [1, 2]
        torch.testing.assert_close(after["similarity"][heads], torch.ones(2))
    elif fault == "queries zero":
        torch.testing.assert_close(after["entropy"][1], torch.tensor(1.0))
    elif fault == "scores not scaled":
        assert after["entropy"][1] < before["entropy"][1]
    else:
        assert after["entropy"][1] != before["entropy"][1]


@pytest.mark.parametrize("name", faults.DECODER_FAULTS)
def test_a_decoders_fault_changes_it_and_is_undone(name):
    model = make_decoder()
    with torch.no_grad():
        before = model(IDS[None])
        with faults.DECODER_FAULTS[name](model):
            assert not torch.allclose(model(IDS[None]), before)
            case = cases.make_decoder_case(model, IDS)
            leaks = case.tests["leak"]() > 1e-3
            assert leaks == (name == "no causal mask")
            assert (cases.measure_invalid_weights(case) > 1e-3) == leaks
        assert torch.equal(model(IDS[None]), before)


def test_a_row_that_is_masked_has_no_weight_there():
    case = cases.make_decoder_case(make_decoder(), IDS)
    uniform = torch.full((1, 1, 12, 12), 1 / 12)
    errors = measure_weight_errors(uniform, case.mask)
    assert errors["hidden"] == pytest.approx(1 / 12)
    assert cases.measure_invalid_weights(case) < 1e-6


def test_thresholds_are_what_one_head_in_a_hundred_exceeds():
    rows = [
        {"entropy": torch.arange(50).div(100).tolist()},
        {"entropy": torch.arange(50, 101).div(100).tolist()},
    ]
    assert alarms.derive_thresholds(rows) == {
        "uniform": 0.99,
        "saturated": 0.01,
    }


def test_alarms_are_counted_for_broken_and_for_other_heads():
    numbers = {
        "a": {"entropy": torch.tensor([0.1, 0.9])},
        "b": {"entropy": torch.tensor([0.95, 0.5])},
    }
    limits = {"book": {"uniform": 0.9, "saturated": 0.2}}
    numbers["a"]["entropy"][1] = 0.91
    broken = {("a", 0), ("a", 1)}
    counts = alarms.count_alarms(numbers, broken, limits)
    assert counts == {"book": {"uniform": [1, 1], "saturated": [1, 0], "any": [2, 1]}}
    row = {"affected": 2, "others": 2, "raised": counts, "loss": 1.0}
    added = alarms.add_counts([row, row | {"loss": 3.0}])
    assert added == {
        "affected": 4,
        "others": 4,
        "raised": {"book": {"uniform": [2, 2], "saturated": [2, 0], "any": [4, 2]}},
        "loss": 2.0,
    }


def test_broken_heads_are_in_different_layers():
    model = make_decoder()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(alarms, "BROKEN", 2)
        heads = alarms.draw_heads(model, 0)
        assert heads == alarms.draw_heads(model, 0)
    assert {name for name, _ in heads} == {f"blocks.{i}.attention" for i in range(2)}


def test_a_decoder_is_examined_sound_and_broken(monkeypatch):
    monkeypatch.setattr(alarms, "BROKEN", 2)
    model = make_decoder()
    numbers = alarms.measure_decoder(model, IDS)
    assert {len(values) for values in numbers.values()} == {12}
    limits = {"own": alarms.derive_thresholds([numbers])}
    rows = list(alarms.examine_decoder(model, [IDS], limits))
    names = ["sound", *faults.DECODER_FAULTS, *faults.HEAD_FAULTS]
    assert [row["fault"] for row in rows] == names
    for row in rows:
        assert row["affected"] + row["others"] == 12
        assert "no effect" not in row["raised"]["own"]
    assert rows[-1]["affected"] == 2


RECORD = "head_alarms"


def test_the_librarys_thresholds_are_those_of_the_record():
    results = read_record(RECORD)["results"]
    assert results["thresholds"]["book"] == THRESHOLDS
    assert alarms.derive_thresholds(results["references"]) == THRESHOLDS
    assert results["thresholds"]["SmolLM2"] == alarms.derive_thresholds(
        [results["smollm2"]]
    )
    assert results["thresholds"]["encoder"] == alarms.derive_thresholds(
        results["encoders"]
    )


def select(model, fault, scope=None):
    found = [
        row
        for row in read_record(RECORD)["results"]["rows"]
        if (row["model"], row["fault"], row.get("scope")) == (model, fault, scope)
    ]
    assert [row["seed"] for row in found] == list(alarms.SEEDS)
    return found


def test_smollm2_raises_more_alarms_sound_than_without_its_mask():
    for sound, broken in zip(
        select("SmolLM2", "sound"),
        select("SmolLM2", "no causal mask"),
        strict=True,
    ):
        assert sound["raised"]["book"]["any"][1] > 180
        assert broken["raised"]["book"]["any"][0] < 80
        assert sound["behavior"]["leak"] == 0 < 1 < broken["behavior"]["leak"]


def test_no_test_of_behavior_fails_on_a_sound_model():
    for model in "encoder", "SmolLM2":
        for row in select(model, "sound"):
            assert row["invalid weights"] < 1e-5
            for name, found in row["behavior"].items():
                assert (found > 1) if "order" in name else (found < 1e-5)


def test_alarms_find_single_heads_where_numbers_say_so():
    exact = {
        "output projection zero": "small output",
        "queries zero": "uniform",
        "copy of another head": "similar",
    }
    for model in "encoder", "SmolLM2":
        for fault, alarm in exact.items():
            for row in select(model, fault, "head"):
                assert row["raised"]["own"][alarm][0] == row["affected"]
        random = select(model, "queries random", "head")
        found = sum(row["raised"]["book"]["any"][0] for row in random)
        assert 2 * found < sum(row["affected"] for row in random)
