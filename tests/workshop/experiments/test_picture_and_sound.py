"""The pictures and sounds of a widget, against the records that they show."""

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


def test_the_record_is_what_the_two_others_and_the_data_give():
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


def test_the_letters_of_a_sound_are_those_of_its_words(widget):
    for one in widget.items:
        if one["kind"] == "sound":
            words = one["title"].partition(": ")[2].split()
            labels = "".join(step["label"] for step in one["steps"])
            assert labels == "".join(words)
            assert {step["part"] for step in one["steps"]} == {*words}
            columns = one["milliseconds"] / 1000 / study.PIXEL
            assert len(one["gray"][0]) == round(columns)


def test_a_spectrogram_has_low_frequencies_below_and_silence_at_the_end():
    frames = torch.zeros(6, 4)
    frames[:2, 0] = 1.0  # the lowest band, in the first 20 ms
    image = study.draw_spectrogram(frames, columns=5)
    assert image.shape == (2, 5)
    assert image[1].tolist() == [1, 0, 0, 0, 0] and not image[0].any()
    assert study.write_gray(image) == ["00000", "f0000"]


def test_other_words_than_those_of_the_record_are_refused():
    one = study.draw_utterances(study.TEST_SEED + 1, 1, (1, 1))[0]
    with pytest.raises(ValueError, match="are not"):
        study.describe_sound(1, {"words": ["none"]}, one)
