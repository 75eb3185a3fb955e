"""Pictures: their size known before they come, and smaller on the wire.

A figure is drawn at 150 dots an inch for a column of 7.2 inches; a page shows
it at 100, so that the letters of all figures have one size. It is shipped as
lossless WebP, which takes about two thirds of the PNG that notebooks store,
and is asked for when the reader comes near it.

Source: WebP, https://developers.google.com/speed/webp
"""

import re
from pathlib import Path

from PIL import Image

IMAGE = re.compile(
    r'<(?:img\b[^>]*\bsrc|a\b[^>]*\bhref)="([^":?]+\.png)"[^>]*>'
)
DRAWN, SHOWN = 150, 100  # dots an inch


def resize_image(source: Path, target: Path) -> tuple[int, int]:
    """Write a picture as lossless WebP; return the size a page shows it in."""
    with Image.open(source) as picture:
        width, height = picture.size
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            colours = "RGBA" if "A" in picture.getbands() else "RGB"
            picture.convert(colours).save(target, lossless=True, quality=60)
    return round(width * SHOWN / DRAWN), round(height * SHOWN / DRAWN)


def sized(tag: str, src: str, size: tuple[int, int]) -> str:
    """Return an image's tag with its new source, its size and its turn."""
    kept = re.sub(r'\s(?:src|width|height|style|loading)="[^"]*"', "", tag)
    how = 'loading="lazy" decoding="async"'
    place = f'src="{src}" width="{size[0]}" height="{size[1]}" {how}'
    return kept.replace("<img", f"<img {place}", 1)


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
        return sized(match[0], where, size)

    if context.get("body"):
        context["body"] = IMAGE.sub(one, context["body"])


def setup(app) -> None:
    """Connect to Sphinx at every page."""
    app.connect("html-page-context", resize_images, priority=800)
