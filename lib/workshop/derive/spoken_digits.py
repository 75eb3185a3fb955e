"""Derive files/spoken_digits from a Debian package of telephone sounds.

Run it with
    apt-get download asterisk-core-sounds-en-wav=1.6.1-1
    dpkg-deb --extract asterisk-core-sounds-en-wav_1.6.1-1_all.deb sounds
    python -m workshop.derive.spoken_digits sounds

Source: https://packages.debian.org/asterisk-core-sounds-en-wav. The recordings
    are copied unchanged.
"""

import re
import sys
from pathlib import Path

from workshop.derive import FILES, write, write_sums

SOUNDS = "usr/share/asterisk/sounds/en_US_f_Allison/digits"
COPYRIGHT = "usr/share/doc/asterisk-core-sounds-en-wav/copyright"
LICENSE = "CC-BY-SA-3.0"


def cut_license(copyright_file: str, name: str = LICENSE) -> list[str]:
    """Return the lines of a license in the text of Debian's copyright file.

    There, every line of a license begins with a space, and an empty line is a
    dot.
    """
    found = re.search(rf"^License: {name}\n((?: .*\n)+)", copyright_file, re.M)
    if not found:
        raise ValueError(f"the copyright file has no text of 'License: {name}'")
    return ["" if x == " ." else x[1:] for x in found[1].splitlines()]


def main(folder: str) -> None:
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
