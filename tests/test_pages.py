"""The built pages in a real browser, over http and from file://.

`make book` comes first.
"""

import functools
import http.server
import io
import re
import threading
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin

import pytest
from PIL import Image

pytestmark = pytest.mark.browser

HTML = Path(__file__).parents[1] / "_build/html"
PAGES = sorted(
    str(p.relative_to(HTML))
    for p in HTML.rglob("*.html")
    if not {"_static", "_sources"} & {*p.parts}
)
CHAPTERS = [p for p in PAGES if re.match(r"chapters/\d\d_", p)]


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture(scope="session")
def http_root():
    handler = functools.partial(Quiet, directory=str(HTML))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()


@pytest.fixture(params=["http", "file"])
def root(request):
    if request.param == "http":
        return request.getfixturevalue("http_root")
    return HTML.as_uri() + "/"


@pytest.fixture
def opened(browser, root):
    """Open a page and note what it asks for and complains of."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})

    def open_page(name):
        page = context.new_page()
        page.wrong = []
        page.on(
            "console",
            lambda m: (
                page.wrong.append(m.text)
                if m.type in ("error", "warning")
                else None
            ),
        )
        page.on("pageerror", lambda e: page.wrong.append(str(e)))
        page.on("request", lambda r: noted(page, r.url))
        page.on(
            "requestfailed", lambda r: page.wrong.append(f"failed: {r.url}")
        )
        page.goto(root + name)
        page.wait_for_load_state("load")
        page.wait_for_function(
            "() => [...document.querySelectorAll('[data-book-widget]')]"
            ".every(e => e.dataset.state)"
        )
        return page

    def noted(page, url):
        if not url.startswith((root, "file:", "data:", "blob:")):
            page.wrong.append(f"outside: {url}")

    yield open_page
    context.close()


def test_there_are_pages():
    assert {"index.html", "search.html", "chapters/evidence.html"} <= {*PAGES}
    assert len(CHAPTERS) >= 3


@pytest.mark.parametrize("name", PAGES)
def test_a_page_asks_nobody_and_complains_of_nothing(opened, name):
    page = opened(name)
    states = page.eval_on_selector_all(
        "[data-book-widget]",
        "all => all.map(e => `${e.dataset.bookWidget} ${e.dataset.state}`)",
    )
    assert [s for s in states if not s.endswith(" ready")] == []
    assert page.wrong == []


@pytest.mark.parametrize("name", CHAPTERS)
def test_every_chapter_has_a_quiz_and_a_fallback(name):
    text = (HTML / name).read_text("utf8")
    places = re.findall(r'data-book-widget="(\w+)"', text)
    assert "quiz" in places
    assert text.count('<script type="application/json">') == len(places)
    assert "<details" in text


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name):
    here = HTML / name
    text = here.read_text("utf8")
    for link in set(re.findall(r'(?:href|src)="([^"]+)"', text)):
        if re.match(r"[a-z]+:|//|#$|javascript", link) or "<" in link:
            continue
        path, anchor = urldefrag(
            link.split("?")[0] if "#" not in link else link
        )
        path = path.split("?")[0]
        target = Path(
            unquote(urljoin(here.as_uri(), path).removeprefix("file://"))
        )
        assert target.exists(), f"{name} links to {link}"
        if anchor and target.suffix == ".html":
            found = target.read_text("utf8")
            assert re.search(
                rf'(?:id|name)="{re.escape(unquote(anchor))}"', found
            ), f"{name} links to {link}"


@pytest.mark.parametrize("name", CHAPTERS)
def test_every_picture_has_a_text(opened, name):
    page = opened(name)
    texts = page.eval_on_selector_all(
        "article img", "all => all.map(i => i.getAttribute('alt') ?? '')"
    )
    assert all(len(t) > 40 for t in texts), texts


@pytest.mark.parametrize("name", CHAPTERS)
def test_formulas_are_there_before_any_script(name):
    text = (HTML / name).read_text("utf8")
    assert not re.search(r"<script[^>]*(mathjax|katex)", text, re.I)
    article = text.split("<article")[1].split("</article>")[0]
    prose = re.sub(r"<(script|pre|code)\b.*?</\1>", "", article, flags=re.S)
    assert not re.search(r"\$[^$<]+\$|\\\(|\\\[", prose)


def test_search_finds_a_word_of_a_chapter(opened):
    page = opened("search.html?q=alignment")
    page.wait_for_selector("ul.search li a")
    links = page.eval_on_selector_all(
        "ul.search li a", "all => all.map(a => a.href)"
    )
    assert any("02_bahdanau" in link for link in links)
    assert page.wrong == []  # no summaries: from file:// nothing can be fetched


@pytest.mark.parametrize("name", CHAPTERS[:1])
def test_the_page_turns_dark_and_back(opened, name):
    page = opened(name)
    seen = set()
    for _ in range(3):
        page.locator("button.mode-button:visible").first.click()
        seen.add(page.evaluate("document.documentElement.dataset.theme"))
    assert seen == {"light", "dark"}


@pytest.mark.parametrize("name", CHAPTERS[:1])
def test_there_is_one_search_and_no_dead_button(opened, name):
    page = opened(name)
    visible = page.locator("button:visible, a.btn:visible")
    labels = []
    for i in range(visible.count()):
        button = visible.nth(i)
        labels.append(
            button.get_attribute("aria-label")
            or button.get_attribute("title")
            or button.inner_text()
        )
    assert all(x and x.strip() for x in labels), labels
    assert page.locator("input[type=search]:visible").count() == 1
    page.keyboard.press("Control+k")
    assert page.evaluate("document.activeElement.type") == "search"
    page.keyboard.type("alignment\n")
    page.wait_for_selector("ul.search li a")


@pytest.mark.parametrize("name", CHAPTERS[:1])
def test_code_can_be_copied(browser, http_root, name):
    context = browser.new_context(
        permissions=["clipboard-read", "clipboard-write"]
    )
    page = context.new_page()
    page.goto(http_root + name)
    cell = page.locator("div.cell_input div.highlight").first
    cell.hover()
    cell.locator("button.copy").click()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.strip() == cell.locator("pre").inner_text().strip()
    context.close()


@pytest.mark.parametrize("name", CHAPTERS)
@pytest.mark.parametrize("width", [320, 390])
def test_text_fits_a_phone(opened, name, width):
    page = opened(name)
    page.set_viewport_size({"width": width, "height": 800})
    over = page.evaluate(
        "document.documentElement.scrollWidth - window.innerWidth"
    )
    assert over <= 0


@pytest.mark.parametrize("name", CHAPTERS)
def test_the_page_reads_without_scripts(browser, http_root, name):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(http_root + name)
    for place in page.locator("[data-book-widget]").all():
        assert len(place.inner_text().strip()) > 40
    context.close()


def test_the_download_is_the_notebook():
    for name in CHAPTERS:
        links = re.findall(
            r'href="([^"]+\.ipynb)"', (HTML / name).read_text("utf8")
        )
        assert any((HTML / name).parent.joinpath(x).exists() for x in links)


CONTRASTS = """() => {
  const parse = (c) => {
    const m = c.match(/[\\d.]+/g).map(Number);
    return m.length < 4 ? [...m, 1] : m;
  };
  const over = (a, b) => a.map((x, i) => x * a[3] + b[i] * (1 - a[3]));
  const light = (c) => {
    const f = c.slice(0, 3).map((x) => x / 255).map((x) =>
      x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
    return 0.2126 * f[0] + 0.7152 * f[1] + 0.0722 * f[2];
  };
  const colour = (e, what) => parse(getComputedStyle(e)[what]);
  const behind = (e) =>
    e ? over(colour(e, "backgroundColor"), behind(e.parentElement))
      : [255, 255, 255, 1];
  const article = document.querySelector("article");
  const texts = document.createTreeWalker(article, NodeFilter.SHOW_TEXT);
  const poor = {};
  let count = 0;
  while (texts.nextNode()) {
    const e = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || !e.checkVisibility()) continue;
    if (e.matches("script, style, annotation, .headerlink")) continue;
    const back = behind(e);
    const two = [light(back), light(over(colour(e, "color"), back))];
    const ratio = (Math.max(...two) + 0.05) / (Math.min(...two) + 0.05);
    count += 1;
    if (ratio < 4.5) poor[`${e.className} ${e.tagName}`] = ratio;
  }
  return [count, poor];
}"""


@pytest.fixture
def page_in(browser, http_root):
    """Open a page in a mode, light or dark."""
    contexts = []

    def open_page(name, mode="light", width=1280):
        contexts.append(
            browser.new_context(
                color_scheme=mode, viewport={"width": width, "height": 900}
            )
        )
        page = contexts[-1].new_page()
        page.goto(http_root + name)
        page.wait_for_function(
            f"document.documentElement.dataset.theme=='{mode}'"
        )
        return page

    yield open_page
    for context in contexts:
        context.close()


@pytest.mark.parametrize("name", CHAPTERS)
@pytest.mark.parametrize("mode", ["light", "dark"])
def test_every_text_stands_out_from_what_is_behind_it(page_in, name, mode):
    count, poor = page_in(name, mode).evaluate(CONTRASTS)
    assert count > 100
    assert poor == {}


@pytest.mark.parametrize("name", CHAPTERS)
def test_80_columns_of_code_and_75_letters_of_prose_fit_a_laptop(page_in, name):
    page = page_in(name)
    room, columns = page.locator("div.cell_input pre").first.evaluate(
        """pre => {
          const style = getComputedStyle(pre);
          const room = pre.clientWidth - parseFloat(style.paddingLeft)
            - parseFloat(style.paddingRight);
          const line = document.createElement("span");
          line.textContent = "0".repeat(80);
          pre.append(line);
          return [room, line.getBoundingClientRect().width];
        }"""
    )
    assert columns <= room
    letters = page.locator("article > section > p").first.evaluate(
        """p => {
          p.textContent = "an average line of English prose ".repeat(9);
          const all = document.createRange();
          all.selectNodeContents(p);
          return p.textContent.length / all.getClientRects().length;
        }"""
    )
    assert 60 <= letters <= 80


@pytest.mark.parametrize("name", CHAPTERS)
def test_no_edge_of_a_figure_shows_in_the_dark(page_in, name):
    page = page_in(name, "dark")
    figures = page.locator("div.cell_output img")
    assert figures.count() > 0
    figure = figures.first
    figure.scroll_into_view_if_needed()
    with Image.open(io.BytesIO(figure.screenshot())) as picture:
        corners = {
            picture.convert("RGB").getpixel((x, y))
            for x in (3, picture.width - 4)
            for y in (3, picture.height - 4)
        }
    behind = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert [f"rgb{corner}" for corner in corners] == [behind]


PLAYERS = [
    name
    for name in CHAPTERS
    if 'data-book-widget="alignment_player"' in (HTML / name).read_text("utf8")
]


@pytest.mark.parametrize("name", PLAYERS)
def test_a_players_buttons_stay_in_sight_on_a_phone(page_in, name):
    page = page_in(name, width=320)
    player = page.locator("[data-state=ready] .ap")
    longest = player.locator("option").count() - 1
    player.locator("select").select_option(str(longest))
    player.evaluate("e => e.scrollIntoView({ behavior: 'instant' })")
    foot = player.locator(".ap-foot").bounding_box()
    assert 0 < foot["y"] <= 900 - foot["height"] + 1
