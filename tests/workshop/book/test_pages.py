"""The built pages in a real browser, over http and from file://.

`make book` comes first. A page is visited once over http (and there seen in
the light, in the dark, on a phone and on paper), once from file:// and once
without scripts; the tests read what was found.
"""

import re
from functools import cache
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin

import pytest

from built_pages import (
    CHAPTERS,
    HTML,
    PAGES,
    PLACE,
    find_page,
    find_pages_with,
)
from fits import SCALES, WIDTHS
from fonts import FACES, compute_expected_width

pytestmark = pytest.mark.browser
each_page = pytest.mark.parametrize("name", PAGES)
each_chapter = pytest.mark.parametrize("name", CHAPTERS)
each_mode = pytest.mark.parametrize("mode", ["light", "dark"])


def test_there_are_pages():
    assert {"index.html", "search.html", "chapters/evidence.html"} <= {*PAGES}
    assert len(CHAPTERS) >= 3


def test_a_worker_keeps_all_tests_of_a_page():
    name = CHAPTERS[0]
    file = "tests/workshop/book/test_pages.py"
    assert find_page(f"{file}::test_axe_finds[light-{name}]") == name
    assert find_page(f"{file}::test_nothing_is_cut[wide-2-390-{name}]") == name
    assert find_page(f"{file}::test_search_finds_a_word[http]") is None
    assert find_page(f"{file}::test_no_page[chapters/none.html]") is None


@each_page
@pytest.mark.parametrize("way", ["http", "file"])
def test_a_page_makes_no_external_request_and_logs_no_error(visits, way, name):
    found = visits(way, name)
    assert [s for s in found["states"] if not s.endswith(" ready")] == []
    assert found["wrong"] == []


@each_page
@each_mode
def test_axe_finds_nothing_serious(visits, name, mode):
    assert visits("http", name)[mode]["axe"] == []


@each_page
@each_mode
def test_every_text_has_enough_contrast(visits, name, mode):
    found = visits("http", name)[mode]
    assert found["texts"] > (100 if name in CHAPTERS else 5)
    assert found["poor"] == {}


@each_page
def test_headings_are_in_order_and_parts_have_names(visits, name):
    found = visits("http", name)
    levels = found["headings"]
    assert levels.count(1) == 1 and levels[0] == 1
    steps = pairwise(levels)
    assert [(a, b) for a, b in steps if b > a + 1] == []
    assert found["nameless"] == []
    assert len(found["ids"]) == len({*found["ids"]})
    assert (found["lang"], bool(found["title"])) == ("en", True)


@each_page
def test_every_formula_has_a_description_in_words(visits, name):
    found = visits("http", name)
    assert found["unsaid"] == 0
    if name in CHAPTERS[1:]:
        assert found["formulas"] > 0


@each_chapter
def test_every_picture_has_alternative_text(visits, name):
    texts = visits("http", name)["alts"]
    assert all(len(t) > 40 for t in texts), texts


@each_page
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("face", FACES)
def test_nothing_is_cut_or_overlaps(visits, name, face, scale, width):
    """With any font, on any screen, with text at 200 % as well."""
    assert visits("http", name)["unfit"][face][scale, width] == []


@each_page
@pytest.mark.parametrize("face", FACES)
def test_a_page_is_shown_in_the_fonts_that_the_tests_bring(visits, name, face):
    shown = visits("http", name)["probes"][face]
    assert shown == pytest.approx(compute_expected_width(face), rel=0.01)


@each_chapter
def test_80_columns_of_code_and_75_letters_of_prose_fit(visits, name):
    found = visits("http", name)
    assert found["columns"] <= found["room"]
    assert 60 <= found["letters"] <= 80


@each_chapter
def test_no_edge_of_a_figure_shows_in_the_dark(visits, name):
    found = visits("http", name)["dark"]
    assert found["corners"] == {found["behind"]}


@each_chapter
def test_every_chapter_has_a_quiz_and_a_fallback(name):
    text = (HTML / name).read_text("utf8")
    places = PLACE.findall(text)
    assert "quiz" in places
    assert text.count('<script type="application/json">') == len(places)
    assert "<details" in text


@cache
def anchors(path):
    return {*re.findall(r'\b(?:id|name)="([^"]+)"', path.read_text("utf8"))}


@each_page
def test_every_link_has_a_target(name):
    here = HTML / name
    text = here.read_text("utf8")
    for link in set(re.findall(r'(?:href|src)="([^"]+)"', text)):
        if re.match(r"[a-z]+:|//|#$", link) or "<" in link:
            continue
        path, anchor = urldefrag(link)
        path = path.split("?")[0]
        target = Path(unquote(urljoin(here.as_uri(), path).removeprefix("file://")))
        assert target.exists(), f"{name} links to {link}"
        if anchor and target.suffix == ".html":
            assert unquote(anchor) in anchors(target), f"{name} links to {link}"


@each_chapter
def test_formulas_are_rendered_without_javascript(name):
    text = (HTML / name).read_text("utf8")
    assert not re.search(r"<script[^>]*(mathjax|katex)", text, re.I)
    article = text.split("<article")[1].split("</article>")[0]
    prose = re.sub(r"<(script|pre|code)\b.*?</\1>", "", article, flags=re.S)
    assert not re.search(r"\$[^$<]+\$|\\\(|\\\[", prose)


@pytest.mark.parametrize("way", ["http", "file"])
def test_search_finds_a_word_of_a_chapter(opened, http_root, way):
    root = http_root if way == "http" else HTML.as_uri() + "/"
    page = opened("search.html?q=alignment", root)
    page.wait_for_selector("ul.search li a")
    links = page.eval_on_selector_all("ul.search li a", "all => all.map(a => a.href)")
    assert any("02_bahdanau" in link for link in links)
    assert page.wrong == []  # no summaries: nothing is fetched from file://


@pytest.mark.parametrize("name", CHAPTERS[:1])
def test_the_page_turns_dark_and_back(opened, name):
    page = opened(name)
    seen = set()
    for _ in range(3):
        page.locator("button.mode-button:visible").first.click()
        seen.add(page.evaluate("document.documentElement.dataset.theme"))
    assert seen == {"light", "dark"}
    page.click(".mode-button")
    chosen = page.evaluate("document.documentElement.dataset.theme")
    page.goto(page.url.replace(name, CHAPTERS[1]))
    assert page.evaluate("document.documentElement.dataset.theme") == chosen


@pytest.mark.parametrize("name", CHAPTERS[:1])
def test_one_search_field_and_a_key_that_leads_to_it(opened, name):
    page = opened(name)
    assert page.locator("input[type=search]:visible").count() == 1
    page.keyboard.press("Control+k")
    assert page.evaluate("document.activeElement.type") == "search"
    page.keyboard.type("alignment\n")
    page.wait_for_selector("ul.search li a")


@pytest.mark.parametrize("name", CHAPTERS[:1])
def test_menus_open_on_a_phone(opened, name):
    page = opened(name, viewport={"width": 320, "height": 700})
    for menu in ("menu", "sections"):
        assert not page.is_visible(f"#{menu}")
        page.focus(f".{menu}-button")
        page.keyboard.press("Enter")
        assert page.is_visible(f"#{menu}")
        page.keyboard.press("Escape")
        assert not page.is_visible(f"#{menu}")
        assert page.evaluate("document.activeElement.className").endswith(
            f"{menu}-button"
        )


@pytest.mark.parametrize("name", CHAPTERS[:1])
def test_code_can_be_copied(opened, name):
    page = opened(name, permissions=["clipboard-read", "clipboard-write"])
    cell = page.locator("div.cell_input div.highlight:visible").first
    cell.hover()
    cell.locator("button.copy").click()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.strip() == cell.locator("pre").inner_text().strip()
    assert page.inner_text("body > [role=status]") == "Copied"


@each_page
def test_the_page_reads_without_scripts(scriptless, http_root, name):
    page = scriptless
    page.goto(http_root + name)
    assert len(page.locator("main").inner_text()) > 20
    assert page.locator(".mode-button:visible").count() == 0
    for place in page.locator("[data-book-widget]").all():
        assert len(place.inner_text().strip()) > 40


@each_chapter
def test_the_download_is_the_notebook(name):
    links = re.findall(r'href="([^"]+\.ipynb)"', (HTML / name).read_text("utf8"))
    assert any((HTML / name).parent.joinpath(x).exists() for x in links)


@pytest.mark.parametrize("name", find_pages_with("alignment_player"))
def test_the_buttons_of_a_player_stay_visible_on_a_phone(opened, name):
    page = opened(name, viewport={"width": 320, "height": 900})
    player = page.locator("[data-state=ready] .ap")
    longest = player.locator("option").count() - 1
    if longest:
        player.locator("select").select_option(str(longest))
    player.evaluate("e => e.scrollIntoView({ behavior: 'instant' })")
    foot = player.locator(".ap-foot").bounding_box()
    assert 0 < foot["y"] <= 900 - foot["height"] + 1


def test_the_tables_of_the_cheat_sheet_are_whole_on_a_desk(opened):
    size = {"width": 1280, "height": 900}
    page = opened("chapters/cheat_sheet.html", viewport=size)
    tables = page.locator(".table-scroll")
    assert tables.count() == 4
    for table in tables.all():
        table.scroll_into_view_if_needed()
        assert table.evaluate("e => e.scrollWidth - e.clientWidth") <= 0
        # A section with `content-visibility` hides what leaves its padding.
        assert table.evaluate(
            "e => e.getBoundingClientRect().right "
            "<= e.closest('section').getBoundingClientRect().right"
        )


PUNCTUATION = """() => {
  const wrong = [];
  for (const formula of document.querySelectorAll("article :is(p, li) math")) {
    const text = formula.nextSibling;
    if (!text || !/^[.,;:!?)]/.test(text.data ?? "")) continue;
    const range = document.createRange();
    range.setStart(text, 0);
    range.setEnd(text, 1);
    const sign = range.getBoundingClientRect();
    if (sign.width && sign.left < formula.getBoundingClientRect().left) {
      wrong.push(`${formula.textContent} ${text.data.slice(0, 20)}`);
    }
  }
  return wrong;
}"""


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("name", CHAPTERS[6:7])
def test_no_line_begins_with_the_punctuation_after_a_formula(opened, name, width):
    page = opened(name, viewport={"width": width, "height": 900})
    assert page.locator(".together").count() > 10
    assert page.evaluate(PUNCTUATION) == []
    off = ".together { white-space: normal !important; }"
    page.add_style_tag(content=off)
    assert page.evaluate(PUNCTUATION) or width == 1280  # the reader can fail
