"""The license of the recordings is cut out of Debian's copyright file."""

import pytest

from attnbook.data import read_file
from workshop.derive import spoken_digits

pytestmark = pytest.mark.precision

COPYRIGHT = """Files: *
License: CC-BY-SA-3.0

Files: debian/*
License: GPL-2+
 This package is free.

License: CC-BY-SA-3.0
 THE WORK
 .
 1. Definitions.

License: CC-BY-3.0
 Another text
"""


def test_the_text_of_the_license_is_found_among_others():
    found = spoken_digits.cut_license(COPYRIGHT)
    assert found == ["THE WORK", "", "1. Definitions."]


@pytest.mark.refusal
def test_a_file_without_the_license_is_refused():
    with pytest.raises(ValueError, match=r"no text of 'License: CC-BY-SA-3.0'"):
        spoken_digits.cut_license(COPYRIGHT.partition("License: CC-BY-SA")[0])


def test_recordings_and_license_are_written(tmp_path, monkeypatch):
    written = tmp_path / "files"
    for module in ("workshop.derive", "workshop.derive.spoken_digits"):
        monkeypatch.setattr(f"{module}.FILES", written)
    sounds = tmp_path / "in" / spoken_digits.SOUNDS
    sounds.mkdir(parents=True)
    for digit in range(1, 10):
        (sounds / f"{digit}.wav").write_bytes(b"RIFF" * digit)
    copyright_file = tmp_path / "in" / spoken_digits.COPYRIGHT
    copyright_file.parent.mkdir(parents=True)
    copyright_file.write_text(COPYRIGHT)
    spoken_digits.main(str(tmp_path / "in"))
    assert read_file("spoken_digits/3.wav", written) == b"RIFF" * 3
    text = read_file("spoken_digits/LICENSE", written).decode()
    assert text.splitlines() == ["THE WORK", "", "1. Definitions."]


def test_the_recordings_have_their_license_and_their_speaker():
    license_text = read_file("spoken_digits/LICENSE").decode()
    assert license_text.startswith("THE WORK (AS DEFINED BELOW)")
    assert '"License Elements"' in license_text
    assert "ShareAlike" in license_text
    readme = read_file("spoken_digits/README.md").decode()
    assert "Allison\nSmith" in readme or "Allison Smith" in readme
    assert "CC-BY-SA-3.0" in readme
