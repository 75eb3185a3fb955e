"""A reader passes a deeper section by mouse and keyboard, on any screen."""

import re

import pytest

from small_site import build_site, read_body
from workshop.book.style import STATIC

pytestmark = pytest.mark.browser

TEXT = """\
# A page

## By hand *(core)*

text

## More *(deeper)*

text

## One decoder step *(core)*

text
"""
TALL = "section section { min-height: 2000px }"
IN_VIEW = (
    "() => document.querySelector('#one-decoder-step-core')"
    ".getBoundingClientRect().top < innerHeight"
)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    made = build_site(folder, TEXT, ["sections", "translator"])
    assert made.returncode == 0, made.stderr
    page = (folder / "out/index.html").read_text("utf8")
    contents = re.search(r'href="#">A page</a>(<ul>.*?</ul>)', page, re.S)[1]
    style = (STATIC / "book.css").read_text("utf8")
    file = folder / "page.html"
    file.write_text(
        f'<!doctype html><html lang="en"><meta charset="utf8"><title>t</title>'
        f"<style>{style}{TALL}</style><body>"
        f'<nav class="sections" style="display: block">{contents}</nav>'
        f"<article>{read_body(folder)}</article>",
        "utf8",
    )
    return file


@pytest.fixture
def page(stage, file):
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
    assert listed == ["By hand", "More deeper", "One decoder step"]


def test_a_label_in_the_contents_stays_on_one_line(page):
    page.add_style_tag(content=".sections { width: 9rem }")
    label = page.locator(".sections .depth").first
    assert label.text_content() == "deeper"
    assert label.bounding_box()["height"] < 24


def test_labels_and_links_fit_a_phone_and_are_not_printed(page):
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 390
    page.emulate_media(media="print")
    assert not page.locator(".past").first.is_visible()
    assert page.locator("h2 .depth").first.is_visible()
    page.emulate_media(media="null")
