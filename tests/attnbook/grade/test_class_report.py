"""The report on a class: what it counts, and that nothing in it is markup."""

from html.parser import HTMLParser
from pathlib import Path

import pytest

from accessibility import run_axe
from attnbook.grade import report

pytestmark = pytest.mark.precision
HOSTILE = "</style></li><script>alert(1)</script><img src=x onerror=a>&lt;'\"$summary"


def make_answer(verdict, mistake=None):
    points = 2 if verdict[0] == "✓" else 0
    return {"points": points, "of": 2, "verdict": verdict, "mistake": mistake}


def make_result(*, error=None, notes=(), **answers):
    found = {f"check_{name}": x for name, x in answers.items()}
    return {"error": error, "notes": list(notes), "exercises": found}


RIGHT = make_answer("✓ right")
SCALE = make_answer("✗ Most likely …", "no-scale")
RESULTS = {
    Path("ann.ipynb"): make_result(weights=RIGHT, attend=SCALE),
    Path("bob.ipynb"): make_result(weights=SCALE, attend=SCALE),
    Path("cyd.ipynb"): make_result(
        weights=make_answer("✗ It returns None", "none"),
        attend=make_answer("… not attempted yet"),
    ),
}
EYE = {
    "not graded": make_result(error="it is not a notebook"),
    "refused by the sandbox": make_result(
        a=RIGHT, notes=["cell 2: PermissionError: [Errno 13] x"]
    ),
    "ended its process early": make_result(
        a=make_answer("✗ it ended its own process", "error")
    ),
    "sent malformed messages": make_result(
        a=make_answer("✗ Its outcomes do not have …", "tampered")
    ),
    "not executed": make_result(
        a=RIGHT, notes=["cell 2: RuntimeError: %%bash is not executed while grading"]
    ),
}


class Page(HTMLParser):
    """The tags, attributes, rows and text of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.named, self.text = [], [], ""
        self.open, self.rows = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.named += [(name, value) for name, value in attrs]
        if tag == "tr":
            self.rows.append([])
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.text += data
            if self.open[-1] in ("td", "th"):
                self.rows[-1].append(data)


def test_mistakes_and_exercises_are_counted():
    page = Page(report.format_html(RESULTS))
    often = page.rows.index(["no-scale", "2", "attend 2, weights 1"])
    assert page.rows[often + 1] == ["none", "1", "weights 1"]
    assert ["weights", "1", "2", "0", "0.67 of 2"] in page.rows
    assert ["attend", "0", "2", "1", "0.00 of 2"] in page.rows
    assert ["ann.ipynb", "2 of 4", "✓ 2", "✗ 0"] in page.rows
    assert "3 submissions, 0 of them not graded" in page.text


@pytest.mark.parametrize("reason", EYE)
def test_what_needs_a_person_is_listed_with_its_reason(reason):
    ((found, detail),) = report.find_reasons(EYE[reason])
    assert found == reason
    page = Page(report.format_html({Path("x.ipynb"): EYE[reason]}))
    assert ["x.ipynb", reason, detail] in page.rows
    assert not report.find_reasons(make_result(b=SCALE, notes=["cell 3: NameError: x"]))


def test_nothing_that_students_wrote_becomes_markup():
    good = report.format_html(RESULTS | {Path("d"): make_result(a=SCALE)})
    bad = make_result(
        notes=[HOSTILE], **{HOSTILE: make_answer(f"✗ {HOSTILE}", HOSTILE)}
    )
    page = Page(report.format_html(RESULTS | {Path(HOSTILE): bad}))
    assert not {"script", "img"} & {*page.tags}
    assert {*page.tags} == {*Page(good).tags}
    assert {*page.named} == {*Page(good).named}
    assert page.text.count("<script>alert(1)</script>") >= 4
    assert not page.open


def test_a_name_that_is_no_text_can_be_written(tmp_path, capsys):
    found = {Path("a\udcff\x00\x1b.ipynb"): make_result(error="a\ud800")}
    report.write_results(found, html=tmp_path / "a.html", json=tmp_path / "a.json")
    for file in tmp_path.iterdir():
        text = file.read_text("utf8")
        assert "\\udcff" in text and "\\ud800" in text


@pytest.mark.browser
def test_the_page_fits_a_phone_and_requests_nothing(browser, tmp_path):
    many = {name * 12: SCALE for name in "abcdefghijklmnopqrst"}
    found = RESULTS | {
        Path("x" * 200): make_result(notes=["y" * 300], **many),
        Path(HOSTILE): EYE["not graded"],
    }
    file = tmp_path / "report.html"
    file.write_text(report.format_html(found), "utf8")
    for scheme in ("light", "dark"):
        size = {"width": 360, "height": 740}
        page = browser.new_page(viewport=size, color_scheme=scheme)
        requested = []
        page.on("request", lambda x, all=requested: all.append(x.url))
        page.goto(file.as_uri())
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= size["width"]
        assert requested == [file.as_uri()]
        assert run_axe(page) == []
        page.close()
