"""What stands around a page's text: its opening, its neighbours, the site.

Some of these read the built pages; `make book` comes first.
"""

import html
import re
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

from built_pages import CHAPTERS, HTML, PAGES
from workshop.book import chapter_opening, page_context, site

LINKS = [
    "https://github.com/jane/attention",
    "https://gitlab.com/jane/attention",
]

STILL = """async () => {
  const frame = () => new Promise((then) => requestAnimationFrame(then));
  let last = performance.now();
  for (let before = NaN; performance.now() - last < 500; await frame())
    if (scrollY !== before) [before, last] = [scrollY, performance.now()];
  return true;
}"""


def text(name):
    return (HTML / name).read_text("utf8")


@pytest.mark.browser
@pytest.mark.parametrize("name", CHAPTERS)
def test_a_chapter_opens_with_its_question_and_its_times(name):
    page = text(name)
    assert page.index('class="over"') < page.index("<h1>")
    card = re.search(r'<dl class="opening">.*?</dl>', page, re.S)[0]
    rows = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", card, re.S))
    assert {"Afterwards you can", "Level", "Time", "Hardware"} <= {*rows}
    assert rows["Level"] in {"Basic.", "Intermediate.", "Advanced."}
    assert "minutes" in rows["Time"]
    assert ".ipynb" in re.search(r'<p class="activities">.*?</p>', page, re.S)[0]


@pytest.mark.browser
def test_a_page_names_its_neighbours_by_their_questions():
    titles = [re.search(r"<h1>([^<]*)", text(name))[1] for name in CHAPTERS]
    for before, name, after in zip(titles, CHAPTERS[1:], titles[2:], strict=False):
        turn = re.search(r'<nav class="turn".*?</nav>', text(name), re.S)[0]
        assert f"<small>Previous</small> {before}</span>" in turn
        assert f"<small>Next</small> {after}</span>" in turn


@pytest.mark.browser
def test_the_first_page_shows_a_widget_and_every_question():
    page = text("chapters/index.html")
    widget = page.index('data-book-widget="alignment_player"')
    table = page.index("<table")
    assert widget < table
    rows = re.findall(r'<tr data-chapter="(\w+)">(.*?)</tr>', page, re.S)
    assert [f"chapters/{slug}.html" for slug, _ in rows] == CHAPTERS
    for slug, row in rows[1:]:
        heading = re.search(r"<h1>([^<]*)", text(f"chapters/{slug}.html"))[1]
        title, question = html.unescape(heading).split(": ")
        assert f"{title}</a></td>" in html.unescape(row)
        assert question.lower() in html.unescape(row).lower()
    ways = page[page.index("<h2>Three ways in") :]
    for way in ("Read", "Run", "Teach"):
        assert f"<strong>{way}.</strong>" in ways


@pytest.mark.browser
def test_the_sitemap_lists_every_page_and_the_404_page_links_home():
    tree = ElementTree.fromstring(text("sitemap.xml"))
    listed = {loc.text for loc in tree.iter() if loc.tag.endswith("loc")}
    extra = {"index.html", "search.html", "404.html"}
    assert len(listed) == len({*PAGES} - extra)
    assert {name for name in PAGES if name not in extra} == {
        x for x in PAGES if any(place.endswith(x) for place in listed)
    } - extra
    assert "chapters/index.html" in text("404.html")
    assert 'rel="icon"' in text("chapters/index.html")


@pytest.mark.parametrize("url", LINKS)
def test_the_address_of_the_site_is_that_of_github_pages(url):
    config = SimpleNamespace(
        html_theme_options={
            "use_edit_page_button": True,
            "repository_url": url,
        },
        html_baseurl="",
    )
    app = SimpleNamespace(config=config)
    known = "https://jane.github.io/attention/" if "github" in url else ""
    assert site.find_home_address(app) == known
    config.html_baseurl = "https://book.example/"
    assert site.find_home_address(app) == "https://book.example/"
    config.html_theme_options["use_edit_page_button"] = False
    assert chapter_opening.get_repository_address(app) == ""


def test_a_page_that_is_no_chapter_has_no_number():
    assert page_context.read_number("chapters/02_bahdanau") == 2
    assert page_context.read_number("chapters/evidence") is None


@pytest.mark.browser
@pytest.mark.parametrize("name", CHAPTERS)
def test_a_list_of_sections_begins_below_the_title(name):
    listed = re.search(r'<nav id="sections".*?</nav>', text(name), re.S)[0]
    links = re.findall(r'href="(#[^"]+)"', listed)
    page = text(name).partition("<article>")[2]
    ids = re.findall(r'<section[^>]* id="([^"]+)"|<section id="([^"]+)"', page)
    known = [f"#{a or b}" for a, b in ids]
    assert links == known[1:]
    assert "(core)" not in listed


@pytest.mark.browser
@pytest.mark.parametrize("width", [390, 1280])
def test_a_link_into_a_page_scrolls_to_its_heading(browser, width):
    """Parts that are not laid out yet have other heights than they will."""
    address = (HTML / next(p for p in CHAPTERS if "09_" in p)).as_uri()
    context = browser.new_context(viewport={"width": width, "height": 900})

    def lands(page, place):
        """Say where a page rests: once it has not moved for half a second."""
        page.wait_for_function(STILL)
        where = "e => e.getBoundingClientRect().top"
        return 0 <= page.locator(place).evaluate(where) <= 120

    leaderboard = "#the-leaderboard-word-to-phoneme-core"
    for place in leaderboard, "#pitfalls-deeper", "#what-we-measured":
        page = context.new_page()
        page.goto(address + place)
        assert lands(page, place)
    page = context.new_page()
    page.goto(address)
    page.evaluate("""document.querySelector('a[href="#exercises"]').click()""")
    assert lands(page, "#exercises")
    page.mouse.wheel(0, -3000)  # whoever moves on is not pulled back
    assert not lands(page, "#exercises")
    page = context.new_page()
    wrong = []
    page.on("pageerror", lambda e: wrong.append(str(e)))
    page.goto(address + "#%E0%A4%A")
    page.wait_for_function(STILL)
    assert wrong == []
    context.close()
