"""Fonts for the browser tests: made from matplotlib's, on any machine alike.

A page's width depends on its reader's fonts, so the tests bring their own: a
wide one (DejaVu Sans, as wide as Verdana), and a narrow one (the same, with
every outline and advance made narrower).
"""

import base64
import io
from functools import cache
from pathlib import Path

import matplotlib
from fontTools.subset import Options, Subsetter
from fontTools.ttLib import TTFont

FOLDER = Path(matplotlib.get_data_path()) / "fonts/ttf"
# Advances relative to DejaVu's. Liberation Sans Narrow has 0.72 of DejaVu
# Sans; the narrowest common font for code, Consolas, 0.91 of DejaVu Sans Mono.
FACES = {
    "wide": {"text": 1.0, "code": 1.0},
    "narrow": {"text": 0.7, "code": 0.91},
}
FILES = {
    "text": ("DejaVuSans.ttf", "DejaVuSans-Bold.ttf"),
    "code": ("DejaVuSansMono.ttf",),
    "math": ("STIXGeneral.ttf",),
}
WEIGHTS = ("normal", "bold")
LETTERS = (
    *range(0x20, 0x180),
    *range(0x391, 0x3CA),
    *range(0x2010, 0x2040),
    *range(0x2190, 0x2200),
    *range(0x2200, 0x2270),
    *range(0x2713, 0x2718),
)
ITALICS = (*range(0x1D434, 0x1D468), *range(0x1D6E2, 0x1D71C), 0x210E, 0x211D)
CODE = "pre, pre *, code, code *, kbd, samp, textarea"
RULES = (
    f"*:not({CODE}, math, math *) {{ font-family: 'test text' !important; }}"
    f"{CODE} {{ font-family: 'test code' !important; }}"
    "math, math * { font-family: 'test math' !important; }"
)
USE = """async ([faces, rules]) => {
  for (const face of window.testFaces ?? []) document.fonts.delete(face);
  window.testFaces = faces.map(([family, weight, data]) => {
    const bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
    return new FontFace(family, bytes.buffer, { weight });
  });
  await Promise.all(window.testFaces.map((face) => face.load()));
  for (const face of window.testFaces) document.fonts.add(face);
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(rules);
  document.adoptedStyleSheets = [sheet];
}"""
TEXT = "Every letter counts."
# As any other text of the page: nothing here names a font.
PROBE = """(text) => {
  const span = document.createElement("span");
  span.style.cssText = "position: absolute; white-space: pre; "
    + "font-size: 100px; letter-spacing: 0";
  span.textContent = text;
  document.body.append(span);
  const { width } = span.getBoundingClientRect();
  span.remove();
  return width;
}"""


@cache
def make_font(name: str, scale: float) -> bytes:
    """Return one of matplotlib's fonts, with few letters, `scale` as wide."""
    made = TTFont(FOLDER / name)
    options = Options(hinting=False, layout_features=[], drop_tables=["FFTM"])
    subset = Subsetter(options)
    subset.populate(unicodes=(*LETTERS, *ITALICS))
    subset.subset(made)
    if scale != 1:
        narrow(made, scale)
    file = io.BytesIO()
    made.save(file)
    return file.getvalue()


def narrow(made: TTFont, scale: float) -> None:
    """Make every outline and advance of an open font narrower."""
    for name in made.getGlyphOrder():
        glyph = made["glyf"][name]
        if glyph.isComposite():
            for part in glyph.components:
                part.x = round(part.x * scale)
        elif glyph.numberOfContours:
            glyph.coordinates.scale((scale, 1))
            glyph.coordinates.toInt()
        advance, bearing = made["hmtx"][name]
        made["hmtx"][name] = (round(advance * scale), round(bearing * scale))
    for name in made.getGlyphOrder():
        made["glyf"][name].recalcBounds(made["glyf"])


@cache
def make_faces(width: str) -> list[tuple[str, str, str]]:
    """Return family, weight and base64 data of each font of a width."""
    return [
        (
            f"test {kind}",
            weight,
            base64.b64encode(make_font(file, FACES[width].get(kind, 1.0))).decode(),
        )
        for kind, files in FILES.items()
        for weight, file in zip(WEIGHTS, files, strict=False)
    ]


def apply_fonts(page, width: str) -> None:
    """Show an open page's text in the fonts of a width.

    No reader's fonts change while a page is open. The page measures which code
    scrolls sideways when the window changes its size, so it is told of one.
    """
    page.evaluate(USE, [make_faces(width), RULES])
    page.evaluate("dispatchEvent(new Event('resize'))")


@cache
def make_style(width: str) -> str:
    """Return a style element that brings the fonts of a width with it."""
    rules = "".join(
        f"@font-face {{ font-family: '{family}'; font-weight: {weight}; "
        f"src: url(data:font/ttf;base64,{data}); }}"
        for family, weight, data in make_faces(width)
    )
    return f"<style>{rules}{RULES}</style>"


def measure_probe(page, width: str) -> float:
    """Return how wide an open page shows a text of 100 px in these fonts."""
    apply_fonts(page, width)
    return page.evaluate(PROBE, TEXT)


@cache
def compute_expected_width(width: str) -> float:
    """Return how wide the file of the font says that the text is."""
    made = TTFont(io.BytesIO(make_font(FILES["text"][0], FACES[width]["text"])))
    letters = made.getBestCmap()
    advances = [made["hmtx"][letters[ord(c)]][0] for c in TEXT]
    return 100 * sum(advances) / made["head"].unitsPerEm
