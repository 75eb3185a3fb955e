"""Every widget with any font, on any screen, with text at 200 %.

The states are those of the built pages, the longest of each widget, and some
that are harder; `make book` comes first.
"""

import json

import pytest

from attnbook.widgets.mask_builder import MaskBuilder
from attnbook.widgets.tile_stepper import TileStepper
from fits import SCALES, WIDTHS, find_all_unfit, find_unfit
from fonts import FACES, PROBE, TEXT, compute_expected_width, measure_probe
from widget_states import FOUND

pytestmark = pytest.mark.browser

STATES = {stem: json.loads(max(texts, key=len)) for stem, texts in FOUND.items()}
PARTS = [{"kind": k} for k in ("dilated", "prefix", "padding", "document")]
HARD = {
    "mask_builder-four-parts": MaskBuilder(PARTS, T=10, S=10).state(),
    "tile_stepper-wide": TileStepper(T=10, S=10, rows=3, columns=10, step=4).state(),
}


@pytest.fixture(scope="module")
def measured():
    """What does not fit, by widget and font; shared by many tests."""
    return {}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("case", sorted(STATES | HARD))
def test_a_widget_fits(shown, measured, case, face, scale, width):
    if case not in measured:
        page = shown((STATES | HARD)[case], case.partition("-")[0])
        measured[case] = {each: find_unfit(page, each) for each in FACES}
    assert measured[case][face][scale, width] == []


@pytest.mark.parametrize("face", FACES)
def test_a_widget_is_shown_in_the_font_that_the_test_brings(shown, face):
    page = shown(STATES["quiz"], "quiz", face=face)
    page.evaluate("document.fonts.ready")
    brought = page.evaluate(PROBE, TEXT)
    assert brought == pytest.approx(compute_expected_width(face), rel=0.01)
    for other in FACES:
        found = measure_probe(page, other)
        assert found == pytest.approx(compute_expected_width(other), rel=0.01)
    assert compute_expected_width("narrow") < 0.75 * compute_expected_width("wide")


LINES = {
    "too wide for the page": "<p style='width: 700px'>A line.</p>",
    "cut": "<p style='width: 50px; overflow: hidden; white-space: nowrap'>"
    "A line of several words.</p>",
    "cut below": "<p style='height: 15px; overflow: hidden'>One.<br>Two.</p>",
    "spilled": "<div style='width: 60px; white-space: nowrap'>"
    "A line of several words.</div>",
    "overlap": "<p style='margin: 0'>A line.</p>"
    "<p style='margin: -1.2em 0 0'>Another line.</p>",
    "shortened": "<p style='width: 60px; overflow: hidden; white-space: nowrap;"
    " text-overflow: ellipsis'>A line of several words.</p>",
    "not larger": "<p style='font-size: 16px'>A line.</p>",
    "button": "<button style='width: 40px; white-space: nowrap'>Start again</button>",
    "outside": "<p style='position: absolute; left: -30px'>A line.</p>",
}


@pytest.mark.parametrize("what", LINES)
def test_what_does_not_fit_is_found(shown, what):
    page = shown({"questions": []}, "quiz")
    page.evaluate("html => { document.body.innerHTML = html; }", LINES[what])
    found = {x for some in find_unfit(page, "wide").values() for x in some}
    assert found != set()
    if what != "button":
        kind = {"too wide for the page": "too wide"}.get(what, what)
        assert any(kind in x for x in found), found


def test_folded_content_that_does_not_fit_is_found(shown):
    page = shown({"questions": []}, "quiz")
    page.evaluate(
        "line => { document.body.innerHTML = '<main><details>'"
        " + `<summary>A line.</summary>${line}</details></main>`; }",
        LINES["spilled"],
    )
    folded = page.locator("details")
    for found in find_all_unfit(page).values():
        assert any("spilled" in x for some in found.values() for x in some)
    assert folded.evaluate("e => [e.open, e.getAttributeNames().length]") == [
        False,
        0,
    ]


def test_what_fits_is_left_alone(shown):
    page = shown({"questions": []}, "quiz")
    page.evaluate("document.body.innerHTML = '<p>A line.</p><pre>x</pre>'")
    assert {x for some in find_unfit(page, "wide").values() for x in some} == set()
