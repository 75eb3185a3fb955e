"""The benchmark of the kernels: `python -m workshop.bench --out FOLDER`."""

import argparse
import gc
import json
import signal
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import torch

from attnbook.profiling.roofline import measure_copy_rate, measure_product_rate
from workshop.bench.kernels import CASES, Case, measure_case
from workshop.bench.record import open_folder, write_json

# No case takes longer, in seconds.
LONGEST = 120
# Our share of the speed of PyTorch's best backend that we want, by pass and width.
BARS = {("forward", 64): 1.0, ("forward", 128): 0.85}
BARS |= {("backward", 64): 0.7, ("backward", 128): 0.7}


def run_cases(cases: Sequence[Case], folder: Path, device: str) -> bool:
    """Measure what is missing; last, what an earlier process began and did not end."""
    paths = {case: folder / f"case_{case.name}.json" for case in cases}
    left = [case for case in cases if not paths[case].exists()]
    for case in sorted(left, key=lambda x: paths[x].with_suffix(".begun").exists()):
        print(case.name, flush=True)
        paths[case].with_suffix(".begun").touch()
        # Where a kernel hangs, the signal ends the process.
        signal.alarm(LONGEST if device == "cuda" else 0)
        write_json(paths[case], measure_case(case, device))
        signal.alarm(0)
        gc.collect()
        torch.cuda.empty_cache()
    return all(path.exists() for path in paths.values())


def format_shares(case: dict) -> list[str]:
    """Return our share of the speed of PyTorch's best backend, and the bar."""
    lines = []
    for (direction, D), bar in BARS.items():
        found = [x for x in case["times"] if x["pass"] == direction and "ours" in x]
        found = [x for x in found if x["name"].startswith("sdpa")]
        if found and case["name"].startswith(f"causal_D{D}_"):
            best = min(found, key=lambda x: x["ms"])
            low, share, high = best["ours"]
            text = f"{share:.2f} ({low:.2f} to {high:.2f}) of {best['name']}"
            text += f", {'reaches' if share >= bar else 'BELOW'} {bar}"
            lines.append(f"- {case['name']} {direction}: {text}")
    return lines


def format_table(folder: Path) -> str:
    """Return machine and date, shares and bars, times and kernels, and refusals."""
    lines = []
    for name in ("machine.json", "ceilings.json"):
        if (folder / name).exists():
            facts = json.loads((folder / name).read_text("utf8"))
            lines += [f"- {name}: {value}" for name, value in facts.items()]
    shares = ["", "Our share of the speed of PyTorch's fastest backend.", ""]
    table = ["", "Median ± middle half of the rounds; our share of its speed.", ""]
    table.append("| case | pass | name | time | rate | ours | kernel |")
    table.append("|---" * 7 + "|")
    refused = defaultdict(list)
    for path in sorted(folder.glob("case_*.json")):
        case = json.loads(path.read_text("utf8"))
        shares += format_shares(case)
        for x in case["times"]:
            time = f"{x['ms']:.3g} ms ± {x['spread']:.0%}"
            share = f"{x['ours'][1]:.2f}" if "ours" in x else ""
            row = [case["name"], x["pass"], x["name"], time, x["rate"], share]
            table.append(f"| {' | '.join(row)} | `{x['kernel'][:80]}` |")
        for name, why in case["refused"].items():
            refused[name, why].append(case["name"])
    table.append("")
    for (name, why), cases in refused.items():
        table.append(f"- {name}, refused: `{why}` ({', '.join(cases)})")
    return "\n".join([*lines, *shares, *table, ""])


def main(words: list[str] | None = None) -> int:
    """Measure and print the table; return 3 if the same command has more to do."""
    parser = argparse.ArgumentParser(prog="python -m workshop.bench")
    parser.add_argument("--out", type=Path, default=Path("bench"), help="a folder")
    options = parser.parse_args(words)
    open_folder(options.out)
    ceilings = options.out / "ceilings.json"
    if not ceilings.exists():
        product = measure_product_rate(8192, dtype=torch.float16, device="cuda")
        copy = measure_copy_rate(2048, device="cuda")
        rates = {"copy, TB/s": copy / 1e12, "product, TFLOP/s": product / 1e12}
        write_json(ceilings, rates)
    complete = run_cases(CASES, options.out, "cuda")
    print(format_table(options.out))
    return 0 if complete else 3


if __name__ == "__main__":
    sys.exit(main())
