"""The settings of RoPE that chapter 8 compares."""

import torch

from attnbook.models.attention_only import HEAD, AttentionOnlyTransformer
from attnbook.positions.absolute import frequencies
from attnbook.positions.rotary import apply_rotary, rotate, rotate_partly
from attnbook.records import load_record
from workshop.experiments import rotary_settings
from workshop.experiments.longer_sequences import LENGTH, train
from workshop.experiments.rotary_settings import (
    PARTS,
    SETTINGS,
    USUAL,
    measure_rescaled,
    rescale_part,
)


def test_every_setting_has_one_frequency_for_each_pair():
    assert all(len(rates) == HEAD // 2 for rates in SETTINGS.values())
    assert torch.equal(SETTINGS[USUAL], frequencies(HEAD))


def test_half_of_the_columns_is_partial_rope():
    x, positions = torch.randn(1, 1, 5, HEAD), torch.arange(5)
    angle = positions[:, None] * SETTINGS["half of the columns"]
    ours = apply_rotary(x, angle)
    torch.testing.assert_close(ours, rotate_partly(x, positions, HEAD // 2))
    assert not torch.allclose(ours, rotate(x, positions))


def test_fast_and_slow_pairs_are_all_pairs():
    plain = frequencies(HEAD)
    ratio = {part: plain / rescale_part(part, 2) for part in PARTS}
    assert (ratio["all pairs"] == 2).all()
    assert torch.equal(ratio["fast pairs"] * ratio["slow pairs"], 2 + 0 * plain)
    complete = plain * LENGTH >= 2 * torch.pi
    assert torch.equal(ratio["fast pairs"] == 2, complete)


def test_a_model_is_prepared_before_it_is_trained():
    prepared = []
    model = train("copy", "rope", 0, 1, prepared.append)
    assert prepared == [model]


def test_rescaled_models_are_measured_at_the_right_length(monkeypatch):
    seen = []

    def note(model, length):
        seen.append((length, model.layers[0].attention.frequencies[-1].item()))
        return 0.5

    monkeypatch.setattr(rotary_settings, "MEASURES", {"copy": note})
    found = measure_rescaled("copy", AttentionOnlyTransformer(11, "rope", 32))
    slowest = frequencies(HEAD)[-1].item()
    for length, rate in seen[:8]:
        assert abs(slowest / rate - length / LENGTH) < 1e-3
    assert [len(x) for x in found.values()] == [4, 4, 2, 2, 2]


def test_the_usual_base_gives_the_recorded_results_of_rope():
    for task in "copy", "text":
        rows, again = (
            [
                row["found"]
                for row in load_record(f"{name}_{task}", say=False)["results"]["rows"]
                if row["method"] == method
            ]
            for name, method in (
                ("extrapolation", "rope"),
                ("rotary_settings", USUAL),
            )
        )
        assert len(rows) == len(again) == 3
        for one, other in zip(rows, again, strict=True):
            assert all(abs(a - b) < 0.02 for a, b in zip(one, other, strict=True))
