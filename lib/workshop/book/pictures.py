"""Pictures: their size known before they come, and smaller on the wire.

A figure is drawn at 150 dots an inch for a column of 7.2 inches; a page shows
it at 100, so that the letters of all figures have one size. It is shipped as
lossless WebP, which takes about two thirds of the PNG that notebooks store,
and is asked for when the reader comes near it. A diagram is an SVG, which the
page offers for download as well.

Source: WebP, https://developers.google.com/speed/webp
"""

import re
from itertools import count
from pathlib import Path

from PIL import Image

IMAGE = re.compile(
    r'<(?:img\b[^>]*\bsrc|a\b[^>]*\bhref)="([^":?]+\.png)"[^>]*>'
)
DIAGRAM = re.compile(
    r'(?:<a\b[^>]*href="[^":?]+\.svg"[^>]*>)?'
    r'<img\b[^>]*\bsrc="([^":?]+\.svg)"[^>]*>(?:</a>)?'
)
SIZE = re.compile(r'<svg\b[^>]*\bwidth="([\d.]+)pt" height="([\d.]+)pt"')
DRAWN, SHOWN = 150, 100  # dots an inch
POINTS = 72  # an inch


def resize_image(source: Path, target: Path) -> tuple[int, int]:
    """Write a picture as lossless WebP; return the size a page shows it in."""
    with Image.open(source) as picture:
        width, height = picture.size
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            colours = "RGBA" if "A" in picture.getbands() else "RGB"
            picture.convert(colours).save(target, lossless=True, quality=60)
    return round(width * SHOWN / DRAWN), round(height * SHOWN / DRAWN)


def add_size(tag: str, src: str, size: tuple[int, int]) -> str:
    """Return an image's tag with its new source, its size and its turn."""
    kept = re.sub(r'\s(?:src|width|height|style|loading)="[^"]*"', "", tag)
    how = 'loading="lazy" decoding="async"'
    place = f'src="{src}" width="{size[0]}" height="{size[1]}" {how}'
    return kept.replace("<img", f"<img {place}", 1)


def offer_diagram(tag: str, src: str, svg: str, name: str) -> str:
    """Return a diagram's tag with its size, and a link to take it along.

    Args:
        tag: as Sphinx wrote it, with a link around it or without.
        src: where the page finds the file.
        svg: what the file holds.
        name: what a downloaded file is called.
    """
    size = tuple(
        round(float(x) * SHOWN / POINTS) for x in SIZE.search(svg).groups()
    )
    image = add_size(re.search(r"<img\b[^>]*>", tag)[0], src, size)
    return (
        f'<div class="diagram">{image}<a class="take" href="{src}" '
        f'download="{name}">Download this diagram (SVG)</a></div>'
    )


def resize_images(app, pagename, templatename, context, doctree) -> None:
    """Replace the pictures of a page."""
    sources = {
        name: Path(app.srcdir) / path
        for path, name in app.builder.images.items()
    }
    folder = Path(app.outdir) / app.builder.imagedir

    def one(match: re.Match) -> str:
        name = match[1].rpartition("/")[2]
        if name not in sources:
            return match[0]
        target = folder / Path(name).with_suffix(".webp")
        size = resize_image(sources[name], target)
        where = match[1].removesuffix("png") + "webp"
        if match[0].startswith("<a"):
            return match[0].replace(match[1], where)
        return add_size(match[0], where, size)

    page, numbers = Path(pagename).name, count(1)

    def diagram(match: re.Match) -> str:
        source = sources.get(match[1].rpartition("/")[2])
        if source is None:
            return match[0]
        name = f"{page}-diagram-{next(numbers)}.svg"
        svg = source.read_text("utf8")
        return offer_diagram(match[0], match[1], svg, name)

    if context.get("body"):
        body = IMAGE.sub(one, context["body"])
        context["body"] = DIAGRAM.sub(diagram, body)


def setup(app) -> None:
    """Connect to Sphinx at every page."""
    app.connect("html-page-context", resize_images, priority=800)
