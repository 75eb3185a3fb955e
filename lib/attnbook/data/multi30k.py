"""A larger corpus to fetch: 29,000 English-German captions, Multi30k.

Nothing in the book depends on it. It is downloaded once to a folder of yours
and compared with published checksums. It is not part of the package: read
its authors' terms before you pass it on.

Source: Elliott et al. (2016), https://arxiv.org/abs/1605.00459. Addresses and
    SHA-256 as in torchtext 0.18.0, torchtext/datasets/multi30k.py (whose
    variable is called MD5, though the sums are SHA-256).
"""

import io
import re
import tarfile
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from attnbook.data import Pair, Splits, Symbols, verify_checksum

MIRROR = (
    "https://raw.githubusercontent.com/neychev/small_DL_repo/master/datasets/Multi30k"
)


@dataclass(frozen=True)
class Archive:
    """The published file of a split: `stem`.en and `stem`.de in a .tar.gz."""

    url: str
    sha256: str
    stem: str


ARCHIVES = {
    "train": Archive(
        f"{MIRROR}/training.tar.gz",
        "20140d013d05dd9a72dfde46478663ba05737ce983f478f960c1123c6671be5e",
        "train",
    ),
    "valid": Archive(
        f"{MIRROR}/validation.tar.gz",
        "a7aa20e9ebd5ba5adce7909498b94410996040857154dab029851af3a866da8c",
        "val",
    ),
    "test": Archive(
        f"{MIRROR}/mmt16_task1_test.tar.gz",
        "6d1ca1dba99e2c5dd54cae1226ff11c2551e6ce63527ebb072a1f70f72a5cd36",
        "test",
    ),
}


def load(
    folder: Path | str = "multi30k",
    archives: Mapping[str, Archive] = ARCHIVES,
) -> Splits:
    """Return the pairs as words and punctuation marks, fetching what lacks.

    Args:
        folder: where the archives are kept, or will be.
        archives: what to read for "train", "valid" and "test".

    Raises:
        ConnectionError: if an archive is neither here nor can be fetched.
        ValueError: if an archive is not the one that was published.
    """
    return Splits(
        **{
            split: _pairs(fetch(archive, Path(folder)), archive.stem)
            for split, archive in archives.items()
        }
    )


def fetch(archive: Archive, folder: Path) -> bytes:
    """Return an archive's bytes from `folder`, downloading it once."""
    path = folder / archive.url.rpartition("/")[2]
    if path.exists():
        return verify_checksum(path.read_bytes(), str(path), archive.sha256)
    try:
        with urllib.request.urlopen(archive.url, timeout=60) as answer:
            content = answer.read()
    except OSError as error:
        raise ConnectionError(
            f"could not fetch {archive.url} ({error}): without a network, put "
            f"the file at {path} yourself, or use attnbook.data.libreoffice, "
            "which needs none"
        ) from error
    verify_checksum(content, archive.url, archive.sha256)
    folder.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return content


def _pairs(content: bytes, stem: str) -> tuple[Pair, ...]:
    """Return the pairs whose two lines are not empty (the last ones are)."""
    english, german = (_lines(content, f"{stem}.{end}") for end in ("en", "de"))
    if len(english) != len(german):
        raise ValueError(
            f"{stem}.en has {len(english)} lines but {stem}.de has "
            f"{len(german)}: they must be translations line by line"
        )
    sides = zip(
        map(split_into_words, english),
        map(split_into_words, german),
        strict=True,
    )
    return tuple(Pair(*both) for both in sides if all(both))


def _lines(content: bytes, name: str) -> list[str]:
    """Return a member's lines; folders and "._" twins beside it are skipped."""
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for member in archive:
            if member.isfile() and Path(member.name).name == name:
                held = archive.extractfile(member)
                assert held is not None, "a file has contents"
                text = held.read().decode("utf-8")
                return text.rstrip("\n").split("\n")
        raise ValueError(f"the archive has no {name}, only {archive.getnames()}")


def split_into_words(text: str) -> Symbols:
    """Cut a text into words and single punctuation marks."""
    return tuple(re.findall(r"\w+|[^\w\s]", text))
