"""The pictures of a widget, against the record that they show."""

import pytest
import torch

from attnbook.data.cluttered_digits import CANVAS
from attnbook.data.picture_and_sound import load_examples
from attnbook.models.spatial_attention import measure_mass_in_boxes
from attnbook.records import read_record
from attnbook.widgets.picture_and_sound import PictureAndSound
from workshop.experiments import picture_and_sound as study


@pytest.fixture(scope="module")
def widget():
    return PictureAndSound(load_examples())


def test_the_record_is_what_the_other_and_the_data_give():
    fresh = study.picture_and_sound.__wrapped__()
    assert fresh["items"] == load_examples()


def test_a_pictures_mass_is_that_of_its_record(widget):
    examples = read_record("spatial_attention")["results"]["examples"]
    pictures = [x for x in widget.items if x["kind"] == "picture"]
    assert len(pictures) == len(examples) > 0
    for i, one in enumerate(examples):
        # A weight is off by at most half a thousandth, of about one in all.
        assert widget.mass(i, 0) == pytest.approx(one["mass"], abs=0.02)
        boxes = torch.tensor([one["box"]])
        weights = widget.weights(i, 0)[None].float()
        mass = measure_mass_in_boxes(weights, boxes, CANVAS)
        assert widget.mass(i, 0) == pytest.approx(float(mass), abs=1e-5)
