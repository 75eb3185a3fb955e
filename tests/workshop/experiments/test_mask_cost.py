import pytest
import torch

from attnbook.attention.scaled_dot_product import attend
from workshop.experiments import mask_cost
from workshop.experiments.cost import make_forward_call
from workshop.experiments.mask_cost import (
    draw_inputs,
    list_implementations,
    measure_implementations,
)


@pytest.fixture(autouse=True)
def no_compiler(monkeypatch):
    """Compiling takes a while, and needs what not every machine has."""
    monkeypatch.setattr(mask_cost.shutil, "which", lambda name: None)
    monkeypatch.setattr(mask_cost, "SIZE", 5)
    monkeypatch.setattr(mask_cost, "ROUNDS", 1)
    monkeypatch.setattr(mask_cost, "PAIRS", 3)


@pytest.mark.parametrize("kind", mask_cost.RULES)
def test_every_implementation_uses_the_reference_mask(kind):
    inputs = draw_inputs(19)
    place = torch.arange(19)
    back = place[:, None] - place
    mask = (back >= 0) & (back < (5 if kind == "window" else 19))
    found = list_implementations(kind, 19)
    assert {"full", "sdpa", "blocks"} < {*found}
    for attention in found.values():
        expected = attend(*inputs[:3], mask)
        torch.testing.assert_close(
            make_forward_call(attention, inputs)(),
            expected,
            rtol=1e-4,
            atol=1e-5,
        )


def test_the_record_has_every_implementation_and_length():
    found = measure_implementations("window", 19)
    names = {"full", "sdpa", "blocks", "window"}
    for key in ("far", "forward", "both", "bytes", "bytes, both"):
        assert {*found[key]} == names
    assert max(found["far"].values()) < 1e-5
    assert found["bytes"]["full"] >= 4 * 8 * 19 * 19
    beside = mask_cost.compare_with_sdpa(19)
    assert all(row["low"] <= row["ratio"] <= row["high"] for row in beside.values())
