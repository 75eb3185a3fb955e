"""Reading a submitted file and removing a student's folder, without surprises.

Both run in the grader itself, where no limit of a sandbox applies.
"""

import contextlib
import os
import shutil
import stat
from pathlib import Path

LARGEST = 64 * 2**20  # bytes of a notebook


def read_bytes(path: Path) -> bytes:
    """Return what a file holds, if it is a regular file of a moderate size.

    A device or a named pipe is not read, because reading might never end.

    Raises:
        OSError: if it cannot be read.
        ValueError: if it is not a regular file, or too large.
    """
    options = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)
    options |= getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    number = os.open(path, options)
    try:
        about = os.fstat(number)
        if not stat.S_ISREG(about.st_mode):
            raise ValueError("it is not a regular file")
        found = bytearray()
        while about.st_size <= LARGEST:
            if not (part := os.read(number, 2**20)):
                return bytes(found)
            found += part
            if len(found) > LARGEST:
                break
        raise ValueError(f"it is larger than {LARGEST / 2**20:.0f} MB")
    finally:
        os.close(number)


def remove_folder(folder: str) -> None:
    """Remove a folder, however deep it is and whatever its permissions are.

    Nothing recurses and no path becomes long: each folder is opened relative to
    the one above. No process may be left that moves folders meanwhile.
    """
    if os.scandir not in os.supports_fd:  # Windows
        shutil.rmtree(folder, ignore_errors=True)
        return
    with contextlib.suppress(OSError):
        os.chmod(folder, 0o700)
        here = os.open(folder, os.O_RDONLY)
        try:
            here = empty_folder(here)
        finally:
            os.close(here)
        os.rmdir(folder)


def empty_folder(here: int) -> int:
    """Remove all that an open folder holds; return its new number."""
    above: list[str] = []
    left = [remove_files(here)]
    while left:
        if left[-1]:
            above.append(left[-1].pop())
            os.chmod(above[-1], 0o700, dir_fd=here)
            here = reopen(above[-1], here)
            left.append(remove_files(here))
        else:
            left.pop()
            if left:
                here = reopen("..", here)
                os.rmdir(above.pop(), dir_fd=here)
    return here


def reopen(name: str, here: int) -> int:
    """Close an open folder; return a folder that it names."""
    try:
        return os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=here)
    finally:
        os.close(here)


def remove_files(here: int) -> list[str]:
    """Remove the files of an open folder; return the folders in it."""
    folders = []
    with os.scandir(here) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
            else:
                os.unlink(entry.name, dir_fd=here)
    return folders
