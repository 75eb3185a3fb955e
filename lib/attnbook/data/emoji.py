"""Emoji that three artists drew, and their English names.

The same 144 animals, things, … in the styles of Twitter's emoji, Google's Noto
and OpenMoji: small pictures on white. A model that is trained on two of the
artists can be tested on the third.

Source: npm packages emoji-datasource-twitter 16.0.0 (CC-BY-4.0) and openmoji
    17.0.0 (CC-BY-SA-4.0), Debian package fonts-noto-color-emoji 2.042
    (OFL-1.1), see files/emoji/README.md; the names are ours
Axes: N emoji
"""

import bz2
from dataclasses import dataclass
from functools import cache

import torch
from jaxtyping import UInt8
from torch import Tensor

from attnbook.data import read_file, read_lines

ARTISTS = ("twitter", "noto", "openmoji")
SIZE = 20  # pixels on each side of an image
LEVELS = 32  # values of a channel in the files


@dataclass(frozen=True)
class Emoji:
    """What an emoji shows."""

    character: str
    name: str  # one or two English words, such as "red apple"
    kind: str  # "animal", "food", "nature", "thing" or "vehicle"


@cache
def list_emoji() -> tuple[Emoji, ...]:
    """Return what each emoji shows, in the order of the images."""
    return tuple(Emoji(*line.split("\t")) for line in read_lines("emoji/names.tsv"))


def load_emoji(artist: str) -> UInt8[Tensor, "N 3 20 20"]:
    """Return an artist's emoji: red, green and blue from 0 to 255, on the CPU.

    Raises:
        ValueError: if the artist is none of `ARTISTS`.
    """
    if artist not in ARTISTS:
        raise ValueError(f"there is no artist {artist!r}, only {[*ARTISTS]}")
    levels = bytearray(bz2.decompress(read_file(f"emoji/{artist}.bz2")))
    images = torch.frombuffer(levels, dtype=torch.uint8)
    images = images.view(-1, SIZE, SIZE, 3).permute(0, 3, 1, 2)
    return (images.float() * (255 / (LEVELS - 1))).round().to(torch.uint8)
