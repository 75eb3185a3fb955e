"""Three artists drew the same emoji, in the order of the names."""

import pytest
import torch

from attnbook.data.emoji import (
    ARTISTS,
    Emoji,
    index_words,
    list_emoji,
    load_emoji,
)


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


@pytest.mark.refusal
def test_an_unknown_artist_is_refused():
    with pytest.raises(ValueError, match=r"no artist 'apple', only \['twitter'"):
        load_emoji("apple")


def test_a_name_of_one_word_consists_of_it_twice():
    words, ids = index_words()
    names = [x.name for x in list_emoji()]
    assert words["dog"] == ids[names.index("dog")][0]
    assert ids[names.index("dog")].unique().numel() == 1
    assert ids[names.index("red apple")].tolist() == [
        words["red"],
        words["apple"],
    ]
    assert ids[names.index("green apple")][1] == words["apple"]
    assert ids.amax() == len(words) - 1
