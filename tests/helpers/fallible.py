"""Work for a pool of processes in which some are killed.

A module of its own, because each process imports it: with PyTorch beside it,
that would take seconds.
"""

import os
import signal
import sys
import time
from pathlib import Path


def length(path):
    """Return the length of a file's name, unless its name says to be killed."""
    if "kills" in path.name and not (path.parent / "spared").exists():
        os.kill(os.getpid(), signal.SIGKILL)
    if "once" in path.name and not (path.parent / "mark").exists():
        (path.parent / "mark").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return {"error": None, "notes": [], "exercises": {}, "n": len(path.name)}


def sleep(path):
    """Tell by a file that it has begun, then sleep."""
    path.with_suffix(".began").touch()
    time.sleep(60)


if __name__ == "__main__":
    from attnbook.grade import batch

    for found in batch.grade_in_pool([*map(Path, sys.argv[1:])], 1, sleep):
        print(found)
