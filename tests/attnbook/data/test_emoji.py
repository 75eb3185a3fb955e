"""Three artists drew the same emoji, in the order of the names."""

import pytest
import torch

from attnbook.data.emoji import (
    ARTISTS,
    COLORS,
    Emoji,
    draw_grids,
    index_words,
    list_emoji,
    load_emoji,
    mark_cell,
)


@pytest.mark.parametrize("artist", ARTISTS)
def test_every_artist_drew_every_emoji_in_its_colors_and_the_right_way_up(artist):
    images, names = load_emoji(artist), [x.name for x in list_emoji()]
    assert images.shape == (len(names), 3, 20, 20) and images.dtype == torch.uint8
    assert images.amax() == 255
    red, green, _ = images[names.index("red apple")].float().mean((1, 2))
    assert red > green
    tree = (images[names.index("palm tree")] < 255).any(0)
    assert tree[:10].sum() > tree[10:].sum()  # the crown is above the trunk


def test_every_emoji_has_a_name_and_a_character_of_its_own():
    emoji = list_emoji()
    assert emoji[0] == Emoji("🐶", "dog", "animal")
    assert len({x.name for x in emoji}) == len({x.character for x in emoji}) == 144
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
    apple = ids[names.index("red apple")].tolist()
    assert apple == [words["red"], words["apple"]]
    assert ids.amax() == len(words) - 1


def test_grids_hold_what_they_say():
    drawn = torch.stack([load_emoji(x) for x in ARTISTS]) / 255
    grids = draw_grids(20, drawn, torch.Generator().manual_seed(0))
    assert grids.images.shape == (20, 3, 48, 48)
    palette = torch.tensor([*COLORS.values()])
    for image, shown, cell, color in zip(*grids, strict=True):
        row, column = divmod(int(cell), 2)
        part = image[:, 24 * row :, 24 * column :][:, :24, :24]
        assert torch.equal(part[:, 0, 0], palette[color])
        inside = part[:, 2:-2, 2:-2]
        assert any(torch.equal(inside, x[shown]) for x in drawn)
        corners = image[:, ::24, ::24].flatten(1).T
        assert len(corners.unique(dim=0)) == 4


def test_the_positions_of_a_cell_are_a_quarter_of_the_map():
    marked = mark_cell(torch.tensor([0, 1, 2]), 4).view(3, 4, 4)
    assert marked[0, :2, :2].all() and marked[1, :2, 2:].all()
    assert marked[2, 2:, :2].all() and (marked.sum((1, 2)) == 4).all()
