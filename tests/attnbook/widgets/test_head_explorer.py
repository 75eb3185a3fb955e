"""The head explorer: its Python and JavaScript against the library."""

import random

import pytest
import torch

from attnbook.data.recorded_maps import load_head_maps
from attnbook.diagnose.heads import (
    score_first_token,
    score_induction,
    score_previous_token,
    uniform_causal_weights,
)
from attnbook.widgets.head_explorer import MOST, SCORES, HeadExplorer
from javascript import Module


def make_map(T, rng):
    """Return random weights, norms and effects; some rows have one key."""
    rows = [[rng.choice((0, 1, 7, 60)) for _ in range(t)] for t in range(T)]
    return {
        "hundredths": [[*row, rng.randint(1, 40)] for row in rows],
        "norms": [round(rng.uniform(0.5, 60), 1) for _ in range(T)],
        "effects": [rng.randint(-80, 80) for _ in range(T - 1)],
    }


def make_maps(lengths=(4, 7), layers=3, per_layer=2, recorded=2, seed=0):
    """Return sentences and heads of random numbers."""
    rng = random.Random(seed)
    count = layers * per_layer
    places = rng.sample(range(count), recorded)
    return {
        "layers": layers,
        "per_layer": per_layer,
        "sentences": [
            {
                "title": f"sentence {i}",
                "tokens": [f" w{t % 3}" if t % 5 else "\n" for t in range(T)],
                "losses": [rng.randint(0, 900) for _ in range(T - 1)],
                "induction_queries": rng.randint(0, T),
                "chance": {"induction": 9, "previous": 20, "first": 30},
                **{
                    name: [rng.randint(0, 100) for _ in range(count)]
                    for name in ("induction", "previous", "first")
                },
                "effect": [rng.randint(-500, 500) for _ in range(count)],
            }
            for i, T in enumerate(lengths)
        ],
        "heads": [
            {
                "title": f"head {n}",
                "layer": n // per_layer,
                "head": n % per_layer,
                "maps": [make_map(T, rng) for T in lengths],
            }
            for n in places
        ],
    }


def widgets(count=30, seed=0):
    """Yield explorers with a head, a score and a query at random."""
    rng = random.Random(seed)
    for n in range(count):
        lengths = rng.choice([(2, 3), (4, 7), (MOST, 5, 9)])
        maps = make_maps(lengths, rng.randint(1, 5), rng.randint(2, 4), seed=n)
        sentence = rng.randrange(len(lengths))
        chosen = rng.choice(maps["heads"])
        yield HeadExplorer(
            maps,
            sentence=sentence,
            layer=chosen["layer"],
            head=chosen["head"],
            score=rng.choice([*SCORES]),
            measure=rng.choice(["weight", "norm"]),
            query=rng.randrange(lengths[sentence]),
        )


def test_weights_and_norms_are_those_recorded():
    for widget in widgets():
        one = widget.find_map()
        weights, norms = widget.weights(), widget.weighted_norms()
        T = len(one["norms"])
        assert weights.shape == norms.shape == (T, T)
        for t, row in enumerate(one["hundredths"]):
            for s, x in enumerate(row):
                assert float(weights[t, s]) == pytest.approx(x / sum(row))
            products = [x * n for x, n in zip(row, one["norms"], strict=False)]
            wanted = [p / sum(products) for p in products]
            assert norms[t, : t + 1].tolist() == pytest.approx(wanted)
        assert not weights.triu(1).any() and not norms.triu(1).any()
        effects = [x / 100 for x in one["effects"]]
        assert widget.effects().tolist() == pytest.approx(effects)


def test_the_fallback_states_a_finding_and_lists_the_recorded_heads():
    maps = make_maps()
    first = maps["sentences"][0]
    first["induction"] = [10, 20, 90, 20, 10, 0]
    first["effect"] = [0, 10, -30, 700, 0, 0]
    widget = HeadExplorer(maps)
    text = widget.fallback()
    assert (
        "Of 6 heads on one sentence of 4 tokens (sentence 0), layer 1, head 0 "
        "has the largest induction score (0.90; equal weights would give "
        "0.09); without it, the mean loss falls by 0.03 nats; the largest rise "
        "is 0.70 nats, without layer 1, head 1." in text
    )
    assert text.count("<tr>") == 1 + len(maps["heads"])
    by_effect = HeadExplorer(maps, score="effect").describe_finding()
    assert by_effect == (
        "when one head is removed, the largest rise is 0.70 nats, without "
        "layer 1, head 1"
    )


def test_the_recorded_scores_are_the_librarys():
    maps = load_head_maps()
    scores = {
        "first": lambda w, ids: score_first_token(w),
        "previous": lambda w, ids: score_previous_token(w),
        "induction": score_induction,
    }
    widget = HeadExplorer(maps)
    for i, sentence in enumerate(maps["sentences"]):
        names = sorted({*sentence["tokens"]})
        ids = torch.tensor([names.index(x) for x in sentence["tokens"]])
        T = len(ids)
        uniform = uniform_causal_weights(T)
        for name, score in scores.items():
            chance = 100 * float(score(uniform, ids)[0])
            assert abs(sentence["chance"][name] - chance) <= 0.501
        widget.query, widget.sentence = 0, i
        for head in maps["heads"]:
            widget.layer, widget.head = head["layer"], head["head"]
            for name, score in scores.items():
                found = float(score(widget.weights()[None], ids)[0])
                recorded = widget.read_scores(name)[widget.layer, widget.head]
                # Each weight was rounded by at most half a hundredth, and its
                # row divided by a sum that is off by at most T of these.
                assert abs(found - float(recorded)) <= 0.005 * (T + 2)
        for head in maps["heads"]:
            effect = sentence["effect"][
                head["layer"] * maps["per_layer"] + head["head"]
            ]
            mean = sum(head["maps"][i]["effects"]) / (T - 1)
            assert abs(mean / 100 - effect / 1000) <= 0.0056


@pytest.fixture(scope="module")
def script():
    return Module("head_explorer")


def test_the_pages_maps_are_the_librarys(script):
    for widget in widgets(seed=2):
        one = widget.find_map()
        for name, ours in (
            ("computeWeights", widget.weights()),
            ("computeWeightedNorms", widget.weighted_norms()),
        ):
            rows = script.call(name, one)
            assert [len(row) for row in rows] == [*range(1, len(ours) + 1)]
            for t, row in enumerate(rows):
                assert row == pytest.approx(ours[t, : t + 1].tolist())
        state = widget.state()
        index = script.call("findRecorded", state)
        assert state["heads"][index]["layer"] == widget.layer


def test_ranks_are_the_librarys(script):
    for widget in widgets(seed=4):
        one = widget.sentences[widget.sentence]
        index = widget.layer * widget.per_layer + widget.head
        listed = script.call("listScores", widget.state())
        assert len(listed) == len(SCORES)
        for name, row in zip(SCORES, listed, strict=True):
            rank = widget.rank_head(name)
            assert script.call("rankHead", one[name], index) == rank
            assert row[3] == f"{rank} of {len(one[name])}"
            mine = widget.read_scores(name)[widget.layer, widget.head]
            shown = float(row[1].replace("\u2212", "-"))
            assert shown == pytest.approx(float(mine))


def test_the_code_names_the_sentence_and_the_head(script):
    maps = load_head_maps()
    widget = HeadExplorer(maps, sentence=0, layer=16, head=0)
    code = script.call("formatCode", widget.state())
    compile(code, "code", "exec")
    text = "".join(maps["sentences"][0]["tokens"])
    assert f'tokenizer.encode("{text}").ids' in code
    assert "ablate_heads(model, [(16, 0)])" in code
