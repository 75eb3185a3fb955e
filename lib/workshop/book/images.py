"""Pictures: their size known before they come, and smaller on the wire.

A figure is drawn at 150 dots an inch for a column of 7.2 inches; a page shows
it at 100, so that the letters of all figures have one size. It is shipped as
lossless WebP, which takes about two thirds of the PNG that notebooks store,
and is asked for when the reader comes near it. A diagram is an SVG, which the
page offers for download as well.

Source: WebP, https://developers.google.com/speed/webp
"""

import html
import re
from pathlib import Path
from urllib.parse import quote

from PIL import Image

SIZE = re.compile(r'<svg\b[^>]*\bwidth="([\d.]+)pt" height="([\d.]+)pt"')
DRAWN, SHOWN = 150, 100  # dots an inch
POINTS = 72  # an inch


def resize_image(source: Path, target: Path) -> tuple[int, int]:
    """Write a picture as lossless WebP; return the size a page shows it in."""
    with Image.open(source) as picture:
        width, height = picture.size
        # A picture that a page shows under the same name may have been changed.
        if not target.exists() or target.stat().st_mtime < source.stat().st_mtime:
            target.parent.mkdir(parents=True, exist_ok=True)
            colours = "RGBA" if "A" in picture.getbands() else "RGB"
            picture.convert(colours).save(target, lossless=True, quality=60)
    return round(width * SHOWN / DRAWN), round(height * SHOWN / DRAWN)


def write_tag(src: str, size: tuple[int, int], alt: str) -> str:
    return (
        f'<span class="drawn" style="--drawn: {size[0]}px">'
        f'<img src="{src}" width="{size[0]}" height="{size[1]}"'
        f' loading="lazy" decoding="async" alt="{html.escape(alt)}"></span>'
    )


def offer_diagram(src: str, svg: str, alt: str, name: str) -> str:
    """Return a diagram's element with its size, and a link to take it along."""
    width, height = SIZE.search(svg).groups()
    scale = SHOWN / POINTS
    size = round(float(width) * scale), round(float(height) * scale)
    return (
        f'<div class="diagram">{write_tag(src, size, alt)}'
        f'<a class="take" href="{src}" download="{name}">'
        "Download (SVG)</a></div>"
    )


def write_image(builder, node, numbers) -> str | None:
    """Return the element of a figure or diagram; None for another picture."""
    if node["uri"] not in builder.images:
        return None
    name = quote(builder.images[node["uri"]])
    source = Path(builder.srcdir) / node["uri"]
    where = f"{builder.imgpath}/{name}"
    alt = node.get("alt", "")
    if source.suffix == ".svg":
        page = Path(builder.current_docname).name
        taken = f"{page}-diagram-{next(numbers)}.svg"
        return offer_diagram(where, source.read_text("utf8"), alt, taken)
    if source.suffix != ".png":
        return None
    folder = Path(builder.outdir) / builder.imagedir
    smaller = Path(name).with_suffix(".webp")
    size = resize_image(source, folder / smaller)
    return write_tag(f"{builder.imgpath}/{smaller}", size, alt)
