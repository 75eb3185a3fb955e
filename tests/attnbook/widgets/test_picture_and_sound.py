"""Attention on a picture and a sound: the numbers of Python and of the page."""

import random

import pytest
import torch

from attnbook.data.recorded_maps import load_examples
from attnbook.models.vision import measure_mass_in_boxes
from attnbook.widgets.picture_and_sound import (
    PictureAndSound,
)
from javascript import Module


def make_items(seed=0):
    """Return a picture of one step and a sound of four, with random numbers."""
    rng = random.Random(seed)

    def make(kind, size, grid, count):
        steps = []
        for s in range(count):
            top, left = (rng.uniform(0, n / 2) for n in size)
            bottom, right = rng.uniform(top + 0.1, size[0]), float(size[1])
            weights = [rng.randint(0, 1000) for _ in range(grid[0] * grid[1])]
            steps.append(
                {
                    "label": f"label {s}",
                    "part": f"part {s}",
                    "thousandths": weights,
                    "box": [round(x, 2) for x in (top, left, bottom, right)],
                }
            )
        gray = [
            "".join(rng.choice("0123456789abcdef") for _ in range(size[1]))
            for _ in range(size[0])
        ]
        title = f"{kind} {seed}"
        return {
            "kind": kind,
            "title": title,
            "gray": gray,
            "grid": [*grid],
            "milliseconds": 0 if kind == "picture" else 1250,
            "steps": steps,
        }

    return [
        make("picture", (7, 11), (3, 5), 1),
        make("sound", (4, 20), (1, 9), 4),
    ]


def test_the_mass_is_the_weight_inside_the_box():
    items = make_items()
    picture = items[0] | {"gray": ["0" * 4] * 4, "grid": [2, 2]}
    step = items[0]["steps"][0] | {"thousandths": [100, 200, 300, 400]}
    for box, mass, chance in (
        ([0, 0, 2, 2], 0.1, 0.25),
        ([0, 0, 4, 4], 1.0, 1.0),
        ([2, 1, 4, 3], 0.35, 0.25),
        ([1, 1, 3, 3], 0.25, 0.25),
    ):
        widget = PictureAndSound([picture | {"steps": [step | {"box": box}]}])
        assert widget.mass(0, 0) == pytest.approx(mass)
        assert widget.chance(0, 0) == pytest.approx(chance)


def test_the_fallback_states_a_finding_and_lists_all_items():
    widget = PictureAndSound(make_items(3), item=1, step=2)
    text = widget.fallback()
    mass, chance = widget.average(0)
    assert text.startswith(
        f"<figure><figcaption>On 1 picture, attention gives {mass:.2f} of its "
        f"weight to the true place on average (equal weights: {chance:.2f}); "
        "on 1 sound, attention gives"
    )
    assert text.count("<tr>") == 3 and "picture 3" in text


@pytest.fixture(scope="module")
def script():
    return Module("picture_and_sound")


def test_the_pages_numbers_are_the_librarys(script):
    for seed in range(5):
        widget = PictureAndSound(make_items(seed))
        for i, item in enumerate(widget.items):
            for s, step in enumerate(item["steps"]):
                weights = script.call("computeWeights", step)
                ours = widget.weights(i, s).flatten().tolist()
                assert weights == pytest.approx(ours)
                cover = script.call("coverBox", item, step)
                ours = widget.cover(i, s).flatten().tolist()
                assert cover == pytest.approx(ours)
                found = script.call("measureStep", item, step)
                assert found["mass"] == pytest.approx(widget.mass(i, s))
                assert found["chance"] == pytest.approx(widget.chance(i, s))
            mean = script.call("averageSteps", item)
            assert [*mean.values()] == pytest.approx([*widget.average(i)])


def test_the_mass_of_a_recorded_picture_is_that_of_its_model(script):
    pictures = [x for x in load_examples() if x["kind"] == "picture"]
    assert len(pictures) >= 6
    for item in pictures:
        [step] = item["steps"]
        weights = torch.tensor(script.call("computeWeights", step))
        grid = weights.view(1, *item["grid"])
        box = torch.tensor([step["box"]]).round().int()
        [mass] = measure_mass_in_boxes(grid, box, len(item["gray"]))
        found = script.call("measureStep", item, step)["mass"]
        assert found == pytest.approx(float(mass), abs=1e-5)
