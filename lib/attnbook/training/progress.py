"""Progress bars: on a terminal and in a notebook, never in a log."""

import sys
from collections.abc import Iterable

from tqdm.auto import tqdm


def is_progress_visible() -> bool:
    """Return whether a progress bar reaches a reader: a terminal or a notebook.

    In a file or a pipe, every update of a bar would add a line.
    """
    return sys.stderr.isatty() or "ipykernel.kernelapp" in sys.modules


def make_progress_bar(items: Iterable | None = None, show: bool = True, **more) -> tqdm:
    """Return a tqdm bar over some items, hidden where it would not be seen.

    Args:
        items: what is iterated over; None for a bar that is moved by `update`.
        show: False hides it everywhere.
        more: what tqdm takes: `desc`, `total`, `unit`.
    """
    return tqdm(items, disable=not (show and is_progress_visible()), **more)
