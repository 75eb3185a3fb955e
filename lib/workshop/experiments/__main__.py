"""Repeat recorded runs: `python -m workshop.experiments NAME [NAME ...]`."""

import argparse
import sys

from attnbook.records import describe_provenance, suggest_names
from workshop.experiments.record import EXPERIMENTS, find_experiments, record_run


def main(words: list[str] | None = None) -> None:
    """Repeat every run whose name begins with one of the words."""
    known = find_experiments()
    parser = argparse.ArgumentParser(
        prog="python -m workshop.experiments",
        description="Repeat recorded runs and write their files",
        epilog=f"runs: {', '.join(known)}",
    )
    parser.add_argument("name", nargs="+", help="a run, or how its name begins")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    options = parser.parse_args(words)
    for word in options.name:
        if not any(name.startswith(word) for name in known):
            parser.error(f"no run begins with {word!r}; {suggest_names(word, known)}")
    chosen = [n for n in known if n.startswith(tuple(options.name))]
    progress = sys.stderr.isatty() and not options.quiet
    for name in chosen:
        print(f"{name} ...", file=sys.stderr, flush=True)
        made = (
            EXPERIMENTS[name]() if name in EXPERIMENTS else record_run(name, progress)
        )
        print(describe_provenance(made), flush=True)


if __name__ == "__main__":
    main()
