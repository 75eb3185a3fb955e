"""Tests of retrieval among emoji and of questions about grids of them."""

import pytest
import torch

from attnbook.data.emoji import ARTISTS
from attnbook.models.image_text import UniformAttention
from workshop.experiments import emoji_grid, emoji_retrieval


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(emoji_retrieval, "STEPS", 2)
    monkeypatch.setattr(emoji_grid, "STEPS", 2)
    monkeypatch.setattr(emoji_retrieval, "BATCH", 4)


def test_recall_counts_the_pairs_found_in_both_directions():
    similarity = torch.eye(6)
    similarity[0, 1] = 2  # image 0 finds name 1 first; name 1 finds image 0
    found = emoji_retrieval.measure_recall(similarity)
    assert found["image to name"] == {"1": pytest.approx(5 / 6), "5": 1.0}
    assert found["name to image"]["1"] == pytest.approx(5 / 6)


def test_pixels_of_the_other_artists_find_many_names():
    for held_out in ARTISTS:
        near = emoji_retrieval.compare_pixels(held_out)
        found = emoji_retrieval.measure_recall(near)["image to name"]["1"]
        assert 0.3 < found < 0.7


def test_changed_images_stay_white_where_they_were_white():
    rng = torch.Generator().manual_seed(0)
    changed = emoji_retrieval.change_images(torch.ones(50, 3, 20, 20), rng)
    assert (changed.amax((2, 3)) - changed.amin((2, 3)) < 1e-5).all()
    assert 0.6 < changed.amin() < changed.amax() < 1.1


@pytest.mark.parametrize("encoder", emoji_retrieval.ENCODERS)
def test_a_model_is_tested_on_the_artist_whom_training_did_not_use(quick, encoder):
    model = emoji_retrieval.train_model(encoder, "noto", 0)
    found = emoji_retrieval.measure_model(model, "noto")
    assert len(found["trained"]) == 2
    assert 0 <= found["held out"]["image to name"]["5"] <= 1
    assert 0.05 < found["temperature"] < 0.1


def test_both_encoders_have_about_equally_many_parameters():
    one, other = (
        emoji_retrieval.count_parameters(make())
        for make in emoji_retrieval.ENCODERS.values()
    )
    assert abs(one - other) < 0.12 * max(one, other)


def test_a_fixed_gate_stays_0_and_others_do_not(quick):
    model = emoji_retrieval.train_model("convolutions", "noto", 0)
    image, grids = emoji_grid.draw_data(model, ["noto"], 8, 0)
    for kind, attention in emoji_grid.READERS.items():
        reader = emoji_grid.make_reader(kind, model, 0)
        assert type(reader.cross.attention) is attention
        gates = emoji_grid.train_reader(reader, image, grids, 0)
        assert (gates[-1] == 0) == (kind == "gate fixed at 0")
        found = emoji_grid.test_reader(reader, image, grids)
        if attention is UniformAttention:
            assert found["mass"] == pytest.approx(0.25)


def test_weights_are_recorded_for_grids_that_a_page_can_draw_again(quick):
    model = emoji_retrieval.train_model("convolutions", "noto", 0)
    reader = emoji_grid.make_reader("uniform weights", model, 0)
    shown = emoji_grid.show_weights(reader, model)
    assert shown == [[0.0278] * 36] * emoji_grid.SHOWN
