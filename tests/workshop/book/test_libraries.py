"""The page "Attention across libraries": its lines of code and its data are true."""

import html
import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from attnbook.attention.multi_head import grouped_query
from attnbook.attention.scaled_dot_product import attend
from attnbook.masks.conventions import CONVENTIONS, LIBRARIES
from attnbook.positions.rotary import rotate, rotate_halves
from workshop.book.libraries import read_libraries, write_mask_choice

ROOT = Path(__file__).parents[3]
KNOWN = dict(read_libraries(ROOT))
WORDS = {"keep": "attends", "drop": "masked out", "additive": "added"}
WORDS |= {"lowest": "added", "ones": "attends"}


SETUP, *SECTIONS = re.split(
    r"(?m)^## ", (ROOT / "chapters/libraries.md").read_text("utf8")
)


def run_section(heading, **given):
    """Return the names after the code of a section, some of them given."""
    names = {}
    (section,) = (x for x in SECTIONS if x.startswith(heading))
    for text in SETUP, section:
        for code in re.findall(r"(?ms)^```python\n(.*?)^```$", text):
            exec(code, names)
            names |= given
            given = {}
    return SimpleNamespace(**names)


@pytest.mark.parametrize("heading", ["What True means", "Numbers as masks"])
def test_the_page_brings_a_mask_to_a_library_and_back(heading):
    n = run_section(heading)
    assert torch.equal(n.ours, n.mask)
    assert not torch.equal(n.theirs, n.mask)


def test_the_page_gives_zeros_for_a_query_without_keys():
    mask = torch.tensor([[True] * 5, [False] * 5, [True] * 5])
    n = run_section("A query that can", mask=mask)
    torch.testing.assert_close(n.ours, attend(n.query, n.key, n.value, mask))


def test_the_page_reorders_the_heads_of_a_library_that_pairs_them_in_turn():
    n = run_section("Four query heads")
    key, value = n.key[:, : n.G], n.value[:, : n.G]
    in_turn = (x.repeat(1, n.H // n.G, 1, 1) for x in (key, value))
    expected = grouped_query(n.query, key, value)
    reordered = run_section("Four query heads", query=expected).theirs
    torch.testing.assert_close(attend(n.theirs, *in_turn), reordered)
    assert torch.equal(n.ours, n.query)


def test_the_page_reorders_projections_for_the_other_rope():
    """A converted checkpoint must give the scores that it gave before."""
    n = run_section("Pairs of columns")
    x, scores = torch.randn(2, n.T, n.W.shape[1]), []
    for W, turn in (n.W, rotate), (n.theirs, rotate_halves), (n.ours, rotate):
        heads = (x @ W.T).unflatten(-1, (n.H, -1)).transpose(1, 2)
        turned = turn(heads, torch.arange(n.T))
        scores.append(turned @ turned.mT)
    torch.testing.assert_close(scores[1], scores[0])
    torch.testing.assert_close(scores[2], scores[0])


def test_the_page_scales_pads_caps_and_reorders_as_it_says():
    n = run_section("Scale")
    scaled = attend(n.theirs, n.key, n.value, scale=1.0)
    torch.testing.assert_close(scaled, attend(n.query, n.key, n.value))
    n = run_section("Values of another width")
    torch.testing.assert_close(n.ours, attend(n.query, n.key, n.narrow))
    n = run_section("Soft-cap", key=torch.zeros(2, 6, 5, 8))
    seen = n.mask.float() / n.mask.sum(-1, keepdim=True)  # equal weights
    torch.testing.assert_close(n.ours, seen @ n.value)
    assert not torch.allclose(n.theirs, n.ours)
    n = run_section("Sinusoidal")
    assert torch.equal(n.again, n.ours)
    assert torch.equal(n.theirs[0], torch.tensor([0.0] * 4 + [1.0] * 4))


def test_the_choice_of_masks_has_the_conventions_of_the_library():
    """A library whose convention changed must not be shown with the old one."""
    found = re.search(r'data-masks="([^"]*)"', write_mask_choice(ROOT))
    data = json.loads(html.unescape(found[1]))
    assert {k: tuple(v) for k, v in data["libraries"].items()} == LIBRARIES
    assert data["conventions"] == CONVENTIONS


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_library_takes_the_masks_that_convert_mask_writes_for_it(name):
    """A mask that the library reads otherwise hides the wrong keys, silently."""
    words = KNOWN[name]
    for convention in LIBRARIES[name]:
        boolean = convention in ("keep", "drop")
        assert words["True" if boolean else "float 1"] == WORDS[convention]
    took = {"True": ("keep", "drop"), "float 1": ("additive", "lowest", "ones")}
    for what, conventions in took.items():
        if not {*conventions} & {*LIBRARIES[name]}:
            assert words.get(what, "refused") in ("refused", "added"), what
