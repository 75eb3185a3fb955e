"""The data of the experiments: pairs, splits, and files with checksums.

`cmudict` spells words out as phonemes, `libreoffice` translates English into
French, `grammar` does so with known word alignments, `spoken_digits` are sounds
with known times, `digits` and `emoji` are images. All lie in the package.

Source: files/*/README.md name each file's origin and licence.
"""

import bz2
import hashlib
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable

FILES = files(__name__) / "files"
Symbols = tuple[str, ...]


@dataclass(frozen=True)
class Pair:
    """A source sequence and the target it should become.

    Attributes:
        source: the symbols a model reads.
        target: the symbols it should generate.
        references: every accepted target, `target` first; `target` alone
            unless given.
    """

    source: Symbols
    target: Symbols
    references: tuple[Symbols, ...] = ()

    def __post_init__(self):
        """Refuse empty sequences, and references that start elsewhere."""
        if not self.references:
            object.__setattr__(self, "references", (self.target,))
        if not (self.source and all(self.references)):
            raise ValueError(
                "a pair needs at least one symbol on each side, not source "
                f"{self.source!r} with references {self.references!r}"
            )
        if self.references[0] != self.target:
            raise ValueError(
                "the first reference must be the target "
                f"{self.target!r}, not {self.references[0]!r}"
            )


@dataclass(frozen=True)
class Splits:
    """Pairs for training, validation and test."""

    train: tuple[Pair, ...]
    valid: tuple[Pair, ...]
    test: tuple[Pair, ...]


def read_file(name: str, folder: Traversable = FILES) -> bytes:
    """Return the bytes of a file such as "cmudict/test.txt", after checking them.

    Raises:
        ValueError: if SHA256SUMS in the folder does not list the file, or if
            it is missing or another one.
    """
    sums, sizes = _read_checksums(folder)
    if name not in sums:
        raise ValueError(
            f"{name!r} is not listed in SHA256SUMS, which has {sorted(sums)}"
        )
    if not (folder / name).is_file():
        raise ValueError(f"{name} is listed in SHA256SUMS but is not in {folder}")
    content = (folder / name).read_bytes()
    return verify_checksum(content, name, sums[name], sizes[name])


def read_lines(name: str, folder: Traversable = FILES) -> list[str]:
    """Return a data file's lines; a name ending in .bz2 is decompressed."""
    content = read_file(name, folder)
    if name.endswith(".bz2"):
        content = bz2.decompress(content)
    return content.decode("utf-8").splitlines()


def verify_checksum(
    content: bytes, name: str, sha256: str, size: int | None = None
) -> bytes:
    """Return `content` if its SHA-256 is `sha256`; otherwise say both."""
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        known = "" if size is None else f"{size} bytes and "
        raise ValueError(
            f"{name} is not the file of the recorded experiments: it has "
            f"{len(content)} bytes and SHA-256 {found}, expected {known}"
            f"SHA-256 {sha256}"
        )
    return content


def _read_checksums(folder: Traversable) -> tuple[dict[str, str], dict[str, int]]:
    """Parse SHA256SUMS: `sum  name` lines, and `# size name` comments."""
    sums, sizes = {}, {}
    for line in (folder / "SHA256SUMS").read_text("utf-8").splitlines():
        if line.startswith("#"):
            _, size, name = line.split(maxsplit=2)
            sizes[name] = int(size)
        else:
            sha256, name = line.split(maxsplit=1)
            sums[name] = sha256
    return sums, sizes
