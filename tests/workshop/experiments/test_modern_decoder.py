"""The ladder from 2017 to a modern block, and the sweep of the spellers."""

from itertools import pairwise

import pytest
import torch

from attnbook.models.encoder_decoder import count_parameters
from attnbook.models.modern_block import ModernLanguageModel
from workshop.experiments import modern_decoder as ladder
from workshop.experiments import speller_sweep


@pytest.mark.parametrize("last", ladder.CHANGES)
def test_every_model_of_the_ladder_is_causal(last):
    model = ladder.build_model(last, seed=0)
    ids = torch.randint(4, 40, (2, 7))
    other = ids.clone()
    other[:, -1] = 3
    torch.testing.assert_close(model(ids)[:, :-1], model(other)[:, :-1])


def test_each_model_differs_from_the_one_before():
    ids = torch.randint(4, 40, (2, 7))
    logits = [ladder.build_model(x, seed=0)(ids) for x in ladder.CHANGES]
    for one, other in pairwise(logits):
        assert not torch.allclose(one, other, atol=1e-3)


def test_the_last_model_is_the_librarys():
    model = ladder.build_model(ladder.CHANGES[-1], seed=0)
    symbols = model.embed.table.weight.shape[0]
    library = ModernLanguageModel(
        symbols,
        ladder.WIDTH,
        ladder.HEADS,
        ladder.GROUPS,
        2 * ladder.HIDDEN // 3,
        ladder.BLOCKS,
    )
    assert count_parameters(model) == count_parameters(library)
    library.embed.load_state_dict(model.embed.state_dict())
    library.norm.load_state_dict(model.norm.state_dict())
    for mine, given in zip(library.blocks, model.blocks, strict=True):
        mine.attention.load_state_dict(given.attention.state_dict())
        mine.feed_forward.load_state_dict(given.feed_forward.state_dict())
        for norm, residual in zip(mine.norms, given.residuals, strict=True):
            norm.load_state_dict(residual.norm.state_dict())
    ids = torch.randint(4, 40, (2, 7))
    torch.testing.assert_close(library(ids), model(ids), atol=1e-4, rtol=1e-4)


def test_a_gate_costs_no_parameters():
    counts = {
        x: count_parameters(ladder.build_model(x, 0)) for x in ("RMSNorm", "SwiGLU")
    }
    assert abs(counts["SwiGLU"] / counts["RMSNorm"] - 1) < 0.01


def test_both_spellers_have_one_grid_and_as_many_parameters():
    sizes = [count_parameters(r.model()) for r in speller_sweep.MODELS.values()]
    assert max(sizes) < 1.03 * min(sizes)
    assert 2e-3 in speller_sweep.RATES and 64 in speller_sweep.SIZES
