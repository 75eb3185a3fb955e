"""Attention on a picture and a sound: the numbers of Python and of the page."""

import copy
import random

import pytest
import torch

from attnbook.data.picture_and_sound import load_examples
from attnbook.models.spatial_attention import measure_mass_in_boxes
from attnbook.widgets.picture_and_sound import (
    KINDS,
    PictureAndSound,
    cover_cells,
)
from javascript import Module
from widget_examples import replace_part


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


def test_a_cell_is_covered_by_what_lies_in_it():
    found = cover_cells(1.0, 5.0, cells=3, size=6)
    assert found.tolist() == pytest.approx([0.5, 1.0, 0.5])
    whole = cover_cells(0.0, 6.0, cells=4, size=6)
    assert torch.equal(whole, torch.ones(4, dtype=torch.float64))


def test_equal_weights_have_the_mass_of_chance():
    items = make_items()
    for item in items:
        for step in item["steps"]:
            step["thousandths"] = [7] * len(step["thousandths"])
    widget = PictureAndSound(items)
    for i in range(2):
        mass, chance = widget.average(i)
        assert mass == pytest.approx(chance)


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


def change(index, path, value):
    """Return items in which one part is replaced."""
    return replace_part(make_items(), [index, *path], value)


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("items", "given", "message"),
    [
        ([], {}, "item is 0, but there are 0"),
        ([{}], {}, "an item lacks 'title'"),
        (change(0, ["kind"], "video"), {}, "picture 0 is a 'video', not one"),
        (change(0, ["gray"], ["00", "0"]), {}, r"have \[1, 2\] pixels"),
        (change(0, ["gray"], ["0g"]), {}, r"the pixels \['g'\]"),
        (change(0, ["grid"], [3]), {}, "grid of picture 0 has 1 numbers"),
        (change(1, ["grid"], [1, 65]), {}, "from 1 to 64, not 65"),
        (change(1, ["steps"], []), {}, "sound 0 has 0 steps, not 1 to 80"),
        (change(1, ["milliseconds"], -1), {}, "from 0 to 60000, not -1"),
        (
            change(0, ["steps", 0, "thousandths"], [1, 2]),
            {},
            "the weights of picture 0 has 2 numbers, not 15",
        ),
        (
            change(1, ["steps", 0, "thousandths"], [0] * 9),
            {},
            "a step of sound 0 has no weight above 0",
        ),
        (
            change(0, ["steps", 0, "box"], [0, 0, 8, 3]),
            {},
            r"is \[0.0, 0.0, 8.0, 3.0\]; .* inside 7 rows and 11 columns",
        ),
        (change(0, ["steps", 0, "box"], [1, 1]), {}, "top, left, bottom"),
        (make_items(), {"item": 2}, "item is 2, but there are 2"),
        (make_items(), {"step": 1}, "step is 1, but there are 1"),
    ],
)
def test_invalid_values_are_refused(items, given, message):
    with pytest.raises(ValueError, match=message):
        PictureAndSound(items, **given)


def test_what_is_given_is_not_changed():
    items = make_items()
    before = copy.deepcopy(items)
    PictureAndSound(items, item=1, step=3)
    assert items == before


@pytest.fixture(scope="module")
def script():
    return Module("picture_and_sound")


@pytest.mark.javascript
def test_a_state_is_kept_as_it_is(script):
    for seed in range(5):
        state = PictureAndSound(make_items(seed), item=1, step=3).state()
        assert script.call("cleanState", state) == state


@pytest.mark.javascript
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


@pytest.mark.javascript
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


@pytest.mark.javascript
def test_steps_are_described_in_words(script):
    items = make_items()
    items[0]["steps"][0] |= {"thousandths": [1] * 15, "box": [0, 0, 7, 5.5]}
    items[1]["steps"][2]["box"] = [0, 4, 4, 12]
    items[1]["steps"][2]["thousandths"] = [0, 0, 1, 1, 1, 0, 0, 0, 1]
    assert script.call("describeStep", {"items": items, "item": 0, "step": 0}) == (
        "The digit is “part 0”, the model's answer “label 0”. Attention gives "
        "0.50 of its weight to the box of the digit; equal weights would give "
        "0.50."
    )
    assert script.call("describeStep", {"items": items, "item": 1, "step": 2}) == (
        "Letter 3 of 4: “label 2” of “part 2”. Attention gives 0.75 of its "
        "weight to the time of this word, 0.25 to 0.75 s; equal weights would "
        "give 0.40."
    )
    assert script.call("describeMean", items[0]) == ""
    assert script.call("describeMean", items[1]).startswith("Mean over 4 letters: ")
    place = script.call("placeBox", items[1], items[1]["steps"][2])
    assert place == pytest.approx([20, 0, 40, 100])


@pytest.mark.javascript
def test_invalid_states_are_replaced_by_valid_ones(script):
    assert script.call("cleanState", {})["items"] == []
    odd = make_items()
    odd[0] |= {
        "gray": ["F", None, "xyz"],
        "kind": "__proto__",
        "grid": ["NaN", 1e9],
    }
    odd[0]["steps"][0] |= {"box": [5, "x", 1, -2], "thousandths": [{}, 1e308]}
    made = script.call(
        "cleanState",
        {"items": [None, {"gray": ["0"]}, *odd], "item": "NaN", "step": -3},
    )
    assert (made["item"], made["step"], len(made["items"])) == (0, 0, 2)
    first = made["items"][0]
    assert first["kind"] in KINDS and first["grid"] == [1, 64]
    assert {len(row) for row in first["gray"]} == {4}
    step = first["steps"][0]
    assert step["thousandths"] == [0, 1000] + [0] * 62
    assert step["box"][0] <= step["box"][2] and step["box"][1] <= step["box"][3]
    zero = step | {"thousandths": [0] * 64}
    assert script.call("measureStep", first, zero)["mass"] == 0
