"""Pictures of a page: a diagram keeps its size and can be taken along."""

import pytest

from attnbook.figures import Diagram
from attnbook.figures.style import render_svg
from built_pages import serve
from workshop.book.images import offer_diagram

pytestmark = pytest.mark.browser

SHOWN = ("one <box>", "topic-diagram-1.svg")


@pytest.fixture
def svg():
    diagram = Diagram(10, 4)
    diagram.draw_box("state", (5, 2))
    return render_svg(diagram.fig, "one box")


def test_a_diagram_has_its_size_before_it_is_loaded(svg):
    made = offer_diagram("a1.svg", svg, *SHOWN)
    assert 'width="400" height="160"' in made
    assert 'loading="lazy"' in made
    assert 'alt="one &lt;box&gt;"' in made


def test_a_diagram_can_be_downloaded_as_svg(browser, tmp_path, svg):
    made = offer_diagram("a1.svg", svg, *SHOWN)
    (tmp_path / "page.html").write_text(made, "utf8")
    (tmp_path / "a1.svg").write_text(svg, "utf8")
    context = browser.new_context(accept_downloads=True)
    page = context.new_page()
    with serve(tmp_path) as root:
        page.goto(f"{root}page.html")
        image = page.locator("img")
        assert image.evaluate("i => i.decode().then(() => i.naturalWidth)")
        with page.expect_download() as taken:
            page.get_by_text("Download this diagram").click()
        assert taken.value.suggested_filename == "topic-diagram-1.svg"
        assert taken.value.path().read_text("utf8") == svg
    context.close()
