"""Three artists drew the same emoji, in the order of the names."""

import pytest
import torch

from attnbook.data.emoji import ARTISTS, list_emoji, load_emoji


@pytest.mark.parametrize("artist", ARTISTS)
def test_every_artist_drew_every_emoji_in_its_colors_and_the_right_way_up(artist):
    images, names = load_emoji(artist), [x.name for x in list_emoji()]
    assert images.shape == (len(names), 3, 20, 20) and images.dtype == torch.uint8
    assert images.amax() == 255
    red, green, _ = images[names.index("red apple")].float().mean((1, 2))
    assert red > green
    tree = (images[names.index("palm tree")] < 255).any(0)
    assert tree[:10].sum() > tree[10:].sum()  # the crown is above the trunk


@pytest.mark.refusal
def test_an_unknown_artist_is_refused():
    with pytest.raises(ValueError, match=r"no artist 'apple', only \['twitter'"):
        load_emoji("apple")
