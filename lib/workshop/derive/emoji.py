"""Derive files/emoji from the emoji of three artists.

Run it, with resvg_py 0.5.0 and pillow 13.0.0 installed, with
    npm pack emoji-datasource-twitter@16.0.0 openmoji@17.0.0 twemoji@14.0.2
    apt-get download fonts-noto-color-emoji=2.042-0+deb12u1
    dpkg-deb --extract fonts-noto-color-emoji_*.deb noto
    python -m workshop.derive.emoji .

Source: https://www.npmjs.com/package/emoji-datasource-twitter/v/16.0.0 (PNG),
    https://www.npmjs.com/package/openmoji/v/17.0.0 (SVG),
    https://packages.debian.org/fonts-noto-color-emoji (a font of bitmaps), and
    https://www.npmjs.com/package/twemoji/v/14.0.2 (only the license of
    Twitter's emoji). The margin of each emoji is cut off; what is left is put
    on a white square, reduced to 20 by 20 pixels, and rounded to 32 values a
    channel.
"""

import bz2
import importlib
import io
import sys
import tarfile
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from attnbook.data import read_lines, verify_checksum
from attnbook.data.emoji import LEVELS, SIZE
from workshop.derive import FILES, write, write_sums
from workshop.derive.spoken_digits import cut_license

FONT = "noto/usr/share/fonts/truetype/noto/NotoColorEmoji.ttf"
COPYRIGHT = "noto/usr/share/doc/fonts-noto-color-emoji/copyright"
TWITTER = "emoji-datasource-twitter-16.0.0.tgz"
OPENMOJI = "openmoji-17.0.0.tgz"
TWEMOJI = "twemoji-14.0.2.tgz"
SHA256 = {
    TWITTER: "f64a530c63bca463bd8317fdc4615ce63a53a0c65018e4ce2d848aaba7a28877",
    OPENMOJI: "55ee7d13485dec86e9f38c1f3a645a13382d33ff97c0cd845ee824b0aef45e68",
    TWEMOJI: "5350eac1be60cb68ae48b60f1a53f5978bba0dc40da63e97e9bc9896aa392213",
    FONT: "e5899ed38b8ed83e08bd3ac5de09791e9d19d288333a796de1d35ad17396f1ec",
}
BITMAPS = 109  # the only size of the font, in pixels
LANCZOS = Image.Resampling.LANCZOS
OPAQUE = 8  # above this alpha, a pixel belongs to the emoji


def find_member(files: dict[str, bytes], pattern: str, glyph: str) -> bytes:
    """Return the file of an emoji; its path's pattern has a place for the code."""
    code = f"{ord(glyph):04x}"
    for name in (code, f"{code}-fe0f"):
        for path in (pattern.format(name), pattern.format(name.upper())):
            if path in files:
                return files[path]
    raise ValueError(f"the package has no {pattern.format(code)}")


def read_archive(path: Path) -> dict[str, bytes]:
    content = verify_checksum(path.read_bytes(), path.name, SHA256[path.name])
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        return {
            # A regular file has contents.
            member.name: archive.extractfile(member).read()  # type: ignore[union-attr]
            for member in archive
            if member.isfile()
        }


def render_svg(content: bytes) -> Image.Image:
    resvg = importlib.import_module("resvg_py")
    size = {"width": 216, "height": 216}
    png = resvg.svg_to_bytes(svg_string=content.decode(), **size)
    return Image.open(io.BytesIO(bytes(png)))


def draw_glyph(font: ImageFont.FreeTypeFont, glyph: str) -> Image.Image:
    image = Image.new("RGBA", (160, 160), (255, 255, 255, 0))
    ImageDraw.Draw(image).text((10, 10), glyph, font=font, embedded_color=True)
    return image


def reduce_image(image: Image.Image) -> bytes:
    """Return an emoji without its margin, `SIZE` by `SIZE` pixels on white."""
    image = image.convert("RGBA")
    alpha = image.getchannel("A").point(lambda a: 255 * (a > OPAQUE))
    image = image.crop(alpha.getbbox())
    side = max(image.size)
    corner = ((side - image.width) // 2, (side - image.height) // 2)
    square = Image.new("RGBA", (side, side), (255, 255, 255, 255))
    square.alpha_composite(image, corner)
    method = Image.Resampling.BOX if side % SIZE == 0 else LANCZOS
    small = square.convert("RGB").resize((SIZE, SIZE), method)
    return bytes(round(x / 255 * (LEVELS - 1)) for x in small.tobytes())


def write_images(name: str, images: list[Image.Image]) -> None:
    """Write an artist's emoji to `emoji/NAME.bz2`, one after the other."""
    content = b"".join(map(reduce_image, images))
    (FILES / f"emoji/{name}.bz2").write_bytes(bz2.compress(content))


def main(folder: str) -> None:
    source = Path(folder)
    glyphs = [x.split("\t")[0] for x in read_lines("emoji/names.tsv")]
    twitter, openmoji, twemoji = (
        read_archive(source / x) for x in (TWITTER, OPENMOJI, TWEMOJI)
    )
    pngs = [find_member(twitter, "package/img/twitter/64/{}.png", x) for x in glyphs]
    write_images("twitter", [Image.open(io.BytesIO(x)) for x in pngs])
    content = (source / FONT).read_bytes()
    verify_checksum(content, FONT, SHA256[FONT])
    font = ImageFont.truetype(io.BytesIO(content), BITMAPS)
    write_images("noto", [draw_glyph(font, x) for x in glyphs])
    pattern = "package/color/svg/{}.svg"
    svgs = [find_member(openmoji, pattern, x) for x in glyphs]
    write_images("openmoji", [render_svg(x) for x in svgs])
    ofl = cut_license((source / COPYRIGHT).read_text("utf8"), "SIL-1.1")
    write("emoji/LICENSE-noto", ofl)
    for name, text in (
        ("twitter", twemoji["package/LICENSE-GRAPHICS"]),
        ("openmoji", openmoji["package/LICENSE.txt"]),
    ):
        write(f"emoji/LICENSE-{name}", text.decode("utf8").splitlines())
    write_sums()


if __name__ == "__main__":
    main(sys.argv[1])
