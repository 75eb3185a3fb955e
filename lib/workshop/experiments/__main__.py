"""Repeat recorded runs: `python -m workshop.experiments NAME [NAME ...]`.

`torchrun --nproc-per-node 2 -m workshop.experiments NAME` divides every batch of a
training run over two processes.
"""

import argparse
import sys

import torch.distributed as dist

from attnbook.records import describe_provenance, suggest_names
from attnbook.training.loop import find_rank
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
    divided = dist.is_available() and dist.is_torchelastic_launched()
    alone = [name for name in chosen if name in EXPERIMENTS]
    if divided and alone:
        parser.error(
            f"{', '.join(alone)} is no training run: torchrun has no batches of it "
            "to divide"
        )
    if divided:
        dist.init_process_group("gloo")
    first = find_rank()[0] == 0
    progress = first and sys.stderr.isatty() and not options.quiet
    for name in chosen:
        if first:
            print(f"{name} ...", file=sys.stderr, flush=True)
        made = (
            EXPERIMENTS[name]() if name in EXPERIMENTS else record_run(name, progress)
        )
        if first:
            print(describe_provenance(made), flush=True)
    if divided:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
