"""The attention map: what it takes, what it computes, how it is used."""

import pytest
import torch

from attnbook.data.recorded_maps import load_maps
from attnbook.diagnose import entropy
from attnbook.widgets.attention_map import AttentionMap
from javascript import Module

WORDS = ["the", "cat", "sat"]


def example(**changes):
    weights = torch.tensor(
        [
            [[[1.0, 0, 0], [0.25, 0.5, 0.25], [0, 0, 1]]] * 2,
            [[[0.2, 0.3, 0.5], [0, 1, 0], [0.1, 0.1, 0.8]]] * 2,
        ]
    )
    made = {"title": "three words", "query": WORDS, "weights": weights}
    return made | changes


CROSS = example(
    query=["je", "suis"],
    key=["i", "am", "here"],
    weights=[[[[0.9, 0.1, 0], [0, 0.7, 0.3]]]],
)


def test_the_fallback_shows_the_numbers_without_javascript():
    made = AttentionMap([example(query=["<b>", "cat", "sat"])], layer=1)
    text = made.fallback()
    assert "<th>&lt;b&gt;</th><td>0.20</td><td>0.30</td><td>0.50</td>" in text
    assert "layer 2, head 1" in text


@pytest.fixture(scope="module")
def module():
    return Module("attention_map")


def random_rows(count=60):
    """Yield rows of weights at random: sharp, flat, one word, zeros inside."""
    rng = torch.Generator().manual_seed(1)
    for i in range(count):
        logits = torch.randn(1 + i % 17, generator=rng, dtype=torch.float64)
        row = (logits * 10 ** (i % 5 - 2)).softmax(0)
        if i % 3 == 0 and len(row) > 2:
            row[torch.randperm(len(row), generator=rng)[:2]] = 0
            row = row / row.sum()
        yield row
    yield torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64)


def test_entropy_and_largest_weight_equal_the_librarys_on_random_rows(module):
    for row in random_rows():
        ours = module.call("entropy", row.tolist())
        assert ours == pytest.approx(entropy(row).item(), abs=1e-6)
        assert module.call("findLargest", row.tolist()) == row.argmax().item()


def test_entropy_is_the_librarys_on_real_rows(module):
    made = AttentionMap(load_maps()[:1]).examples[0]
    rows = [row for head in made["weights"][2] for row in head]
    weights = torch.tensor(rows, dtype=torch.float64)
    expected = entropy(weights / weights.sum(-1, keepdim=True))
    ours = [module.call("entropy", row) for row in rows]
    assert ours == pytest.approx(expected.tolist(), abs=1e-12)
    best = [module.call("findLargest", row) for row in rows]
    assert best == weights.argmax(-1).tolist()
