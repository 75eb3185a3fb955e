"""Attention on a picture and a sound: the numbers of Python and of the page."""

import pytest
import torch

from attnbook.data.recorded_maps import load_examples
from attnbook.models.vision import measure_mass_in_boxes
from attnbook.widgets.picture_and_sound import PictureAndSound
from javascript import Module


def test_the_mass_is_the_weight_inside_the_box():
    step = {"label": "a", "part": "b", "thousandths": [100, 200, 300, 400]}
    picture = {"kind": "picture", "title": "", "gray": ["0" * 4] * 4, "grid": [2, 2]}
    for box, mass, chance in (
        ([0, 0, 2, 2], 0.1, 0.25),
        ([0, 0, 4, 4], 1.0, 1.0),
        ([2, 1, 4, 3], 0.35, 0.25),
        ([1, 1, 3, 3], 0.25, 0.25),
    ):
        widget = PictureAndSound([picture | {"steps": [step | {"box": box}]}])
        assert widget.mass(0, 0) == pytest.approx(mass)
        assert widget.chance(0, 0) == pytest.approx(chance)
        assert f"gives {mass:.2f} of its weight" in widget.fallback()


def test_the_pages_numbers_are_the_librarys_and_the_models():
    widget, script = PictureAndSound(load_examples()), Module("picture_and_sound")
    for i, item in enumerate(widget.items):
        for s, step in enumerate(item["steps"]):
            weights = script.call("computeWeights", step)
            assert weights == pytest.approx(widget.weights(i, s).flatten().tolist())
            cover = script.call("coverBox", item, step)
            assert cover == pytest.approx(widget.cover(i, s).flatten().tolist())
            found = script.call("measureStep", item, step)
            assert found["mass"] == pytest.approx(widget.mass(i, s))
            assert found["chance"] == pytest.approx(widget.chance(i, s))
        mean = script.call("averageSteps", item)
        assert [*mean.values()] == pytest.approx([*widget.average(i)])
        if item["kind"] == "picture":
            grid = torch.tensor(weights).view(1, *item["grid"])
            box = torch.tensor([step["box"]]).round().int()
            [mass] = measure_mass_in_boxes(grid, box, len(item["gray"]))
            assert found["mass"] == pytest.approx(float(mass), abs=1e-5)
