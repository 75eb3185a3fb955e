"""The head explorer: its recorded numbers, in Python and in the page."""

import pytest

from attnbook.data.recorded_maps import load_head_maps
from attnbook.widgets.head_explorer import SCORES, HeadExplorer
from javascript import Module
from widget_examples import make_head_explorer


@pytest.fixture(scope="module")
def script():
    return Module("head_explorer")


def test_the_fallback_states_a_finding_and_lists_the_recorded_heads():
    widget = make_head_explorer(["a", "b", "c", "d"])
    assert (widget.layer, widget.head) == (1, 0)  # of the largest score
    first = widget.sentences[0]
    first["induction"] = [10, 20, 90, 20, 10, 0]
    first["effect"] = [0, 10, -30, 700, 0, 0]
    text = widget.fallback()
    assert (
        "Of 6 heads on one sentence of 4 tokens (a), layer 1, head 0 "
        "has the largest induction score (0.90; equal weights would give "
        "0.20); without it, the mean loss falls by 0.03 nats; the largest rise "
        "is 0.70 nats, without layer 1, head 1." in text
    )
    assert text.count("<tr>") == 1 + len(widget.heads)
    widget.score = "effect"
    assert widget.describe_finding() == (
        "when one head is removed, the largest rise is 0.70 nats, without "
        "layer 1, head 1"
    )


def test_the_pages_rows_are_the_recorded_ones_over_their_sums(script):
    for head in load_head_maps()["heads"]:
        one = head["maps"][0]
        weights = script.call("computeWeights", one)
        norms = script.call("computeWeightedNorms", one)
        for t, row in enumerate(one["hundredths"]):
            assert weights[t] == pytest.approx([x / sum(row) for x in row])
            products = [x * n for x, n in zip(row, one["norms"], strict=False)]
            wanted = [x / sum(products) for x in products]
            assert norms[t] == pytest.approx(wanted)


def test_the_page_lists_the_scores_and_ranks_of_the_head(script):
    maps = load_head_maps()
    widget = HeadExplorer(maps, sentence=1, layer=16, head=0)
    scores = maps["sentences"][1]
    index = 16 * maps["per_layer"]
    listed = script.call("listScores", widget.state())
    for name, row in zip(SCORES, listed, strict=True):
        rank = 1 + sum(x > scores[name][index] for x in scores[name])
        assert row[3] == f"{rank} of {len(scores[name])}"
        shown = float(row[1].replace("\u2212", "-"))
        assert shown == pytest.approx(float(widget.read_scores(name)[16, 0]))
    found = widget.heads[script.call("findRecorded", widget.state())]
    assert (found["layer"], found["head"]) == (16, 0)


def test_the_code_names_the_sentence_and_the_head(script):
    maps = load_head_maps()
    widget = HeadExplorer(maps, sentence=0, layer=16, head=0)
    code = script.call("formatCode", widget.state())
    compile(code, "code", "exec")
    text = "".join(maps["sentences"][0]["tokens"])
    assert f'tokenizer.encode("{text}").ids' in code
    assert "ablate_heads(model, [(16, 0)])" in code
