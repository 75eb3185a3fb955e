"""The mask builder: its masks are the library's, and its code makes them."""

import random

import pytest
import torch
from torch import nn
from torch.nn.attention.flex_attention import flex_attention

from attnbook import masks
from attnbook.attention.scaled_dot_product import attend
from attnbook.widgets.mask_builder import KINDS, PARTS, MaskBuilder
from javascript import Module


def states(count=200, seed=0):
    """Yield states at random, with every kind alone first."""
    rng = random.Random(seed)
    for n in range(count):
        kinds = (
            [KINDS[n % len(KINDS)]]
            if n < 4 * len(KINDS)
            else rng.choices(KINDS, k=rng.randint(1, PARTS))
        )
        yield {
            "parts": [
                {
                    "kind": kind,
                    "join": rng.choice(["and", "or"]),
                    "negated": rng.random() < 0.3,
                    "size": rng.randint(1, 10),
                    "step": rng.randint(1, 4),
                }
                for kind in kinds
            ],
            "T": rng.randint(1, 10),
            "S": rng.randint(1, 10),
            "lengths": [rng.randint(0, 10), rng.randint(0, 10)],
            "text": rng.randint(0, 1),
        }


def test_a_part_is_the_librarys_mask():
    def alone(T=5, S=7, **part):
        return MaskBuilder([part], T=T, S=S).mask()[1, 0]

    assert alone(kind="causal").equal(masks.causal(5, 7))
    assert alone(kind="causal", negated=True).equal(~masks.causal(5, 7))
    assert alone(kind="window", size=2).equal(masks.window(5, 7, 2))
    part = {"kind": "dilated", "size": 2, "step": 3}
    assert alone(**part).equal(masks.dilated(5, 7, 2, 3))
    assert alone(kind="prefix", size=4).equal(masks.prefix(5, 7, 4))
    assert alone(kind="sinks", size=4).equal(masks.sinks(5, 7, 4))
    lengths = torch.tensor([7, 4])
    last = masks.padding(lengths, 7)[1, 0].expand(5, 7)
    assert alone(kind="padding").equal(last)
    whole = masks.document(torch.tensor([[0, 0, 0, 1, 1, 1, 1]]))[0, 0]
    assert alone(kind="document", size=3).equal(whole[2:])
    assert not alone(T=9, kind="document", size=3)[:2].any()
    assert alone(T=9, kind="document", size=3)[2:].equal(whole)


@pytest.fixture(scope="module")
def script():
    return Module("mask_builder")


def test_the_pages_masks_and_weights_are_the_librarys(script):
    seen = set()
    for given in states():
        widget = MaskBuilder(**given)
        state = widget.state()
        assert script.call("cleanState", state) == state
        mask, weights = widget.mask()[:, 0], widget.weights()[:, 0]
        for b in range(2):
            rows = script.call("buildMask", state, b)
            assert rows == mask[b].tolist(), given
            found = torch.tensor(script.call("computeWeights", state, b))
            torch.testing.assert_close(found.float(), weights[b], atol=1e-6, rtol=0)
            none = script.call("findEmptyRows", rows)
            assert none == (~mask[b].any(-1)).nonzero()[:, 0].tolist()
        seen.update((p["kind"], p["negated"]) for p in given["parts"])
    assert len(seen) == 2 * len(KINDS)


def made_by(text, **given):
    """Run the code that the widget shows; return what it leaves."""
    space = {"query": torch.zeros(1), **given}
    exec(text, space)
    return space


def tensors(state, heads=3, width=4):
    rng = torch.Generator().manual_seed(0)

    def normal(length):
        return torch.randn(2, heads, length, width, generator=rng)

    return normal(state["T"]), normal(state["S"]), normal(state["S"])


def wanted(widget, query, key, value):
    return attend(query, key, value, widget.mask())


def test_the_code_for_the_book_and_for_sdpa_computes_this(script):
    for given in states(60, seed=1):
        widget = MaskBuilder(**given)
        code = script.call("formatCode", widget.state())
        query, key, value = tensors(given)
        for way in "attnbook", "sdpa":
            space = made_by(code[way], query=query, key=key, value=value)
            assert space["mask"].expand_as(widget.mask()).equal(widget.mask())
            right = wanted(widget, query, key, value)
            torch.testing.assert_close(space["output"], right)


def test_the_code_for_pytorchs_module_computes_this(script):
    for given in states(30, seed=2):
        widget = MaskBuilder(**given)
        query, key, value = (x.transpose(1, 2).flatten(2) for x in tensors(given))
        module = nn.MultiheadAttention(12, 3, batch_first=True, bias=False)
        code = script.call("formatCode", widget.state())["mha"]
        more = {"module": module, "heads": module.num_heads}
        space = made_by(code, query=query, key=key, value=value, **more)
        q, k, v = (
            (x @ W.T).unflatten(-1, (3, 4)).transpose(1, 2)
            for x, W in zip(
                (query, key, value), module.in_proj_weight.chunk(3), strict=True
            )
        )
        right = wanted(widget, q, k, v).transpose(1, 2).flatten(2)
        right = right @ module.out_proj.weight.T
        rows = widget.mask()[:, 0].any(-1)
        assert space["output"][~rows].isnan().all()  # as the note says
        torch.testing.assert_close(space["output"][rows], right[rows])


@pytest.mark.filterwarnings("ignore:flex_attention called without")
def test_the_code_for_flex_attention_computes_this(script):
    for given in states(50, seed=3):
        widget = MaskBuilder(**given)
        code = script.call("formatCode", widget.state())["flex"]
        query, key, value = tensors(given)
        rule = code.partition("\nblocks =")[0]
        space = made_by(rule, query=query)
        mask = masks.materialize_mask(space["rule"], given["T"], given["S"], batch=2)
        assert mask.expand_as(widget.mask()).equal(widget.mask())
    made_by(code, query=query, key=key, value=value)  # the last one, whole
    causal = MaskBuilder([{"kind": "causal"}], T=5, S=3)
    code = script.call("formatCode", causal.state())["flex"]
    query, key, value = tensors({"T": 5, "S": 3})
    space = made_by(code, query=query, key=key, value=value)
    right = wanted(causal, query, key, value)
    torch.testing.assert_close(space["output"], right)
    assert space["flex_attention"] is flex_attention
