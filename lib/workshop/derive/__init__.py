"""How each data file came to be: scripts that write the same bytes again.

Source: each script names the package it reads.
"""

import bz2
import hashlib
from pathlib import Path

from attnbook import data

FILES = Path(data.__file__).with_name("files")
UNLISTED = {"SHA256SUMS", ".gitattributes"}


def write(name: str, lines: list[str]) -> None:
    """Write lines to a file under `FILES`, compressed if it ends in .bz2.

    bzip2 and not xz or gzip: its output does not depend on its version.
    """
    content = "".join(f"{line}\n" for line in lines).encode()
    if name.endswith(".bz2"):
        content = bz2.compress(content)
    (FILES / name).parent.mkdir(parents=True, exist_ok=True)
    (FILES / name).write_bytes(content)


def write_sums() -> None:
    """Write SHA256SUMS anew; `sha256sum -c` reads it, too."""
    lines = []
    for path in sorted(FILES.rglob("*")):
        name = path.relative_to(FILES).as_posix()
        if path.is_file() and name not in UNLISTED:
            content = path.read_bytes()
            lines.append(f"# {len(content)} {name}")
            lines.append(f"{hashlib.sha256(content).hexdigest()}  {name}")
    write("SHA256SUMS", lines)
