"""Repeat recorded runs: `python -m workshop.experiments NAME [NAME ...]`.

`torchrun --nproc-per-node 2 -m workshop.experiments NAME` divides every batch of a
training run over two processes; with `--gpus`, each trains on a GPU of its own.
"""

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist

from attnbook.records import describe_provenance, suggest_names
from attnbook.training.loop import find_rank
from workshop.experiments.record import (
    CPU,
    EXPERIMENTS,
    find_experiments,
    record_run,
)


def main(words: list[str] | None = None) -> None:
    known = find_experiments()
    parser = argparse.ArgumentParser(
        prog="python -m workshop.experiments",
        description="Repeat recorded runs and write their files",
        epilog=f"runs: {', '.join(known)}",
    )
    parser.add_argument("name", nargs="+", help="a run, or how its name begins")
    parser.add_argument(
        "--gpus", action="store_true", help="train on a GPU, or under torchrun on many"
    )
    options = parser.parse_args(words)
    for word in options.name:
        if not any(name.startswith(word) for name in known):
            parser.error(f"no run begins with {word!r}; {suggest_names(word, known)}")
    chosen = [n for n in known if n.startswith(tuple(options.name))]
    divided = dist.is_available() and dist.is_torchelastic_launched()
    measured = [n for n in chosen if n in EXPERIMENTS]
    if measured and (divided or options.gpus):
        parser.error(
            f"{', '.join(measured)} is no training run: it runs in one process on "
            "the CPU"
        )
    number, count = int(os.environ.get("LOCAL_RANK", 0)), torch.cuda.device_count()
    if options.gpus and number >= count:
        parser.error(f"process {number} has no GPU: PyTorch finds {count} here")
    device = torch.device("cuda", number) if options.gpus else CPU
    with join_processes(divided, device):
        shown = find_rank()[0] == 0
        progress = shown and sys.stderr.isatty()
        for name in chosen:
            if shown:
                print(f"{name} ...", file=sys.stderr, flush=True)
            made = (
                EXPERIMENTS[name]()
                if name in EXPERIMENTS
                else record_run(name, progress, device)
            )
            if shown:
                print(describe_provenance(made), flush=True)


@contextmanager
def join_processes(divided: bool, device: torch.device) -> Iterator[None]:
    """Join the other processes of torchrun, if there are any."""
    if not divided:
        yield
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
