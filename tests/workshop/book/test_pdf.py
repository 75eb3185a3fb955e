"""The printed book: one document, its contents, its links."""

import pytest
from bs4 import BeautifulSoup

from workshop.book import browser as browsers
from workshop.book.pdf import (
    find_numbers,
    join_pages,
    main,
    print_book,
    read_heading,
    read_pages,
)

MENU = """<nav id="menu"><p class="part">The course</p>
<ul><li><a href="01_first.html">First</a></li>
<li><a href="02_second.html">Second</a></li></ul>
<p class="part">Reference</p>
<ul><li><a href="reference/names.html">Names</a></li></ul></nav>"""
HEAD = '<html><head><link rel="stylesheet" href="{}_static/book.css"></head>'
ANCHOR = '<a class="headerlink" href="#{0}">#</a>'


def write_page(folder, name, article, menu=""):
    path = folder / "chapters" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    up = "../" * (name.count("/") + 1)
    path.write_text(
        f"{HEAD.format(up)}<body>{menu}<article>{article}</article></body></html>"
    )


@pytest.fixture
def built(tmp_path):
    """A book of two chapters and one page of reference."""
    write_page(tmp_path, "index.html", "<h1>A book</h1>", MENU)
    filler = '<p style="break-before: page">more</p>' * 3
    write_page(
        tmp_path,
        "01_first.html",
        f"""<section id="first"><h1>First{ANCHOR.format("first")}</h1>
        <p>See <a href="02_second.html#exercises">chapter 2</a> and
        <a href="https://example.com">elsewhere</a>.</p>
        <details class="folded"><summary>✓ Checked: it holds</summary>
        <pre>assert proof</pre></details>
        <div data-book-widget="map"><script type="application/json">{{}}
        </script><figure><figcaption>A drawn map</figcaption></figure></div>
        <img src="../_images/a.webp" loading="lazy" alt="a">
        {filler}</section>""",
    )
    write_page(
        tmp_path,
        "02_second.html",
        f"""<section id="second"><h1>Second{ANCHOR.format("second")}</h1>
        {filler}<section id="exercises"><h2>Exercises</h2>
        <a href="../_sources/02_second.ipynb">the notebook</a>
        <details><summary>Solution of <code>check_x</code></summary>
        <pre>return x</pre></details></section>
        <section id="quiz"><h2>Quiz</h2>
        <details><summary>Answer</summary><p>Right is a.</p></details>
        <details><summary>Answer</summary><p>Right is b.</p></details>
        </section></section>""",
    )
    write_page(
        tmp_path,
        "reference/names.html",
        """<section id="second"><h1>Names</h1>
        <p><a href="../01_first.html">first</a> <a href="#second">here</a></p>
        <details><summary>More</summary><p>all of it</p></details></section>""",
    )
    return tmp_path


def test_pages_are_in_the_order_of_the_menu(built):
    pages = read_pages(built)
    assert [page.title for page in pages] == [
        "A book",
        "First",
        "Second",
        "Names",
    ]
    assert [page.part for page in pages] == [
        "",
        *["The course"] * 2,
        "Reference",
    ]


def test_the_document_has_every_id_once_and_every_link_a_target(built):
    soup = BeautifulSoup(join_pages(built, {}), "html.parser")
    ids = [tag["id"] for tag in soup.find_all(id=True)]
    assert len(ids) == len(set(ids))
    links = [a["href"] for a in soup.find_all("a", href=True)]
    inside = {link[1:] for link in links if link.startswith("#")}
    assert inside <= set(ids)
    assert {
        "chapters-02_second--exercises",
        "chapters-01_first",
        "chapters-reference-names--second",
    } <= inside
    others = [link for link in links if not link.startswith("#")]
    assert others == ["https://example.com"]


def test_files_are_found_from_anywhere(built):
    soup = BeautifulSoup(join_pages(built, {}), "html.parser")
    root = built.resolve().as_uri()
    assert soup.img["src"] == f"{root}/_images/a.webp"
    assert "loading" not in soup.img.attrs
    sheets = [link["href"] for link in soup.find_all("link")]
    assert sheets == [f"{root}/_static/book.css"]
    assert not soup.find_all("script")


def test_solutions_stand_at_the_end_and_lead_back(built):
    soup = BeautifulSoup(join_pages(built, {"note-1": 17}), "html.parser")
    notes = soup.find(id="solutions-and-answers")
    assert [read_heading(x) for x in notes.find_all("h3")] == [
        "Exercises. Solution of check_x",
        "Quiz. Answer 1",
        "Quiz. Answer 2",
    ]
    assert "return x" in notes.get_text()
    place = soup.find(id="note-1-place")
    assert place.get_text() == "Solution of check_x: page 17"
    assert place.a["href"] == "#note-1"
    assert notes.find(id="note-1").a["href"] == "#note-1-place"
    more = soup.find("summary", string="More").parent
    assert "open" in more.attrs  # only solutions and answers move


def test_a_heading_is_read_without_its_link_and_formulas_once():
    made = BeautifulSoup(
        '<h2>The root of <math><mi>D</mi><annotation encoding="tex">D'
        '</annotation></math><a class="headerlink">#</a></h2>',
        "html.parser",
    )
    assert read_heading(made.h2) == "The root of D"


def test_a_missing_page_says_what_to_run(built):
    (built / "chapters/02_second.html").unlink()
    with pytest.raises(FileNotFoundError, match=r"02_second.*make book"):
        join_pages(built, {})


def test_a_page_without_an_article_is_named(built):
    (built / "chapters/02_second.html").write_text("<html></html>")
    with pytest.raises(ValueError, match=r"02_second\.html has no <article>"):
        join_pages(built, {})


def test_without_a_browser_it_says_how_to_get_one(built, monkeypatch, tmp_path):
    monkeypatch.setattr(browsers.shutil, "which", lambda name: None)
    monkeypatch.setattr("sys.argv", ["pdf", str(built), str(tmp_path / "b.pdf")])
    with pytest.raises(SystemExit) as ended:
        main()
    said = str(ended.value)
    assert "no Chromium" in said and "apt install chromium" in said
    assert not (tmp_path / "b.pdf").exists()


@pytest.mark.browser
def test_the_contents_name_the_pages(browser, built, tmp_path):
    from pypdf import PdfReader

    to = tmp_path / "book.pdf"
    count = print_book(browser, built, to)
    reader = PdfReader(to)
    texts = [" ".join(page.extract_text().split()) for page in reader.pages]
    assert count == len(texts)
    contents = texts[1]
    for title, key in (
        ("First", "chapters-01_first"),
        ("Second", "chapters-02_second"),
        ("Exercises", "chapters-02_second--exercises"),
        ("Names", "chapters-reference-names"),
        ("Solutions and answers", "solutions-and-answers"),
    ):
        number = find_numbers(to)[0][key]
        assert f"{title} {number}" in contents
        assert title in texts[number - 1]
        assert f"{number}" in texts[number - 1]
    whole = " ".join(texts)
    assert "✓ Checked: it holds" in whole and "assert proof" not in whole
    assert "A drawn map" in whole
    assert reader.metadata.title == "A book"
    links = [
        note.get_object() for page in reader.pages for note in page.get("/Annots") or []
    ]
    outside = [note["/A"]["/URI"] for note in links if "/A" in note]
    assert outside == ["https://example.com/"]
    named = set(reader.named_destinations)
    assert {note["/Dest"] for note in links if "/Dest" in note} <= named
