"""The error budgets of the kernels' cases separate right from wrong, anywhere.

The tests that run the kernels in Triton's interpreter and on a GPU accept what
stays within these budgets. Here, tiles of PyTorch do, and wrong ones do not.
"""

from dataclasses import replace
from functools import partial

import pytest
import torch

from attnbook.attention import tiled
from attnbook.attention.tiled import accumulate_tiles, attend_tiled_gradient
from attnbook.flash.operators import split_groups
from attnbook.flash.options import MaskedTileScores
from flash_cases import CASES, draw_inputs, measure_error_shares

PRECISIONS = torch.float32, torch.float16, torch.bfloat16


def run_tiles(inputs, upstream, options, average=1.0):
    """Return output and gradients of tiles of 16 queries and 16 keys."""
    query, key, value, up = split_groups(*inputs, upstream, groups=inputs[1].shape[1])
    scores = MaskedTileScores(query, key, options)
    output, maximum, total = accumulate_tiles(query, key, value, 16, scores)
    grads = attend_tiled_gradient(
        query,
        key,
        value,
        average * output,
        maximum + total.log(),
        up,
        16,
        scores,
    )
    dquery, dkey, dvalue = (x.flatten(1, 2) for x in grads)
    return [output.flatten(1, 2), dquery, dkey, dvalue]


def change_options(**change):
    """Return tiles with other options, each computed from a case's own."""

    def run(inputs, upstream, options):
        width = inputs[0].shape[-1]
        made = {k: f(options, width) for k, f in change.items()}
        return run_tiles(inputs, upstream, replace(options, **made))

    return run


def change_tiles(name, stand_in):
    """Return tiles in which a function of the module is another one."""

    def run(*given):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tiled, name, stand_in)
            return run_tiles(*given)

    return run


def swap_groups(inputs, upstream, options):
    """The heads of a group are not neighbours."""
    query, key, value = inputs
    each, groups = query.shape[1] // key.shape[1], key.shape[1]

    def swap(x, a, b):
        return x.unflatten(1, (a, b)).transpose(1, 2).flatten(1, 2)

    mixed = swap(query, each, groups), key, value
    found = run_tiles(mixed, swap(upstream, each, groups), options)
    return [swap(x, groups, each) for x in found[:2]] + found[2:]


def drop_last_key(inputs, upstream, options):
    query, key, value = inputs
    some = [query, key[:, :, :-1], value[:, :, :-1]]
    found = run_tiles(some, upstream, options)
    return found[:2] + [torch.nn.functional.pad(x, (0, 0, 0, 1)) for x in found[2:]]


def several(case):
    """Tell whether some query attends to more than one key."""
    return case.S > 1 and case.window != 1


# A wrong implementation, and which cases must find it.
WRONG = {
    "another scale": (
        change_options(scale=lambda x, D: 0.9 * x.factor(D)),
        several,
    ),
    "first tiles not rescaled": (
        change_tiles("compute_rescaling", lambda old, new: torch.ones_like(new)),
        # An earlier tile has to have a smaller maximum for some query.
        lambda case: (
            min(case.S, max(case.lengths or (99,))) > 16 and (case.window or 99) > 9
        ),
    ),
    "backward: no row sum": (
        partial(run_tiles, average=0.0),
        lambda case: True,
    ),
    "last key dropped": (
        drop_last_key,
        lambda case: case.lengths is None or case.causal or max(case.lengths) == case.S,
    ),
    "causal ignored": (
        change_options(causal=lambda x, D: False),
        lambda case: case.causal and not case.window and case.S > 1,
    ),
    "window one key wider": (
        change_options(window=lambda x, D: x.window + 1),
        lambda case: case.window and case.window < case.S,
    ),
    "lengths one key longer": (
        change_options(key_lengths=lambda x, D: x.key_lengths + 1),
        lambda case: case.lengths,
    ),
    "slopes of the other sign": (
        change_options(alibi_slopes=lambda x, D: -x.alibi_slopes),
        lambda case: case.alibi,
    ),
    "no soft-cap": (
        change_options(softcap=lambda x, D: None),
        lambda case: case.softcap,
    ),
    "heads of another group": (swap_groups, lambda case: 1 < case.G < case.H),
}


def measure_largest_share(title, dtype, run):
    """Return the largest share of the budget that tiles take in a case."""
    given = *draw_inputs(title, dtype), CASES[title].options(dtype)
    return max(measure_error_shares(title, dtype, run(*given)))


@pytest.mark.precision
@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
@pytest.mark.parametrize("title", CASES)
def test_right_tiles_stay_within_the_budget(title, dtype):
    assert measure_largest_share(title, dtype, run_tiles) <= 1


EXPOSED = [(t, n) for t in CASES for n in WRONG if WRONG[n][1](CASES[t])]


@pytest.mark.precision
@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
@pytest.mark.parametrize(("title", "name"), EXPOSED)
def test_every_case_exposes_wrong_tiles(title, name, dtype):
    share = measure_largest_share(title, dtype, WRONG[name][0])
    assert share >= 5


def main():
    """Print the tightest right case, and the closest of each wrong one."""
    print("| tiles of the kernels' cases | precision | share | case |")
    print("|---|---|---|---|")
    for dtype in PRECISIONS:
        shares = (
            (measure_largest_share(title, dtype, run_tiles), title) for title in CASES
        )
        most, title = max(shares)
        print(f"| right | {str(dtype)[6:]} | {most:.2g} | {title} |")
    for name, (run, applies) in WRONG.items():
        for dtype in PRECISIONS:
            shares = (
                (measure_largest_share(title, dtype, run), title)
                for title, case in CASES.items()
                if applies(case)
            )
            least, title = min(shares)
            print(f"| {name} | {str(dtype)[6:]} | {least:.3g} | {title} |")


if __name__ == "__main__":
    main()
