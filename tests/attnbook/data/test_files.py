"""Data files are read only when they are the ones that were measured with."""

import hashlib

import pytest

from attnbook.data import FILES, Pair, read_file, read_lines

pytestmark = pytest.mark.precision

CONTENT = b"one\ntwo\n"
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "numbers.txt").write_bytes(CONTENT)
    sums = f"# {len(CONTENT)} numbers.txt\n{SHA256}  numbers.txt\n"
    (tmp_path / "SHA256SUMS").write_text(sums)
    return tmp_path


def test_read_returns_what_is_listed(folder):
    assert read_file("numbers.txt", folder) == CONTENT
    assert read_lines("numbers.txt", folder) == ["one", "two"]


@pytest.mark.refusal
def test_another_file_is_refused_with_both_sizes_and_sums(folder):
    content = b"one\ntwa\n"
    (folder / "numbers.txt").write_bytes(content)
    found = hashlib.sha256(content).hexdigest()
    message = (
        f"numbers.txt .* {len(content)} bytes and SHA-256 {found}, "
        f"expected 8 bytes and SHA-256 {SHA256}"
    )
    with pytest.raises(ValueError, match=message):
        read_file("numbers.txt", folder)


def test_every_file_is_listed_with_its_checksum():
    names = {p.relative_to(FILES).as_posix() for p in FILES.rglob("*") if p.is_file()}
    lines = (FILES / "SHA256SUMS").read_text().splitlines()
    listed = [x.split(maxsplit=1)[1] for x in lines if not x.startswith("#")]
    assert sorted(listed) == sorted(names - {"SHA256SUMS", ".gitattributes"})
    for name in listed:
        assert read_file(name)


@pytest.mark.refusal
def test_an_empty_sentence_and_other_references_are_refused():
    with pytest.raises(ValueError, match="at least one symbol"):
        Pair((), ("b",), ())
    with pytest.raises(ValueError, match=r"must be the target .*'b'.*'c'"):
        Pair(("a",), ("b",), (("c",), ("b",)))
