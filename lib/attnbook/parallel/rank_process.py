"""The process of one rank: `attnbook.parallel.ranks` starts it."""

import contextlib
import io
import os
import pickle
import queue
import sys
import threading
from datetime import timedelta
from pathlib import Path

import cloudpickle
import torch
import torch.distributed as dist

from attnbook.parallel.groups import DistributedGroup
from attnbook.parallel.ranks import Report, report_error


def read_calls(calls: queue.SimpleQueue) -> None:
    """Put what arrives into the queue; end this process when nothing can arrive."""
    while True:
        try:
            calls.put(pickle.load(sys.stdin.buffer))
        except EOFError:
            os._exit(0)


def main(rank: int, size: int, folder: Path, timeout: float) -> None:
    """Join the group, then run each function that arrives and store its result."""
    calls: queue.SimpleQueue = queue.SimpleQueue()
    threading.Thread(target=read_calls, args=[calls], daemon=True).start()
    torch.set_num_threads(1)
    store, limit = (folder / "store").as_uri(), timedelta(seconds=timeout)
    dist.init_process_group("gloo", store, rank=rank, world_size=size, timeout=limit)
    group = DistributedGroup()
    while True:
        number, call = calls.get()
        group.reset()
        printed = io.StringIO()
        try:
            function, args = pickle.loads(call)
            with contextlib.redirect_stdout(printed):
                result = function(group, *args)
            report = cloudpickle.dumps(Report(result, printed.getvalue()))
        except Exception as error:
            report = pickle.dumps(report_error(error))
        part = folder / f"{rank}-{number}.part"
        part.write_bytes(report)
        part.replace(part.with_suffix(".pickle"))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), float(sys.argv[4]))
