"""Diagrams: shapes come from the code, the same bytes every time."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from attnbook.figures import Diagram
from attnbook.figures.plots import render_svg

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
    assert "\n" not in "".join(re.findall(r' d="[^"]*"', svg))


def test_a_shape_is_that_of_the_tensor():
    diagram = Diagram(10, 5)
    diagram.draw_box("states", (2, 2), STATES, "S M")
    diagram.draw_box("scores", (5, 2), STATES)
    diagram.draw_box("layer", (8, 2), Linear(), "A M")
    diagram.draw_box("one", (8, 4), STATES[0])
    texts = {text.get_text() for text in diagram.ax.texts}
    assert texts >= {"S = 3, M = 11", "(3, 11)", "A = 13, M = 11", "(11,)"}


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda d: d.draw_box("h", (1, 1), STATES, "S"), r"1 axes .*\(3, 11\)"),
        (lambda d: d.draw_matrix(-WEIGHTS, (1, 1)), "from -0.8 to -0.1"),
        (lambda d: d.show(alt="  "), "alt is '' but must describe"),
        (lambda d: Diagram(15, 2), "15 units but .* at most 14"),
        (
            lambda d: d.draw_row("ab", (1, 1), 2, [STATES, STATES.T], "S M"),
            "axis S has size 11 .* 3 earlier",
        ),
    ],
)
def test_a_wrong_part_is_refused_with_both_values(draw, message):
    with pytest.raises(ValueError, match=message):
        draw(Diagram(10, 5))


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
