"""Repeat recorded runs: `python -m workshop.experiments NAME [NAME ...]`.

`torchrun --nproc-per-node 2 -m workshop.experiments NAME` divides every batch of a
training run over two processes; with `--device cuda`, each uses a GPU of its own.
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
        description="Repeat recorded runs and write their files. An "
        "interrupted training run goes on from its last epoch.",
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
    divided = dist.is_available() and dist.is_torchelastic_launched()
    alone = [n for n in chosen if n in EXPERIMENTS]
    if divided and alone:
        parser.error(
            f"{', '.join(alone)} is no training run: torchrun has no batches of it "
            "to divide"
        )
    word = options.device
    if divided and word == "cuda":
        word = f"cuda:{os.environ['LOCAL_RANK']}"
    try:
        device = parse_device(word)
    except ValueError as error:
        parser.error(str(error))
    refused = [n for n in chosen if n in EXPERIMENTS and EXPERIMENTS[n].on_cpu]
    if device.type != "cpu" and refused:
        parser.error(
            f"{', '.join(refused)} always runs on the CPU, not on {device}: "
            "leave out --device"
        )
    with use_device(device), join_processes(divided, device):
        shown = find_rank()[0] == 0
        progress = shown and sys.stderr.isatty() and not options.quiet
        for name in chosen:
            if shown:
                print(f"{name} ...", file=sys.stderr, flush=True)
            made = repeat_run(name, progress)
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


def repeat_run(name: str, progress: bool) -> dict:
    if name in EXPERIMENTS:
        return EXPERIMENTS[name].run()
    return record_run(name, progress)


if __name__ == "__main__":
    main()
