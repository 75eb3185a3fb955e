import pytest
import torch

from attnbook.profiling.block import Block, count_block_parts
from attnbook.profiling.tracing import trace_call
from attnbook.records import read_record
from workshop.experiments import attention_cost as probe
from workshop.experiments.plain_block import PlainBlock, make_training_step


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(probe, "ROUNDS", 1)
    monkeypatch.setattr(probe, "MODEL", 32)
    monkeypatch.setattr(probe, "DECODED", (2, 32, 8, 4))
    monkeypatch.setattr(probe, "LAYER", (1, 2, 40, 4))


def test_every_implementation_is_timed():
    steps = {"scale", "scores", "softmax", "values"}
    found = probe.measure_steps(19)
    again = {f"{name} again" for name in steps}
    assert {*found} == steps | again | {"attend", "query chunks", "sdpa"}
    for row in found.values():
        assert 0 < row["least"] <= row["low"] <= row["middle"] <= row["high"]
    assert {*probe.list_implementations(probe.draw_inputs(1, 2, 7, 4))} == {
        "attend",
        "sdpa",
    }
    assert len(probe.measure_precisions(19)) == 2 * len(probe.DTYPES)
    assert {*probe.measure_heads(19)} == {str(n) for n in probe.HEADS}
    assert {*probe.measure_groups()} == {str(n) for n in probe.GROUPS}


def test_the_layers_peaks_are_of_the_named_implementations():
    found = probe.measure_layer_memory()
    assert found["attend, training"] > found["attend"] >= 2 * 2 * 40 * 40 * 4
    assert found["sdpa"] < found["attend"]


def test_the_plain_block_is_the_block_that_is_counted():
    block = PlainBlock(24, 3)
    counted = count_block_parts(Block(24, 3, 3, 8, 96, False, 1), 2, 7, 7)
    with torch.no_grad():
        found = trace_call(lambda: block(torch.randn(2, 7, 24))).flops
    elementwise = 2 * 3 * 7 * (5 * 7 + 8)
    assert found == sum(c.flops for c in counted.values()) - elementwise
    make_training_step(1, 5)()


def test_the_record_has_what_the_chapter_reads():
    record = read_record("attention_cost")
    results = record["results"]
    assert {*results["steps"]} == {str(n) for n in record["lengths"]}
    for rates in (results["before"], results["after"]):
        assert min(rates.values()) > 1e8
