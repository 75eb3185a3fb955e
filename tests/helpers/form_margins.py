"""The margins of methods with a reference of their own, for `make margins`.

For every method and precision, the right form that uses most of its budget and
the wrong one that exceeds its budget least: what the tests of the method
compare, in one table.
"""

import sys
from itertools import product
from pathlib import Path

from attnbook.attention.error_budget import error_budget
from attnbook.attention.linformer import attend_linformer
from attnbook.training.progress import make_progress_bar
from linear_budget import DTYPES, judge

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "attnbook/attention"))

import test_delta_rule as delta  # noqa: E402
import test_linear as linear  # noqa: E402
import test_linformer as linformer  # noqa: E402


def judge_linformer(function, keys, dtype, spread=1.0):
    *inputs, upstream = linformer.draw(keys, dtype, spread)
    budgets = error_budget(linformer.formula, inputs, upstream)
    return judge(function, inputs, upstream, budgets)


def list_right(dtype):
    """Yield the method, the share of a right form, and its name."""
    for name, case in product(linear.CAUSAL, linear.CASES):
        share = judge(linear.CAUSAL[name], *linear.causal_case(case, dtype))
        yield "linear attention", share, f"{name}: {case}"
    for name, case in product(delta.FORMS, delta.CASES):
        given = delta.budgeted(*delta.CASES[case], dtype)
        yield "delta rule", judge(delta.FORMS[name], *given), f"{name}: {case}"
    for keys, spread in ((linformer.L, 1.0), (9, 1.0), (1, 8.0)):
        share = judge_linformer(attend_linformer, keys, dtype, spread)
        yield "Linformer", share, f"{keys} keys"


def list_wrong(dtype):
    """Yield the method, the share of a wrong form, and its name."""
    for name, wrong in linear.WRONG.items():
        share = judge(wrong, *linear.causal_case("odd", dtype))
        yield "linear attention", share, name
    for name, wrong in delta.WRONG.items():
        share = judge(wrong, *delta.budgeted(11, delta.D, 0.3, dtype))
        yield "delta rule", share, name
    for name, (keys, wrong) in linformer.WRONG.items():
        yield "Linformer", judge_linformer(wrong, keys, dtype), name


def main():
    """Print the table."""
    right, wrong = {}, {}
    for dtype in make_progress_bar(DTYPES):
        for method, *found in list_right(dtype):
            at = method, dtype
            right[at] = max(right.get(at, found), found)
        for method, *found in list_wrong(dtype):
            at = method, dtype
            wrong[at] = min(wrong.get(at, found), found)
    print("| method | precision | tightest right | | closest wrong | |")
    print("|---|---|---|---|---|---|")
    for method, dtype in right:
        share, name = right[method, dtype]
        other, bad = wrong[method, dtype]
        print(
            f"| {method} | {str(dtype)[6:]} | {share:.2g} | {name} "
            f"| {other:.3g} | {bad} |"
        )


if __name__ == "__main__":
    main()
