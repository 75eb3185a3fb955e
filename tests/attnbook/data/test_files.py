"""Data files are read only when they are the ones that were measured with."""

import hashlib
import re

import pytest

from attnbook.data import FILES, Pair, read_file, read_lines

pytestmark = pytest.mark.precision

CONTENT = b"one\ntwo\n"
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def folder(tmp_path):
    """A folder with one listed file."""
    (tmp_path / "numbers.txt").write_bytes(CONTENT)
    (tmp_path / "SHA256SUMS").write_text(
        f"# {len(CONTENT)} numbers.txt\n{SHA256}  numbers.txt\n"
    )
    return tmp_path


def test_read_returns_what_is_listed(folder):
    assert read_file("numbers.txt", folder) == CONTENT
    assert read_lines("numbers.txt", folder) == ["one", "two"]


@pytest.mark.refusal
@pytest.mark.parametrize("content", [CONTENT[:-3], CONTENT + b"3", b""])
def test_a_truncated_or_longer_file_is_refused_with_both_sizes(folder, content):
    (folder / "numbers.txt").write_bytes(content)
    message = f"numbers.txt .* {len(content)} bytes .* expected 8 bytes"
    with pytest.raises(ValueError, match=message):
        read_file("numbers.txt", folder)


@pytest.mark.refusal
def test_a_changed_file_is_refused_with_both_sums(folder):
    (folder / "numbers.txt").write_bytes(b"one\ntwa\n")
    found = hashlib.sha256(b"one\ntwa\n").hexdigest()
    with pytest.raises(ValueError, match=f"SHA-256 {found}.*SHA-256 {SHA256}"):
        read_file("numbers.txt", folder)


@pytest.mark.refusal
def test_a_missing_file_is_named(folder):
    (folder / "numbers.txt").unlink()
    with pytest.raises(ValueError, match=r"^numbers\.txt is listed in"):
        read_file("numbers.txt", folder)


@pytest.mark.refusal
def test_a_file_without_a_sum_is_refused_though_it_is_there(folder):
    (folder / "letters.txt").write_bytes(b"a")
    message = re.escape("'letters.txt' is not listed in SHA256SUMS, which has")
    with pytest.raises(ValueError, match=message):
        read_file("letters.txt", folder)


def test_every_file_is_listed_with_its_checksum():
    unlisted = {"SHA256SUMS", ".gitattributes"}
    names = {
        path.relative_to(FILES).as_posix()
        for path in FILES.rglob("*")
        if path.is_file()
    }
    listed = [
        line.split(maxsplit=1)[1]
        for line in (FILES / "SHA256SUMS").read_text().splitlines()
        if not line.startswith("#")
    ]
    assert sorted(listed) == sorted(names - unlisted)
    for name in listed:
        assert read_file(name)


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("source", "target", "references"),
    [((), ("b",), ()), (("a",), (), ()), (("a",), ("b",), (("b",), ()))],
)
def test_a_pair_refuses_an_empty_sentence(source, target, references):
    with pytest.raises(ValueError, match=r"at least 1|at least one symbol"):
        Pair(source, target, references)


@pytest.mark.refusal
def test_a_pair_refuses_references_that_do_not_start_with_its_target():
    with pytest.raises(ValueError, match=r"must be the target .*'b'.*'c'"):
        Pair(("a",), ("b",), (("c",), ("b",)))
