"""Emoji of any size become small pictures; licenses lie beside them."""

import hashlib
import io
import tarfile

import pytest
from PIL import Image

from attnbook.data import read_file
from attnbook.data.emoji import LEVELS, SIZE
from workshop.derive import emoji

pytestmark = pytest.mark.precision


def test_the_margin_is_cut_off_and_the_rest_is_put_on_white():
    image = Image.new("RGBA", (100, 100), (0, 0, 0, 0))
    image.paste((255, 0, 0, 255), (10, 38, 90, 62))  # 80 by 24 pixels, red
    found = emoji.reduce_image(image)
    white, red = (LEVELS - 1,) * 3, (LEVELS - 1, 0, 0)
    pixels = [tuple(found[i : i + 3]) for i in range(0, len(found), 3)]
    rows = [pixels[i : i + SIZE] for i in range(0, SIZE**2, SIZE)]
    assert [set(row) for row in rows] == ([{white}] * 7 + [{red}] * 6 + [{white}] * 7)


def test_a_file_is_found_by_its_character():
    files = {"a/1f436.png": b"dog", "a/2702-FE0F.png": b"scissors"}
    assert emoji.find_member(files, "a/{}.png", "🐶") == b"dog"
    assert emoji.find_member(files, "a/{}.png", "✂") == b"scissors"


@pytest.mark.refusal
def test_a_character_without_a_file_is_refused():
    with pytest.raises(ValueError, match=r"has no a/1f436\.png"):
        emoji.find_member({"a/1f431.png": b"cat"}, "a/{}.png", "🐶")


def write_archive(path):
    content = io.BytesIO(b"text")
    with tarfile.open(path, "w:gz") as archive:
        member = tarfile.TarInfo("package/a.txt")
        member.size = 4
        archive.addfile(member, content)


def test_only_the_pinned_archive_is_read(tmp_path, monkeypatch):
    path = tmp_path / "a.tgz"
    write_archive(path)
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setitem(emoji.SHA256, "a.tgz", sha256)
    assert emoji.read_archive(path) == {"package/a.txt": b"text"}
    monkeypatch.setitem(emoji.SHA256, "a.tgz", "0" * 64)
    with pytest.raises(ValueError, match=r"not the file .* SHA-256"):
        emoji.read_archive(path)


@pytest.mark.parametrize(
    ("artist", "title", "author"),
    [
        ("twitter", "Attribution 4.0 International", "Twitter, Inc."),
        ("noto", "SIL Open Font License", "Google Inc."),
        ("openmoji", "Attribution-ShareAlike 4.0", "Benedikt Groß"),
    ],
)
def test_every_artist_has_a_license_and_is_named(artist, title, author):
    text = read_file(f"emoji/LICENSE-{artist}").decode()
    assert title in text[:200]
    readme = read_file("emoji/README.md").decode()
    assert author in readme
    assert f"LICENSE-{artist}" in readme
