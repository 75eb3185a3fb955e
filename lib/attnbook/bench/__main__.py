"""The command line: `python -m attnbook.bench flash --quick`.

Chapter: chapters/11_flash_attention
Source: none
Axes: none
"""

import argparse
import sys
from pathlib import Path

import torch

from attnbook.bench.flash import bench
from attnbook.bench.rows import LIMITS, PLANS, before_ampere
from attnbook.bench.table import table

NO_GPU = """\
This benchmark measures a GPU, and PyTorch {version} sees none here.
On a machine with an NVIDIA GPU: python -m attnbook.bench flash --quick
(under 4 minutes; --full: under 10). Without one, --tiny runs the same steps on
the CPU, on shapes so small that their times mean nothing."""


def parser() -> argparse.ArgumentParser:
    """Return what reads the arguments."""
    made = argparse.ArgumentParser(prog="python -m attnbook.bench")
    made.add_argument("what", choices=["flash"])
    plans = made.add_mutually_exclusive_group()
    for name, told in (
        ("quick", "under 4 minutes (the default)"),
        ("full", "under 10 minutes"),
        ("tiny", "the steps without the measurement, on any machine"),
    ):
        plans.add_argument(
            f"--{name}", dest="plan", action="store_const", const=name,
            default="quick", help=told,
        )  # fmt: skip
    made.add_argument(
        "--out", type=Path, help="the JSON; a run that stopped goes on there"
    )
    return made


def main(arguments: list[str] | None = None) -> int:
    """Measure, and print one table last; return 0 if all went well."""
    asked = parser().parse_args(arguments)
    if asked.plan != "tiny" and not torch.cuda.is_available():
        print(NO_GPU.format(version=torch.__version__), file=sys.stderr)
        return 1
    device = "cpu" if asked.plan == "tiny" else "cuda"
    out = asked.out or Path(f"flash_{asked.plan}.json")
    plan = PLANS[asked.plan]
    if device == "cuda" and torch.cuda.get_device_capability() < (8, 0):
        plan = before_ampere(plan)
    record = bench(plan, device, out, LIMITS[asked.plan])
    print(table(record))
    if record["left"]:
        print(f"{len(record['left'])} rows left: the same command goes on")
    print(f"written to {out}")
    return int(bool(record["wrong"]))


if __name__ == "__main__":
    sys.exit(main())
