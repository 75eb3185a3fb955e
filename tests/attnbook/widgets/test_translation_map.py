"""The map of a translation: what it takes, what it computes, how it is used."""

import pytest
import torch

from attnbook.diagnose import entropy
from attnbook.models.hooks import collect_maps
from attnbook.models.transformer import Size, transformer
from attnbook.widgets.translation_map import (
    TranslationMap,
)
from javascript import Module

L, H = 2, 3


def example(source="the cat sat", output="le chat dort end", **changes):
    """Maps of an untrained Transformer for these words."""
    source, output = source.split(), output.split()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        model = transformer(30, 30, Size(12, H, 17, L)).eval()
        ids = torch.randint(4, 30, (1, len(source) + len(output)))
    source_ids, read_status = ids.split([len(source), len(output)], dim=1)
    found = collect_maps(model, source_ids, torch.tensor([len(source)]), read_status)
    weights = {name: x[0] for name, x in found._asdict().items()}
    title = " ".join(source[:5])
    made = {"title": title, "source": source, "output": output}
    return made | weights | changes


def state(*examples, **traits):
    return TranslationMap(list(examples) or [example()], **traits).state()


def test_the_fallback_shows_the_numbers_without_javascript():
    given = example(source="<b> cat sat")
    made = TranslationMap([given], layer=1, head=2)
    text = made.fallback()
    cross = given["cross"][1, 2, 0]
    at = int(cross.argmax())
    word = ["&lt;b&gt;", "cat", "sat"][at]
    assert f"<td>le</td><td>{word}</td><td>{cross[at]:.2f}</td>" in text
    assert "layer 2, head 3" in text
    assert "<b>" not in text


@pytest.fixture(scope="module")
def module():
    return Module("translation_map")


def test_means_and_rows_are_the_librarys(module):
    given = example()
    raw = {
        name: x.double().tolist() if torch.is_tensor(x) else x
        for name, x in given.items()
    }
    assert module.call("countLayersAndHeads", raw) == [L, H]
    for name in ("encoder", "decoder", "cross"):
        for layer in range(L):
            for head in range(-1, H):
                weights = given[name][layer].double()
                right = weights.mean(0) if head < 0 else weights[head]
                ours = module.call("selectWeights", raw, name, layer, head)
                torch.testing.assert_close(
                    torch.tensor(ours, dtype=torch.float64),
                    right,
                    atol=1e-6,
                    rtol=0,
                )


def test_spread_and_best_are_the_librarys(module):
    weights = example()["cross"].double().flatten(0, 2)
    weights = weights / weights.sum(-1, keepdim=True)
    ours = [module.call("entropy", row) for row in weights.tolist()]
    assert ours == pytest.approx(entropy(weights).tolist(), abs=1e-6)
    best = [module.call("findLargest", row) for row in weights.tolist()]
    assert best == weights.argmax(-1).tolist()
