"""The command line: `python -m workshop.bench flash --quick`."""

import argparse
import signal
import sys
from pathlib import Path

import torch

from workshop.bench.comparison import GpuLostError
from workshop.bench.flash import run_benchmark
from workshop.bench.rows import LIMITS, PLANS, restrict_to_turing
from workshop.bench.table import format_table

NO_GPU = (
    "This benchmark measures an NVIDIA GPU, and PyTorch {version} sees none "
    "here; --tiny runs the same steps on the CPU."
)


def build_parser() -> argparse.ArgumentParser:
    """Return what reads the arguments."""
    made = argparse.ArgumentParser(prog="python -m workshop.bench")
    made.add_argument("what", choices=["flash"])
    plans = made.add_mutually_exclusive_group()
    for name, text in (
        ("quick", "under 4 minutes (the default)"),
        ("full", "under 10 minutes"),
        ("tiny", "the steps without the measurement, on any machine"),
    ):
        plans.add_argument(
            f"--{name}", dest="plan", action="store_const", const=name,
            default="quick", help=text,
        )  # fmt: skip
    made.add_argument(
        "--out", type=Path, help="the JSON; a run that stopped goes on there"
    )
    made.add_argument(
        "--limit", type=float, help="seconds after which no other row is begun"
    )
    made.add_argument(
        "--again", action="store_true", help="measure rows that failed again"
    )
    return made


def main(arguments: list[str] | None = None) -> int:
    """Measure, and print one table last.

    Returns:
        0 if all went well, 1 if something is wrong or failed, 2 if nothing
        could be begun, 3 if the same command goes on with what is left.
    """
    options = build_parser().parse_args(arguments)
    if options.plan != "tiny" and not torch.cuda.is_available():
        print(NO_GPU.format(version=torch.__version__), file=sys.stderr)
        return 2
    device = "cpu" if options.plan == "tiny" else "cuda"
    out = options.out or Path(f"flash_{options.plan}.json")
    plan = PLANS[options.plan]
    if device == "cuda" and torch.cuda.get_device_capability() < (8, 0):
        plan = restrict_to_turing(plan)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        limit = options.limit or LIMITS[options.plan]
        record = run_benchmark(plan, device, out, limit, options.again)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    except GpuLostError as error:
        text = "the GPU answers no more after", *error.args
        print(*text, file=sys.stderr)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
    else:
        return report(record, out)
    print(f"the same command goes on with {out}", file=sys.stderr)
    return 3


def report(record: dict, out: Path) -> int:
    """Print the table, and say what is left; return the exit code."""
    print(format_table(record))
    print(f"written to {out}")
    if record["left"]:
        print(f"{len(record['left'])} rows left: the same command goes on")
    failed = any("failed" in row for row in record["rows"])
    if record["wrong"] or failed:
        return 1
    return 3 if record["left"] else 0


if __name__ == "__main__":
    sys.exit(main())
