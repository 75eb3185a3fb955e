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
    draw_curve_with_band,
    draw_dots_with_intervals,
    draw_heatmap,
    label_lines,
    make_figure,
    show_figure,
)
from attnbook.figures.plots import render_png

# How a colour looks to a reader without one of the three kinds of cones, in
# linear RGB: Machado, Oliveira & Fernandes (2009), table 1, severity 1.0.
CONES = {
    "all": np.eye(3),
    "no red": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "no green": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
    "no blue": np.array(
        [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ]
    ),
}


def rgb(colour):
    return np.array(matplotlib.colors.to_rgb(colour))


def linear(colour):
    return np.where(
        colour <= 0.04045, colour / 12.92, ((colour + 0.055) / 1.055) ** 2.4
    )


def seen(colour, cones):
    """Return linear RGB as a reader with these cones sees it."""
    return (linear(colour) @ CONES[cones].T).clip(0, 1)


def dark(colour):
    """Return what CSS's invert(1) hue-rotate(180deg) makes of a colour."""
    grey = np.array([[0.213, 0.715, 0.072]] * 3)
    return ((1 - colour) @ (2 * grey - np.eye(3)).T).clip(0, 1)


def lab(light):
    """Return linear RGB as CIE L*a*b*, where distance is what eyes tell."""
    to_xyz = np.array(
        [
            [0.4124, 0.3576, 0.1805],
            [0.2126, 0.7152, 0.0722],
            [0.0193, 0.1192, 0.9505],
        ]
    )
    x = light @ to_xyz.T / [0.9505, 1.0, 1.089]
    f = np.where(x > 0.008856, np.cbrt(x), 7.787 * x + 16 / 116)
    return np.stack(
        [
            116 * f[..., 1] - 16,
            500 * (f[..., 0] - f[..., 1]),
            200 * (f[..., 1] - f[..., 2]),
        ],
        axis=-1,
    )


def contrast(one, other):
    """Return the contrast ratio of WCAG 2.1."""
    shares = np.array([0.2126, 0.7152, 0.0722])
    pair = sorted(float(linear(x) @ shares) + 0.05 for x in (one, other))
    return pair[1] / pair[0]


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


MODES = {"light": lambda x: x, "dark": dark}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("cones", CONES)
def test_every_two_colors_are_distinguishable(mode, cones):
    points = {
        name: lab(seen(MODES[mode](rgb(colour)), cones))
        for name, colour in PALETTE.items()
    }
    for (one, a), (other, b) in itertools.combinations(points.items(), 2):
        assert np.linalg.norm(a - b) > 10, (one, other)


@pytest.mark.parametrize("name", [*PALETTE, "grey"])
def test_every_color_contrasts_with_the_background(name):
    colour = rgb({**PALETTE, "grey": GRAY}[name])
    assert contrast(colour, np.ones(3)) >= 3
    assert contrast(dark(colour), np.zeros(3)) >= 3


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
        ([[0.5, 0.5], [1.0]], "one row has 1 numbers, another 2"),
        (np.eye(3), r"shape \(3, 3\) but there are 2 row labels and 2 col"),
        ([[0.5, 1.5], [0, 1]], "from 0 to 1.5 but the scale runs from 0 to 1"),
        ([[-0.5, 1.0], [0, 1]], "run from -0.5 to 1"),
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


@pytest.mark.refusal
def test_a_band_refuses_what_does_not_belong_together():
    _, ax = make_figure()
    with pytest.raises(ValueError, match=r"\(2,\), \(3,\)"):
        draw_curve_with_band(ax, [1, 2], [1, 2, 3], [1, 2], [1, 2], "a")
    with pytest.raises(ValueError, match="low is 9 where high is 8"):
        draw_curve_with_band(ax, [1, 2], [1, 8], [1, 9], [1, 8], "a")
    with pytest.raises(ValueError, match=r"lengths \[1, 2, 2, 2\]"):
        draw_dots_with_intervals(ax, ["a"], [1, 2], [1, 2], [1, 2])


def test_line_labels_are_at_line_ends_and_never_overlap():
    fig, ax = make_figure()
    for k, end in enumerate((5.0, 5.01, 1.0)):
        ax.plot([0, 1], [0, end], label=f"run {k}")
    ax.set_ylim(0, 10)
    label_lines(ax)
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


@pytest.mark.refusal
@pytest.mark.parametrize("width", [0, 7.3, -1])
def test_a_figure_stays_on_the_page(width):
    with pytest.raises(ValueError, match=f"width is {width} inches"):
        make_figure(width=width)


@pytest.mark.refusal
@pytest.mark.parametrize("alt", ["", "  \n "])
def test_a_figure_without_alternative_text_is_refused(alt):
    fig, _ = make_figure()
    with pytest.raises(ValueError, match="must describe the figure"):
        show_figure(fig, alt=alt)


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
