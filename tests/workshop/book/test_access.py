"""By keyboard, without motion, on paper: every widget of every built page.

`make book` comes first.
"""

import pytest

from built_pages import CHAPTERS, PAGES, find_pages_with

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("name", find_pages_with())
def test_the_keyboard_alone_reaches_and_works_every_widget(visits, name):
    assert visits("http", name)["walked"] == []


@pytest.mark.parametrize("name", PAGES)
def test_nothing_moves_with_reduced_motion(visits, name):
    assert visits("http", name)["moving"] == []


@pytest.mark.parametrize("name", CHAPTERS)
def test_in_print_widgets_become_figures_and_nothing_is_cut(visits, name):
    found = visits("http", name)["paper"]
    assert (found["left"], found["cut"]) == ([], [])
    assert all(letters > 40 for letters in found["places"])
    # In black on white, though the page was read in the dark.
    assert found["colours"] == ["rgb(27, 31, 36)", "rgb(255, 255, 255)"]
