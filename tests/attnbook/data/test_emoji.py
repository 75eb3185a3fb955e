"""Three artists drew the same emoji, in the order of the names."""

import pytest
import torch

from attnbook.data.emoji import ARTISTS, Emoji, list_emoji, load_emoji


@pytest.mark.parametrize("artist", ARTISTS)
def test_every_artist_drew_every_emoji_in_color(artist):
    images = load_emoji(artist)
    assert images.shape == (len(list_emoji()), 3, 20, 20)
    assert images.dtype == torch.uint8
    assert images.amax() == 255
    ink = (images < 255).any(1).float().mean((1, 2))
    assert (ink > 0.1).all()
    assert len(images.flatten(1).unique(dim=0)) == len(images)


def test_names_and_characters_are_all_different():
    emoji = list_emoji()
    assert emoji[0] == Emoji("🐶", "dog", "animal")
    assert len({x.name for x in emoji}) == len({x.character for x in emoji})
    assert len(emoji) == len({x.name for x in emoji}) == 144
    assert {x.kind for x in emoji} == {
        *("animal", "food", "nature", "thing", "vehicle")
    }
    assert all(1 <= len(x.name.split()) <= 2 for x in emoji)


def test_a_picture_resembles_those_of_its_name_by_other_artists():
    all_images = [load_emoji(x).float() for x in ARTISTS]
    for one, other in ((0, 1), (1, 2), (2, 0)):
        first, second = all_images[one], all_images[other]
        same = (first - second).abs().mean()
        shifted = (first - second.roll(1, 0)).abs().mean()
        assert same < 0.85 * shifted


@pytest.mark.refusal
def test_an_unknown_artist_is_refused():
    with pytest.raises(
        ValueError, match=r"no artist 'apple', only \['twitter'"
    ):
        load_emoji("apple")
