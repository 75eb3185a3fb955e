"""By keyboard, without motion, on paper: every widget of every built page.

`make book` comes first.
"""

import pytest

from built_pages import CHAPTERS, PAGES, find_pages_with
from keyboard import walk_widgets

pytestmark = pytest.mark.browser

# A widget with one button, mounted a while after the page is there.
LATE = """
<style>:focus-visible { outline: 2px solid; }</style>
<div data-book-widget="late"></div>
<script>
  setTimeout(() => {
    const place = document.querySelector("[data-book-widget]");
    place.innerHTML =
      '<div class="live"><button>Count</button><p role="status"></p></div>';
    let keys = 0;
    place.querySelector("button").addEventListener("keydown", () => {
      place.querySelector("p").textContent = ++keys;
    });
    place.dataset.state = "ready";
  }, 300);
</script>"""


def test_the_keyboard_waits_for_a_widget_that_is_mounted_late(stage):
    """As one that an answered prediction uncovers."""
    stage.set_content(LATE)
    assert walk_widgets(stage) == []


def test_the_keyboard_finds_a_widget_that_it_cannot_reach(stage):
    stage.set_content(LATE.replace("<button>", '<button tabindex="-1">'))
    assert "late: nothing to reach" in walk_widgets(stage)


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
