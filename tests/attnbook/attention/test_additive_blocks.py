"""Additive scores in blocks equal the broadcast ones and need less memory."""

import json
import subprocess
import sys

import pytest
import torch

from attnbook.attention.recurrent import additive_scores, additive_scores_in_blocks


def inputs(T=11, dtype=torch.float32, seed=0):
    rng = torch.Generator().manual_seed(seed)
    shapes = (2, T, 7), (2, 5, 3), (13, 7), (13, 3), (13,)
    return [torch.randn(*s, generator=rng, dtype=dtype) for s in shapes]


@pytest.mark.parametrize(("T", "rows"), [(1, None), (11, None), (11, 4), (11, 100)])
def test_scores_in_blocks_equal_additive_scores(rows, T):
    given = inputs(T, torch.float64)
    got = additive_scores_in_blocks(*given, rows=rows)
    torch.testing.assert_close(got, additive_scores(*given), rtol=0, atol=1e-14)


def test_the_default_block_size_covers_every_query(monkeypatch):
    given = inputs()
    monkeypatch.setattr("attnbook.attention.recurrent.BUFFER_SIZE", 3 * 2 * 5 * 13)
    got = additive_scores_in_blocks(*given)
    torch.testing.assert_close(got, additive_scores(*given))


def test_inputs_are_not_changed_and_need_not_be_contiguous():
    given = inputs()
    given[0] = given[0].transpose(0, 1).contiguous().transpose(0, 1)
    before = [x.clone() for x in given]
    got = additive_scores_in_blocks(*given, rows=3)
    torch.testing.assert_close(got, additive_scores(*given))
    assert all(torch.equal(x, y) for x, y in zip(given, before, strict=True))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_stays_half(dtype):
    given = [x.to(dtype) for x in inputs()]
    got = additive_scores_in_blocks(*given, rows=4)
    assert got.dtype == dtype
    torch.testing.assert_close(got, additive_scores(*given), rtol=0, atol=0.05)


def test_no_tensor_of_all_query_key_pairs_is_allocated():
    # A process of its own per version: the peak of one never falls again.
    peaks = {
        name: json.loads(
            subprocess.run(
                [
                    sys.executable,
                    "-m",
                    "workshop.experiments.scores_cost",
                    name,
                ],
                capture_output=True,
                text=True,
                check=True,
            ).stdout
        )
        for name in ("additive", "blocks")
    }
    assert peaks["blocks"]["bytes"] <= peaks["additive"]["bytes"] / 3
    assert peaks["blocks"]["sum"] == pytest.approx(peaks["additive"]["sum"])


@pytest.mark.refusal
@pytest.mark.parametrize("which", range(5))
def test_inputs_that_require_a_gradient_raise_an_error(which):
    given = inputs()
    given[which].requires_grad_()
    with pytest.raises(ValueError, match="no gradient can flow"):
        additive_scores_in_blocks(*given)
    with torch.no_grad():
        assert additive_scores_in_blocks(*given).shape == (2, 11, 5)


@pytest.mark.refusal
def test_a_block_without_queries_raises_an_error():
    with pytest.raises(ValueError, match="at least 1 query, not 0"):
        additive_scores_in_blocks(*inputs(), rows=0)
