"""What the widgets compute in the page equals what the library computes."""

import random

import pytest
import quickjs
import torch

from attnbook.diagnose import entropy
from attnbook.training.metrics import edit_distance
from attnbook.widgets.mount import read_modules
from javascript import Module
from workshop.book.mounts import make_classic_script


@pytest.fixture(scope="module")
def player():
    return Module("alignment_player")


def draws(count=200, seed=0):
    rng = random.Random(seed)
    for _ in range(count):
        yield tuple(
            [rng.choice("abcdé") for _ in range(rng.randrange(9))] for _ in range(2)
        )


def test_every_widget_is_a_module_with_render():
    for stem, text in read_modules().items():
        assert Module(stem).names, stem
        assert "innerHTML" not in text
        # As the pages run it: what is exported by default is returned.
        page = quickjs.Context()
        page.eval(make_classic_script(stem, text))
        assert page.eval(f"typeof bookModules.{stem}().render") == "function"


@pytest.mark.parametrize(
    "text",
    [
        "export const a = 1;",
        'import a from "a";\nexport default {};',
        "export { a };\nexport default {};",
        "export default {};\nexport default {};",
    ],
)
def test_a_module_that_no_page_could_run_is_refused(text):
    with pytest.raises(ValueError, match="odd must import nothing"):
        make_classic_script("odd", text)


def test_the_edit_distance_is_the_librarys(player):
    for ours, theirs in draws():
        assert player.call("editDistance", ours, theirs) == edit_distance(ours, theirs)


def test_the_largest_weight_is_found_and_what_is_no_number_is_not(player):
    rng = random.Random(2)
    for _ in range(50):
        row = [rng.random() for _ in range(rng.randrange(1, 41))]
        assert player.call("findLargest", row) == row.index(max(row))
    assert player.call("findLargest", []) == -1
    assert player.call("findLargest", ["NaN", None]) == -1
    assert player.call("findLargest", [None, 0.1, "x"]) == 1


@pytest.mark.parametrize("stem", ["attention_map", "translation_map"])
def test_the_entropy_is_the_librarys(stem):
    rng = torch.Generator().manual_seed(1)
    script = Module(stem)
    for i in range(30):
        row = torch.randn(1 + i % 17, generator=rng, dtype=torch.float64)
        row = (row * 10 ** (i % 5 - 2)).softmax(0)
        row[1 : i % 3] = 0
        row = row / row.sum()
        found = script.call("entropy", row.tolist())
        assert found == pytest.approx(entropy(row).item(), abs=1e-6)


def test_a_translation_shows_a_head_or_the_mean_of_all():
    script, weights = Module("translation_map"), torch.rand(2, 3, 4, 5)
    example = {"cross": weights.tolist()}
    for layer, head in (0, 2), (1, -1):
        heads = weights[layer]
        wanted = heads.mean(0) if head < 0 else heads[head]
        found = script.call("selectWeights", example, "cross", layer, head)
        torch.testing.assert_close(torch.tensor(found), wanted)
