"""The benchmark of the kernels: `python -m workshop.bench --out FOLDER`."""

import argparse
import gc
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from attnbook.profiling.roofline import measure_copy_rate, measure_product_rate
from workshop.bench.kernels import CASES, NAMES, Case, measure_case
from workshop.bench.record import open_folder, write_json

# No case takes longer, in seconds.
LONGEST = 75


def run_cases(
    cases: Sequence[Case],
    folder: Path,
    device: str,
    seconds: float | int = float("inf"),
) -> bool:
    end = time.monotonic() + seconds - LONGEST
    for case in cases:
        path = folder / f"case_{case.name}.json"
        if not path.exists() and time.monotonic() < end:
            print(case.name, flush=True)
            write_json(path, measure_case(case, device))
            gc.collect()
            torch.cuda.empty_cache()
    return len([*folder.glob("case_*.json")]) == len(cases)


def format_table(folder: Path) -> str:
    """Return machine and date, times, the kernels that ran, and refusals."""
    lines = []
    for name in ("machine.json", "ceilings.json"):
        if (folder / name).exists():
            facts = json.loads((folder / name).read_text("utf8"))
            lines += [f"- {name}: {value}" for name, value in facts.items()]
    lines += ["", "Median ± middle half of the rounds, and rate."]
    lines += ["", f"| case | pass | {' | '.join(NAMES)} |"]
    lines.append("|---" * (2 + len(NAMES)) + "|")
    notes = {}
    for path in sorted(folder.glob("case_*.json")):
        case = json.loads(path.read_text("utf8"))
        for direction in ("forward", "backward"):
            cells = dict.fromkeys(NAMES, "")
            for x in case["times"]:
                if x["pass"] == direction:
                    text = f"{x['ms']:.3g} ms ± {x['spread']:.0%}, {x['rate']}"
                    cells[x["name"]] = text
                    kind = case["name"].partition("_")[0]
                    notes[f"{kind} {direction}, {x['name']}"] = x["kernel"]
            if any(cells.values()):
                row = case["name"], direction, *cells.values()
                lines.append(f"| {' | '.join(row)} |")
        for name, why in case["refused"].items():
            notes[f"{case['name']}, {name}, refused"] = why
    return "\n".join([*lines, "", *(f"- {k}: `{v}`" for k, v in notes.items()), ""])


def main(words: list[str] | None = None) -> int:
    """Measure and print the table; return 3 if the same command has more to do."""
    parser = argparse.ArgumentParser(prog="python -m workshop.bench")
    parser.add_argument("--out", type=Path, default=Path("bench"), help="a folder")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    options = parser.parse_args(words)
    open_folder(options.out)
    ceilings = options.out / "ceilings.json"
    if not ceilings.exists():
        product = measure_product_rate(8192, dtype=torch.float16, device="cuda")
        copy = measure_copy_rate(2048, device="cuda")
        rates = {"copy, TB/s": copy / 1e12, "product, TFLOP/s": product / 1e12}
        write_json(ceilings, rates)
    complete = run_cases(CASES, options.out, "cuda", options.seconds)
    print(format_table(options.out))
    return 0 if complete else 3


if __name__ == "__main__":
    sys.exit(main())
