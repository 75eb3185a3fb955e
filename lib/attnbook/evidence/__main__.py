"""Repeat recorded runs: `python -m attnbook.evidence NAME [NAME ...]`.

Chapter: chapters/01_bottleneck
Source: none
Axes: none
"""

import argparse
import sys

from attnbook.evidence import provenance
from attnbook.evidence.probes import PROBES
from attnbook.evidence.record import record
from attnbook.evidence.runs import RUNS


def main(words: list[str] | None = None) -> int:
    """Repeat every run whose name begins with one of the words."""
    parser = argparse.ArgumentParser(
        prog="python -m attnbook.evidence",
        description="Repeat recorded runs and write their files. An "
        "interrupted run goes on from its last epoch.",
        epilog=f"runs: {', '.join([*RUNS, *PROBES])}",
    )
    parser.add_argument("name", nargs="+", help="a run, or how its name begins")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    asked = parser.parse_args(words)
    known = [*RUNS, *PROBES]
    chosen = [n for n in known if n.startswith(tuple(asked.name))]
    if not chosen:
        parser.error(f"no run begins with {asked.name}; there are {known}")
    for name in chosen:
        made = (
            PROBES[name]()
            if name in PROBES
            else record(name, progress=not asked.quiet)
        )
        print(provenance(made), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
