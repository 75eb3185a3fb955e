"""Multi30k's loader, on a small copy of the published format."""

import hashlib
import io
import tarfile
from dataclasses import replace

import pytest

from attnbook.data import multi30k
from attnbook.data.multi30k import Archive

pytestmark = pytest.mark.precision


def packed(members):
    """Return a .tar.gz with these texts."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, text in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    return buffer.getvalue()


def published(tmp_path, stem, members):
    """Publish an archive as a file:// address."""
    content = packed(members)
    path = tmp_path / f"{stem}.tar.gz"
    path.write_bytes(content)
    return Archive(path.as_uri(), hashlib.sha256(content).hexdigest(), stem)


@pytest.fixture
def archives(tmp_path):
    """Three archives; the first as crooked as the real ones."""
    (tmp_path / "web").mkdir()
    train = {
        "._train.en": "not text",
        "./train.de": "Ein Hund läuft.\nZwei Kinder!\n\n",
        "./train.en": "A dog runs.\nTwo kids!\n\n",
    }
    one = {"{}.en": "A cat.\n", "{}.de": "Eine Katze.\n"}
    return {
        split: published(tmp_path / "web", stem, members)
        for split, stem, members in (
            ("train", "train", train),
            ("valid", "val", {k.format("val"): v for k, v in one.items()}),
            ("test", "test", {k.format("test"): v for k, v in one.items()}),
        )
    }


def test_load_fetches_once_and_pairs_lines(tmp_path, archives):
    splits = multi30k.load(tmp_path / "kept", archives)
    assert [(pair.source, pair.target) for pair in splits.train] == [
        (("A", "dog", "runs", "."), ("Ein", "Hund", "läuft", ".")),
        (("Two", "kids", "!"), ("Zwei", "Kinder", "!")),
    ]
    assert len(splits.valid) == len(splits.test) == 1
    for path in (tmp_path / "web").iterdir():
        path.unlink()
    assert multi30k.load(tmp_path / "kept", archives) == splits


@pytest.mark.refusal
def test_a_missing_network_is_reported_with_what_to_do(tmp_path, archives):
    (tmp_path / "web/train.tar.gz").unlink()
    with pytest.raises(ConnectionError) as raised:
        multi30k.load(tmp_path / "kept", archives)
    message = str(raised.value)
    assert archives["train"].url in message
    assert str(tmp_path / "kept/train.tar.gz") in message


@pytest.mark.refusal
def test_an_altered_download_is_refused_and_not_kept(tmp_path, archives):
    wrong = replace(archives["train"], sha256="0" * 64)
    right = archives["train"].sha256
    with pytest.raises(ValueError, match=f"SHA-256 {right}.*SHA-256 {'0' * 64}"):
        multi30k.fetch(wrong, tmp_path / "kept")
    assert not (tmp_path / "kept").exists()


@pytest.mark.refusal
def test_sides_of_different_length_are_refused(tmp_path, archives):
    members = {"val.en": "A\nB\n", "val.de": "A\n"}
    archives["valid"] = published(tmp_path / "web", "val", members)
    with pytest.raises(ValueError, match=r"val\.en has 2 lines but .* has 1"):
        multi30k.load(tmp_path / "kept", archives)
