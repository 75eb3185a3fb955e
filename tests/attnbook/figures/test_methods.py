"""Methods look the same in all chapters, and no two of a family alike."""

import itertools

import matplotlib.pyplot as plt
import pytest

from attnbook.figures import GRAY, PALETTE, get_color, get_style
from attnbook.figures.plots import FAMILIES, METHODS

pytestmark = pytest.mark.precision


def test_every_name_is_declared_once():
    assert len(METHODS) == sum(map(len, FAMILIES.values()))


def test_no_two_methods_of_a_family_look_alike_even_without_color():
    for family, methods in FAMILIES.items():
        for (_, *one), (_, *other) in itertools.combinations(methods.values(), 2):
            assert one[1] != other[1], f"the markers of {family}"
        colors = [(color, line) for color, line, _ in methods.values()]
        assert len({*colors}) == len(colors), family


def test_a_look_can_be_plotted_in_a_color_of_the_palette():
    _, ax = plt.subplots()
    for method in METHODS:
        assert get_color(method) in {*PALETTE.values(), GRAY}, method
        (line,) = ax.plot([1, 2], [3, 4], **get_style(method))
        assert line.get_label() == method
    plt.close("all")


@pytest.mark.refusal
def test_an_unknown_method_is_refused_with_those_that_are_known():
    with pytest.raises(ValueError, match=r"'none' is none .*no positions"):
        get_style("none")
