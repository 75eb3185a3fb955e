"""Derive files/spoken_digits from a Debian package of telephone sounds.

Run it with
    apt-get download asterisk-core-sounds-en-wav=1.6.1-1
    dpkg-deb --extract asterisk-core-sounds-en-wav_1.6.1-1_all.deb sounds
    python -m workshop.derive.spoken_digits sounds

Source: https://packages.debian.org/asterisk-core-sounds-en-wav. The recordings
    are copied unchanged.
"""

import sys
from pathlib import Path

from workshop.derive import FILES, write, write_sums

SOUNDS = "usr/share/asterisk/sounds/en_US_f_Allison/digits"
COPYRIGHT = "usr/share/doc/asterisk-core-sounds-en-wav/copyright"
LICENSE = "CC-BY-SA-3.0"


def cut_license(copyright_file: str, name: str = LICENSE) -> list[str]:
    """Return the lines of a license in Debian's copyright file.

    There, every line of a license begins with a space, and an empty line is a
    dot.

    Args:
        copyright_file: its text.
        name: of the license in that file.

    Raises:
        ValueError: if the file has no such license.
    """
    first = f"License: {name}"
    lines = copyright_file.splitlines()
    starts = [
        i
        for i, line in enumerate(lines[:-1])
        if line.split() == first.split() and lines[i + 1].startswith(" ")
    ]
    if not starts:
        raise ValueError(f"the copyright file has no text of {first!r}")
    found = []
    for line in lines[starts[0] + 1 :]:
        if not line.startswith(" "):
            break
        found.append("" if line == " ." else line[1:])
    return found


def main(folder: str) -> None:
    """Write the recordings and their license."""
    source = Path(folder)
    text = (source / COPYRIGHT).read_text("utf8")
    write("spoken_digits/LICENSE", cut_license(text))
    for digit in range(1, 10):
        name = f"{digit}.wav"
        sound = (source / SOUNDS / name).read_bytes()
        (FILES / "spoken_digits" / name).write_bytes(sound)
    write_sums()


if __name__ == "__main__":
    main(sys.argv[1])
