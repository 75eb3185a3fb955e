"""A reader passes a deeper section by mouse and keyboard, on any screen."""

import pytest

from workshop.book.sections import label_contents, label_headings
from workshop.book.style import HERE

pytestmark = pytest.mark.browser

TALL = '<p style="height: 2000px">text</p></section>'
PAGE = (
    '<section id="hand"><h2>By hand <em>(core)</em></h2>' + TALL,
    '<section id="more"><h2>More <em>(deeper)</em></h2>' + TALL,
    '<section id="step"><h2>One decoder step <em>(core)</em></h2>' + TALL,
)
CONTENTS = (
    '<nav class="sections" style="display: block"><ul>'
    '<li><a href="#hand">By hand <em>(core)</em></a></li>'
    '<li><a href="#more">More <em>(deeper)</em></a></li></ul></nav>'
)
IN_VIEW = (
    "() => document.getElementById('step').getBoundingClientRect().top"
    " < innerHeight"
)


@pytest.fixture
def page(stage, tmp_path):
    style = (HERE / "book.css").read_text("utf8")
    file = tmp_path / "page.html"
    file.write_text(
        f'<!doctype html><html lang="en"><meta charset="utf8"><title>t</title>'
        f"<style>{style}</style><body>{label_contents(CONTENTS)}<article>"
        f"{label_headings(''.join(PAGE))}</article>",
        "utf8",
    )
    stage.set_viewport_size({"width": 390, "height": 800})
    stage.goto(file.as_uri())
    yield stage
    stage.set_viewport_size({"width": 900, "height": 800})


def test_a_link_leads_past_a_deeper_section(page):
    link = page.get_by_text("Skip to the next core section: One decoder step")
    assert link.bounding_box()["height"] >= 24
    link.click()
    assert page.evaluate(IN_VIEW)
    page.goto(page.url.partition("#")[0])
    assert not page.evaluate(IN_VIEW)
    link.focus()
    page.keyboard.press("Enter")
    page.wait_for_function(IN_VIEW)


def test_deeper_sections_differ_by_a_word_and_a_frame(page):
    labels = {
        word: page.locator(f"h2 .depth:text('{word}')").first
        for word in ("core", "deeper")
    }
    frames = {
        word: label.evaluate("e => getComputedStyle(e).borderTopStyle")
        for word, label in labels.items()
    }
    assert frames == {"core": "solid", "deeper": "dashed"}
    listed = page.locator(".sections li").all_text_contents()
    assert listed == ["By hand", "More deeper"]


def test_labels_and_links_fit_a_phone_and_are_not_printed(page):
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 390
    page.emulate_media(media="print")
    assert not page.locator(".past").first.is_visible()
    assert page.locator("h2 .depth").first.is_visible()
    page.emulate_media(media="null")
