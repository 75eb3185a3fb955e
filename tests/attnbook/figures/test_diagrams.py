"""Diagrams: shapes come from the code, the same bytes every time."""

import io
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from attnbook.figures import Diagram
from attnbook.figures.diagrams import MAX_UNITS, Part, find_ends
from attnbook.figures.plots import render_png, render_svg

pytestmark = pytest.mark.precision

STATES = np.zeros((3, 11))
WEIGHTS = np.array([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]])


class Linear:
    """A module holds its weight as `nn.Linear` does."""

    weight = np.zeros((13, 11))


def encoder_decoder(noise=0.0):
    """Draw every kind of part; the noise is smaller than any rounding."""
    diagram = Diagram(13.6, 5.5, title="The decoder sees one vector")
    states = diagram.draw_row(
        ["$h_1$", "$h_2$", "$h_3$"],
        (1 + noise, 3),
        1.9 + noise,
        STATES,
        "M",
        color="blue",
        arrows=True,
    )
    vector = diagram.draw_box("$c$", (6.8, 3 - noise), STATES[0], "M")
    diagram.draw_arrow(states[-1], vector, "last", weight=0.84 + noise)
    diagram.draw_bracket(states, "encoder", side="above")
    matrix = diagram.draw_matrix(
        WEIGHTS + noise, (11, 3), ["le", "chat"], ["a", "b", "c"], digits=2
    )
    diagram.draw_arrow(vector, matrix, bend=0.2 + noise)
    diagram.draw_text("a note", (7, 0.5), color="gray")
    return diagram


def texts(diagram):
    return [text.get_text() for text in diagram.ax.texts]


def test_the_same_diagram_is_the_same_text_on_every_machine():
    first = render_svg(encoder_decoder().fig, "alt")
    assert first == render_svg(encoder_decoder().fig, "alt")
    assert first == render_svg(encoder_decoder(1e-13).fig, "alt")


def test_the_svg_needs_no_font_and_names_no_date():
    svg = render_svg(encoder_decoder().fig, 'the "alt" & more')
    root = ElementTree.fromstring(svg)
    assert root.attrib["aria-label"] == 'the "alt" & more'
    assert root.attrib["role"] == "img"
    assert "<text" not in svg
    assert "font-family" not in svg
    assert not re.search(r"20\d\d-\d\d", svg)
    assert len(svg) < 80_000
    assert "\n" not in "".join(re.findall(r' d="[^"]*"', svg))


def test_letters_are_readable_on_a_phone():
    diagram = Diagram(MAX_UNITS, 2)
    diagram.draw_text("small", (1, 1))
    wide = diagram.fig.get_size_inches()[0]
    (text,) = diagram.ax.texts
    column = 390 - 2 * 16  # pixels beside the page's margins
    pixels = text.get_fontsize() / 72 * column / wide
    assert pixels > 7.9
    with pytest.raises(ValueError, match=r"15 units but .* at most 14"):
        Diagram(15, 2)


def test_the_background_is_exactly_white_for_the_dark_mode():
    picture = Image.open(io.BytesIO(render_png(encoder_decoder().fig)))
    assert picture.convert("RGB").getpixel((0, 0)) == (255, 255, 255)
    assert "fill: #ffffff" in render_svg(encoder_decoder().fig)


def test_a_shape_is_that_of_the_tensor():
    diagram = Diagram(10, 5)
    diagram.draw_box("states", (2, 2), STATES, "S M")
    diagram.draw_box("scores", (5, 2), STATES)
    diagram.draw_box("layer", (8, 2), Linear(), "A M")
    diagram.draw_box("one", (8, 4), STATES[0])
    for message in "S = 3, M = 11", "(3, 11)", "A = 13, M = 11", "(11,)":
        assert message in texts(diagram)


@pytest.mark.refusal
def test_one_axis_has_one_size_in_a_diagram():
    diagram = Diagram(10, 5)
    diagram.draw_box("states", (2, 2), STATES, "S M")
    with pytest.raises(ValueError, match=r"axis S has size 11 .* 3 earlier"):
        diagram.draw_box("other", (5, 2), STATES.T, "S M")


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda d: d.draw_box("h (3, 11)", (1, 1)), r"typed shape \(3, 11\)"),
        (lambda d: d.draw_text("(3 \u00d7 11)", (1, 1)), "typed shape"),
        (lambda d: d.draw_box("h", (1, 1), STATES, "S"), r"1 axes .*\(3, 11\)"),
        (lambda d: d.draw_box("h", (1, 1), "SM"), "from str 'SM'"),
        (lambda d: d.draw_box("h", (1, 1), color="red"), "'red'.*'blue'"),
        (lambda d: d.draw_row("abc", (1, 1), 1, STATES[:2]), "3 texts but 2"),
        (lambda d: d.draw_arrow((1, 1), (2, 2), weight=1.2), "weight is 1.2"),
        (
            lambda d: d.draw_matrix(WEIGHTS, (1, 1), ["a"]),
            "1 labels for 2 rows",
        ),
        (lambda d: d.draw_matrix(-WEIGHTS, (1, 1)), "from -0.8 to -0.1"),
        (lambda d: d.draw_matrix(WEIGHTS[0], (1, 1)), r"shape \(3,\)"),
        (lambda d: d.draw_bracket([], "a"), "at least one part"),
        (lambda d: d.draw_bracket([Part(1, 1, 1, 1)], "a", side="on"), "'on'"),
        (lambda d: d.show(alt="  "), "alt is '' but must describe"),
    ],
)
def test_a_wrong_part_is_refused_with_both_values(draw, message):
    with pytest.raises(ValueError, match=message):
        draw(Diagram(10, 5))


def test_arrows_begin_and_end_at_the_sides_that_face_each_other():
    one, other = Part(1, 1, 1, 1), Part(4, 1, 1, 1, below=0.5)
    assert find_ends(one, other) == ((1.5, 1.0), (3.5, 1.0))
    assert find_ends(other, (4, -3)) == ((4.0, 0.0), (4.0, -3.0))
    assert find_ends((4, 5), other) == ((4.0, 5.0), (4.0, 1.5))


def test_a_notebook_gets_both_forms_in_one_output(monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.get_ipython", lambda: object())
    monkeypatch.setattr(
        "IPython.display.display",
        lambda bundle, raw, metadata: shown.append((bundle, metadata)),
    )
    encoder_decoder().show(alt="what it  shows")
    ((bundle, metadata),) = shown
    assert set(bundle) == {"image/svg+xml", "image/png", "text/plain"}
    assert bundle["text/plain"] == "Figure: what it shows"
    for kind in "image/svg+xml", "image/png":
        assert metadata[kind] == {"alt": "what it shows", "width": 544}
