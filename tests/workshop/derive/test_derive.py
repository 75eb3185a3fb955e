"""The scripts behind the data: reading help pages, finding near twins."""

import random

import pytest

from workshop.derive import help_graph
from workshop.derive.help_pages import pair_paragraphs, read_paragraphs
from workshop.derive.neighbours import compute_jaccard, find_nearest

pytestmark = pytest.mark.precision

PAGE = """<html><body>
<p id="other" class="paragraph">Menu</p>
<h1 id="hd_id1"><a name="x"></a>Opening <b>a</b> file</h1>
<ul><li><p id="par_id2">Choose <span class="menuitem">
<span hidden="true" id="MAC1" class="MAC">Preferences</span>
<span hidden="true" id="default1"><i>Tools &amp; Options</i></span>
</span><img src="a.svg"><br>now.</p></li></ul>
after
</body></html>"""


def test_paragraphs_keep_the_default_wording_and_need_an_id():
    found = {k: " ".join(v.split()) for k, v in read_paragraphs(PAGE).items()}
    assert found == {
        "hd_id1": "Opening a file",
        "par_id2": "Choose Tools & Options now.",
    }


def test_paired_aligns_by_page_and_id(tmp_path):
    for language, text in (("en", "one"), ("fr", "un")):
        (tmp_path / language).mkdir()
        (tmp_path / language / "a.html").write_text(
            f'<p id="par_1">{text}</p><p id="par_{language}">alone</p>'
        )
    (tmp_path / "en/b.html").write_text('<p id="par_1">no twin page</p>')
    assert list(pair_paragraphs(tmp_path / "en", tmp_path / "fr")) == [("one", "un")]


@pytest.mark.parametrize("similarity", [0.6, 1.0])
def test_nearest_agrees_with_comparing_all_pairs(similarity):
    draw = random.Random(0)
    sets = [
        frozenset(draw.choices("abcdefghij", k=draw.randint(1, 8))) for _ in range(150)
    ]
    expected = []
    for i, one in enumerate(sets):
        rest = sets[:i] + sets[i + 1 :]
        best = max(compute_jaccard(one, other) for other in rest)
        expected.append(best if best >= similarity else 0.0)
    assert find_nearest(sets, similarity) == expected
    assert sum(map(bool, expected)) > 0


def test_a_page_of_the_graph_has_its_links_and_its_words():
    def page(links, words):
        hrefs = "".join(f'<a href="en-US/text/{x}">x</a>' for x in links)
        return (
            '<a href="en-US/text/c.html">menu</a><div id="DisplayArea">'
            f'{hrefs}<a href="https://x.org/d.html">x</a>'
            f'<p id="par_1">{words}</p></div>'
        )

    pages = {
        "a.html": page(["b.html#x", "a.html", "gone.html"], "rare Sums of it"),
        "b.html": page([], "sums sums"),
        "c.html": page(["a.html", "b.html?DbPAR=x"], "sums cells"),
    }
    pages |= {f"{i}.html": page([], "sums cells") for i in range(4)}
    rows, words = help_graph.make_rows(pages, "en-US/text/")
    assert words == ["cells", "sums"]
    assert rows[:3] == ["a.html\t1\t1", "b.html\t\t1", "c.html\t0 1\t0 1"]
    assert len(rows) == 7
