"""Repeat recorded runs: `python -m workshop.experiments NAME [NAME ...]`."""

import argparse
import sys

import torch

from attnbook.records import (
    describe_provenance,
    list_records,
    read_record,
    suggest_names,
)
from workshop.experiments.machine import parse_device, use_device
from workshop.experiments.record import record_run
from workshop.experiments.registry import EXPERIMENTS, RUNS, find_experiments


def main(words: list[str] | None = None) -> int:
    """Repeat every run whose name begins with one of the words.

    Returns:
        0, or 1 if a GPU had too little memory for one of them.
    """
    known = find_experiments()
    parser = argparse.ArgumentParser(
        prog="python -m workshop.experiments",
        description="Repeat recorded runs and write their files. An "
        "interrupted run goes on from its last epoch.",
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
            near = suggest_names(word, known)
            parser.error(f"no run begins with {word!r}; {near}")
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
    with use_device(device):
        done = [repeat_run(name, not options.quiet) for name in chosen]
    return 0 if all(done) else 1


def repeat_run(name: str, progress: bool) -> bool:
    """Repeat a run; tell whether the device had enough memory for it."""
    progress = progress and sys.stderr.isatty()
    if progress and name in EXPERIMENTS:
        print(format_announcement(name), file=sys.stderr, flush=True)
    try:
        if name in EXPERIMENTS:
            made = EXPERIMENTS[name].run()
        else:
            made = record_run(name, progress)
    except torch.OutOfMemoryError as error:
        first = str(error).partition(". ")[0]
        again = "goes on from its last epoch" if name in RUNS else "begins anew"
        print(
            f"{name} needs more memory than the GPU has free ({first}); its "
            f"record is unchanged, and the same command {again}",
            file=sys.stderr,
            flush=True,
        )
        return False
    print(describe_provenance(made), flush=True)
    return True


def format_announcement(name: str) -> str:
    """Return one line: what runs now, and how long the recorded run took.

    A bar that moves would take part in what a probe measures.
    """
    if name not in list_records():
        return f"{name} runs for the first time ..."
    minutes = read_record(name)["wall_s"] / 60
    return f"{name} runs; the recorded run took {minutes:.1f} minutes ..."


if __name__ == "__main__":
    sys.exit(main())
