"""Repeat recorded runs: `python -m workshop.experiments NAME [NAME ...]`."""

import argparse
import sys

from attnbook.records import describe_provenance, suggest_names
from workshop.experiments.record import (
    EXPERIMENTS,
    find_experiments,
    parse_device,
    record_run,
    use_device,
)


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
    parser.add_argument(
        "--device", default="cpu", help="cpu (the default), cuda or cuda:0"
    )
    options = parser.parse_args(words)
    for word in options.name:
        if not any(name.startswith(word) for name in known):
            parser.error(f"no run begins with {word!r}; {suggest_names(word, known)}")
    chosen = [n for n in known if n.startswith(tuple(options.name))]
    try:
        device = parse_device(options.device)
    except ValueError as error:
        parser.error(str(error))
    refused = [n for n in chosen if n in EXPERIMENTS and EXPERIMENTS[n].on_cpu]
    if device.type != "cpu" and refused:
        parser.error(
            f"{', '.join(refused)} always runs on the CPU, not on {device}: "
            "leave out --device"
        )
    progress = sys.stderr.isatty() and not options.quiet
    with use_device(device):
        for name in chosen:
            print(f"{name} ...", file=sys.stderr, flush=True)
            print(describe_provenance(repeat_run(name, progress)), flush=True)


def repeat_run(name: str, progress: bool) -> dict:
    if name in EXPERIMENTS:
        return EXPERIMENTS[name].run()
    return record_run(name, progress)


if __name__ == "__main__":
    main()
