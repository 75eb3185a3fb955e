"""The command `python -m attnbook.records NAME`: where a record comes from.

Runs are repeated from a clone of the repository, not by an installed copy.
"""

import argparse
import sys

from attnbook.records import (
    describe_provenance,
    list_records,
    read_record,
    suggest_names,
)

REPEAT_MESSAGE = (
    "To repeat a run, clone the book's repository and type there:\n"
    "    make evidence NAME={name}\n"
    "or, in its environment: python -m workshop.experiments {name}"
)


def main(words: list[str] | None = None) -> int:
    """Print where the records come from whose names begin with a word."""
    parser = argparse.ArgumentParser(
        prog="python -m attnbook.records",
        description="Show where a recorded run comes from and how to repeat it",
    )
    parser.add_argument("name", help="a run, or the beginning of its name")
    start = parser.parse_args(words).name
    found = list_records(start)
    if not found:
        near = suggest_names(start, list_records())
        parser.error(f"no run begins with {start!r}; {near}")
    for name in found:
        print(describe_provenance(read_record(name)))
    print(REPEAT_MESSAGE.format(name=start))
    return 0


if __name__ == "__main__":
    sys.exit(main())
