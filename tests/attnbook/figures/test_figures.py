"""Figures: readable by everyone, in both modes, the same bytes every time."""

import io
import itertools

import matplotlib
import matplotlib.pyplot
import numpy as np
import pytest
from PIL import Image

matplotlib.use("agg")

from attnbook.figures import (
    GRAY,
    PALETTE,
    Diagram,
    draw_curve_with_band,
    draw_heatmap,
    get_style,
    label_lines,
    make_figure,
    show_figure,
    show_table,
    write_table,
)
from attnbook.figures.plots import FAMILIES, render_png

INVERT = 0.9294  # in the page's style sheet


def rgb(colour):
    return np.array(matplotlib.colors.to_rgb(colour))


def linear(colour):
    return np.where(
        colour <= 0.04045, colour / 12.92, ((colour + 0.055) / 1.055) ** 2.4
    )


def dark(colour):
    """Return what the page's dark mode makes of a colour: it inverts pictures."""
    # invert(0.9294) hue-rotate(180deg)
    grey = np.array([[0.213, 0.715, 0.072]] * 3)
    return ((INVERT - (2 * INVERT - 1) * colour) @ (2 * grey - np.eye(3)).T).clip(0, 1)


def contrast(one, other):
    """Return the lower contrast ratio (WCAG 2.2) of light and dark mode."""
    shares, found = np.array([0.2126, 0.7152, 0.0722]), []
    for pair in (one, other), (dark(one), dark(other)):
        low, high = sorted(float(linear(x) @ shares) + 0.05 for x in pair)
        found.append(high / low)
    return min(found)


def pixels(data):
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def curves():
    fig, ax = make_figure(title="The error grows with length")
    x = np.arange(2, 20)
    for k in range(5):
        mean = 10 + 6 * k + x * 0.5 * k + np.sin(x + k)
        draw_curve_with_band(ax, x, mean, mean - 3, mean + 3, f"run {k}")
    ax.set_ylim(0, None)
    label_lines(ax)
    return fig, ax


@pytest.fixture(autouse=True)
def no_figure_stays_open():
    yield
    matplotlib.pyplot.close("all")


def test_every_color_contrasts_with_the_background():
    for colour in (*PALETTE.values(), GRAY):
        assert contrast(rgb(colour), np.ones(3)) >= 3


def test_a_number_is_readable_on_every_shade_of_a_matrix():
    diagram = Diagram(14, 3)
    diagram.draw_matrix(np.linspace(0, 1, 201)[None], (7, 1), cell=0.06, digits=2)
    cells, letters = diagram.ax.patches, diagram.ax.texts
    for cell, letter in zip(cells, letters, strict=True):
        assert contrast(rgb(cell.get_facecolor()), rgb(letter.get_color())) >= 4.5
    shades = [cell.get_facecolor()[1] for cell in cells]
    assert (np.diff(shades) <= 0).all()


def test_no_two_methods_of_a_family_look_alike_even_without_color():
    _, ax = make_figure()
    for family, methods in FAMILIES.items():
        for (_, *one), (_, *other) in itertools.combinations(methods.values(), 2):
            assert one[1] != other[1], f"the markers of {family}"
        for method in methods:
            (line,) = ax.plot([1, 2], [3, 4], **get_style(method))
            assert line.get_label() == method
            assert line.get_color() in {*PALETTE.values(), GRAY}


def test_the_paper_is_exactly_white_and_opaque():
    for fig in (curves()[0], map_of(np.full((7, 5), 0.01))[0]):
        data = render_png(fig)
        assert "transparency" not in Image.open(io.BytesIO(data)).info
        assert (pixels(data)[[0, 0, -1, -1], [0, -1, 0, -1]] == 255).all()


def test_the_same_picture_has_the_same_bytes_and_names_no_software():
    one, two = render_png(curves()[0]), render_png(curves()[0])
    assert one == two
    assert b"Software" not in one
    assert b"atplotlib" not in one


def map_of(table):
    fig, ax = make_figure()
    rows, columns = table.shape
    image = draw_heatmap(
        ax,
        table,
        [f"r{i}" for i in range(rows)],
        list(map(str, range(columns))),
    )
    return fig, ax, image


class Tensor:
    """Stands in for a torch tensor that still has its gradient."""

    shape = (2, 3)

    def detach(self):
        return self

    cpu = double = detach

    def __array__(self, dtype=None, copy=None):
        return np.array([[0, 0.5, 0.5], [1, 0, 0]], dtype)


@pytest.mark.parametrize(
    "weights", [Tensor(), [[0, 0.5, 0.5], [1, 0, 0]]], ids=["tensor", "lists"]
)
def test_a_map_shows_the_numbers_where_the_labels_say(weights):
    fig, ax = make_figure()
    image = draw_heatmap(ax, weights, ["æ", "ŋ"], ["É", "…", "ß"])
    assert image.get_array().tolist() == [[0, 0.5, 0.5], [1, 0, 0]]
    assert image.get_clim() == (0, 1)
    assert [x.get_text() for x in ax.get_xticklabels()] == ["É", "…", "ß"]
    assert [x.get_text() for x in ax.get_yticklabels()] == ["æ", "ŋ"]
    low, high = ax.get_ylim()
    assert low > high, "the first row must be on top"
    assert len(fig.axes) == 2, "a map comes with its colour bar"
    render_png(fig)  # a glyph that the font lacks would warn, and warnings fail


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("weights", "complaint"),
    [
        (np.eye(3), r"shape \(3, 3\) but there are 2 row labels and 2 col"),
        ([[0.5, 1.5], [0, 1]], "from 0 to 1.5 but the scale from 0 to 1"),
        ([[np.nan, 1.0], [0, 1]], "run from nan to nan"),
    ],
)
def test_a_map_refuses_what_it_cannot_draw(weights, complaint):
    _, ax = make_figure()
    with pytest.raises(ValueError, match=complaint):
        draw_heatmap(ax, weights, ["a", "b"], ["c", "d"])


def test_a_band_spans_low_to_high_in_its_lines_color():
    _, ax = make_figure()
    line, band = draw_curve_with_band(ax, [1, 2], [5, 6], [4, 4], [7, 9], "runs")
    corners = {tuple(x) for x in band.get_paths()[0].vertices}
    assert {(1, 4), (1, 7), (2, 4), (2, 9)} <= corners
    assert line.get_label() == "runs"
    assert np.allclose(band.get_facecolor()[0, :3], rgb(line.get_color()))


def test_line_labels_are_at_line_ends_and_never_overlap():
    fig, ax = make_figure()
    for k, end in enumerate((5.0, 5.01, 1.0)):
        ax.plot([0, 1], [0, end], label=f"run {k}")
    ax.set_ylim(0, 10)
    label_lines(ax)
    assert {x.xy[0] for x in ax.texts} == {1}
    heights = {x.get_text(): x.xy[1] for x in ax.texts}
    assert heights["run 2"] == pytest.approx(0.1)
    assert heights["run 0"] == pytest.approx(0.5)
    assert heights["run 1"] > heights["run 0"]
    colours = [x.get_color() for x in sorted(ax.texts, key=lambda t: str(t))]
    assert len(set(colours)) == 3
    fig.canvas.draw()
    boxes = sorted((x.get_window_extent() for x in ax.texts), key=lambda b: b.y0)
    for lower, upper in itertools.pairwise(boxes):
        assert lower.y1 <= upper.y0


def test_without_a_notebook_the_alternative_text_is_printed(capsys):
    fig, _ = make_figure()
    show_figure(fig, alt="a line\n    that rises")
    assert capsys.readouterr().out == "Figure: a line that rises\n"
    assert fig.number not in matplotlib.pyplot.get_fignums()


def test_in_a_notebook_one_picture_with_its_text_is_shown(monkeypatch):
    sent = []
    monkeypatch.setattr("IPython.get_ipython", lambda: object())
    monkeypatch.setattr(
        "IPython.display.display",
        lambda *bundle, **options: sent.append((bundle, options)),
    )
    fig, _ = make_figure(width=5)
    show_figure(fig, alt="a line that rises")
    (((bundle,), options),) = sent
    assert set(bundle) == {"image/png", "text/plain"}
    assert bundle["image/png"].startswith(b"\x89PNG")
    assert bundle["text/plain"] == "Figure: a line that rises"
    about = options["metadata"]["image/png"]
    assert about == {"alt": "a line that rises", "width": 500}
    assert options["raw"] is True
    assert fig.number not in matplotlib.pyplot.get_fignums()


ROWS = {"attention": [12.34, (10.2, 14), "yes"], "none": [None, (3, 3), "a|b"]}
COLUMNS = ["error", "range", "note"]


def test_a_table_has_a_row_for_each_name(capsys):
    table = write_table(ROWS, COLUMNS, first="model", unit=["%", "", ""])
    assert table.splitlines() == [
        "| model | error | range | note |",
        "| --- | ---: | ---: | --- |",
        "| attention | 12.3 % | 10.2\u201314.0 | yes |",
        "| none | \u2013 | 3.0 | a\\|b |",
    ]
    rows = {"a": [1_234_567, np.float64(2)], "b": [np.int64(3), True]}
    show_table(rows, ["n", "m"], digits=[0, 2])
    shown = capsys.readouterr().out.splitlines()
    assert shown[2:] == ["| a | 1,234,567 | 2.00 |", "| b | 3 | yes |"]


@pytest.mark.refusal
@pytest.mark.parametrize("width", [0, 7.3])
def test_a_figure_wider_than_the_page_is_refused(width):
    with pytest.raises(ValueError, match=f"width is {width} inches"):
        make_figure(width=width)
