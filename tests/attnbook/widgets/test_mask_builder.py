"""The mask builder: its masks are the library's, and its code makes them."""

import random

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention.flex_attention import flex_attention

from attnbook import masks
from attnbook.attention.scaled_dot_product import attend
from attnbook.widgets.mask_builder import KINDS, PARTS, MaskBuilder
from javascript import Module

MIXED = (
    {"kind": "window", "size": 2},
    {"kind": "sinks", "size": 1, "join": "or"},
    {"kind": "padding"},
)


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


def test_parts_join_from_left_to_right():
    made = MaskBuilder(MIXED).mask()
    near = masks.window(5, 7, 2) | masks.sinks(5, 7, 1)
    assert made.equal(near & masks.padding(torch.tensor([7, 4]), 7))


def test_an_empty_row_gives_zeros_and_the_others_sum_to_one():
    made = MaskBuilder([{"kind": "causal"}], T=5, S=3)
    rows = made.weights()[0, 0].sum(-1)
    torch.testing.assert_close(rows, torch.tensor([0.0, 0, 1, 1, 1]))


def test_the_fallback_is_a_table_of_the_numbers():
    data, _ = MaskBuilder([{"kind": "causal"}], T=3, S=2)._repr_mimebundle_()
    text = data["text/html"]
    fallback = text.split("</script>")[1]
    assert "under the mask causal, with 3 queries and 2 keys" in fallback
    empty = "<th>query 0</th><td>·</td><td>·</td><td>empty row: zeros</td>"
    assert empty in fallback
    assert "<th>query 1</th><td>1.00</td><td>·</td></tr>" in fallback
    mixed, _ = MaskBuilder(MIXED)._repr_mimebundle_()
    assert "window or sinks and padding" in mixed["text/html"]


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"parts": []}, "0 parts given; there may be 1 to 4"),
        ({"parts": [{"kind": "causal"}] * 5}, "5 parts given"),
        ({"parts": ["causal"]}, "a part needs a kind, .* is 'causal'"),
        ({"parts": [{"kind": "casual"}]}, "kind must be one .* not 'casual'"),
        ({"parts": [{"kind": "causal", "or": 1}]}, "may have .*'or': 1"),
        (
            {"parts": [{"kind": "causal", "join": "xor"}]},
            "join must be one of and, or; not 'xor'",
        ),
        (
            {"parts": [{"kind": "window", "size": 0}]},
            "size must be a whole number from 1 to 10, not 0",
        ),
        ({"T": 11}, "T must be a whole number from 1 to 10, not 11"),
        ({"S": 0}, "S must be a whole number from 1 to 10, not 0"),
        ({"text": 2}, "text must be a whole number from 0 to 1, not 2"),
        ({"lengths": [3]}, "there are 2 sequences, not 1 lengths"),
        ({"lengths": [3, -1]}, "a length must be a whole number from 0 to 10"),
        ({"lengths": [3, 2.5]}, "a length must be .* not 2.5"),
    ],
)
def test_invalid_values_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        MaskBuilder(**given)


@pytest.fixture(scope="module")
def script():
    return Module("mask_builder")


@pytest.mark.javascript
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


@pytest.mark.javascript
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


@pytest.mark.javascript
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


@pytest.mark.javascript
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


@pytest.mark.javascript
def test_the_code_has_brackets_where_python_needs_them(script):
    def join(*parts):
        state = MaskBuilder([dict(p) for p in parts]).state()["parts"]
        names = [p["kind"] for p in state]
        return script.call("joinParts", state, names)

    window, sinks, padding = MIXED
    assert join(window, sinks, padding) == "(window | sinks) & padding"
    assert join(window, padding, sinks) == "window & padding | sinks"
    negated = {"kind": "sinks", "negated": True}
    assert join(window, negated) == "window & ~sinks"


@pytest.mark.javascript
def test_the_mask_is_described_in_words(script):
    def describe(name="describeMask", *more, **given):
        state = MaskBuilder(**given).state()
        return script.call(name, state, *more)

    causal = [{"kind": "causal"}]
    assert describe(parts=causal, T=3, S=3) == (
        "6 of 9 pairs of query and key are not masked out. Every query sees a key."
    )
    assert describe(parts=causal, T=5, S=3).endswith(
        "Queries 0 and 1 see no key: their rows are empty, their weights are 0."
    )
    nothing = [{"kind": "causal"}, {"kind": "causal", "negated": True}]
    assert "No query sees any key" in describe(parts=nothing)
    row = describe("describeRow", 0, parts=causal, T=5, S=3)
    assert row == (
        "Query 0, before the first key, sees no key: its row is empty, its "
        "weights are 0."
    )
    row = describe("describeRow", 1, parts=causal, T=3, S=3)
    assert "sees key 0 and nothing else" in describe(
        "describeRow", 0, parts=causal, T=3, S=3
    )
    assert describe(parts=causal, T=4, S=3).endswith(
        "Query 0 sees no key: its row is empty, its weights are 0."
    )
    assert row.startswith("Query 1, at key 1, sees keys 0 and 1; most of its")


@pytest.mark.javascript
def test_notes_describe_is_causal(script):
    def notes(**given):
        return script.call("describeWays", MaskBuilder(**given).state())

    causal = [{"kind": "causal"}]
    same, other = notes(parts=causal, T=3, S=3), notes(parts=causal, T=3, S=5)
    assert "is_causal=True says the same" in same["sdpa"]
    assert "begins at the top left" in other["sdpa"]
    query, key, value = tensors({"T": 3, "S": 5})
    flag = F.scaled_dot_product_attention(query, key, value, is_causal=True)
    corner = torch.ones(3, 5, dtype=torch.bool).tril()
    torch.testing.assert_close(flag, attend(query, key, value, corner))
    empty = notes(parts=causal, T=5, S=3)
    assert "An empty row gives NaN" in empty["mha"]
    assert "An empty row gives zeros" in empty["flex"]
    assert "NaN" not in same["mha"]


@pytest.mark.javascript
def test_invalid_states_are_replaced_by_valid_ones(script):
    drawn = script.call("cleanState", {})
    assert (drawn["T"], drawn["S"], drawn["text"]) == (5, 7, 0)
    assert [p["kind"] for p in drawn["parts"]] == ["causal"]
    odd = {
        "T": "x",
        "S": 1e9,
        "parts": [None, {"kind": "toString", "size": "NaN", "join": 3}] * 9,
        "lengths": "ab",
        "text": -3,
        "scores": [["Infinity", None], 3],
    }
    drawn = script.call("cleanState", odd)
    assert (drawn["T"], drawn["S"], drawn["text"]) == (5, 10, 0)
    assert [p["kind"] for p in drawn["parts"]] == ["causal"] * PARTS
    assert drawn["lengths"] == [10, 10]
    assert script.call("computeWeights", drawn, 0)[4][:2] == [1 / 10, 1 / 10]
