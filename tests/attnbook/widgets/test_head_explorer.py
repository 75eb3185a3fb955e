"""The head explorer: its Python and JavaScript against the library."""

import copy
import random

import pytest
import torch

from attnbook.data.smollm2_head_maps import KINDS, load_head_maps
from attnbook.diagnose.heads import (
    score_first_token,
    score_induction,
    score_pattern,
    score_previous_token,
    uniform_causal_weights,
)
from attnbook.widgets.head_explorer import MOST, SCORES, HeadExplorer
from javascript import Module
from widget_examples import replace_part


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


def test_equal_norms_change_no_row():
    maps = make_maps()
    for head in maps["heads"]:
        for one in head["maps"]:
            one["norms"] = [3.5] * len(one["norms"])
    widget = HeadExplorer(maps)
    torch.testing.assert_close(widget.weighted_norms(), widget.weights())


def test_the_recorded_head_with_the_largest_score_is_shown_first():
    maps = make_maps(layers=4, per_layer=4, recorded=5)
    for score in SCORES:
        widget = HeadExplorer(maps, score=score)
        mine = widget.read_scores(score)[widget.layer, widget.head]
        for head in maps["heads"]:
            other = widget.read_scores(score)[head["layer"], head["head"]]
            assert mine >= other
        # Every recorded head with a larger one would come before it.
        larger = widget.read_scores(score) > mine
        assert widget.rank_head(score) == 1 + int(larger.sum())
    assert widget.query == 3


def test_a_head_without_a_map_has_scores_and_no_weights():
    maps = make_maps(recorded=1)
    taken = maps["heads"][0]["layer"], maps["heads"][0]["head"]
    layer, head = (2, 1) if taken != (2, 1) else (0, 0)
    widget = HeadExplorer(maps, layer=layer, head=head)
    assert 1 <= widget.rank_head("induction") <= 6
    message = f"layer {layer}, head {head} is not recorded; those of these"
    with pytest.raises(ValueError, match=message):
        widget.weights()


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


def test_the_recorded_heads_are_named_and_of_every_kind():
    maps = load_head_maps()
    places = [(x["layer"], x["head"]) for x in maps["heads"]]
    assert len({*places}) == len(places) == 12
    kinds = {x["title"].partition(": ")[2] for x in maps["heads"]}
    assert kinds == {*KINDS.values()} - {"unused"}
    assert (maps["layers"], maps["per_layer"]) == (30, 9)
    assert len(maps["sentences"]) == 4
    assert all(len(x["tokens"]) <= MOST for x in maps["sentences"])


def change(path, value):
    """Return maps in which one part is replaced."""
    return replace_part(make_maps(), path, value)


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("maps", "given", "message"),
    [
        ({}, {}, "maps lacks 'layers'"),
        (change(["layers"], 0), {}, "layers must be .* from 1 to 48, not 0"),
        (change(["sentences"], []), {}, "has 2 maps for 0 sentences"),
        (change(["heads"], []), {}, "2 sentences and 0 heads"),
        (
            change(["sentences", 0, "tokens"], ["a"]),
            {},
            "sentence 0 has 1 tokens; a map shows 2 to 24",
        ),
        (
            change(["sentences", 0, "tokens"], "abcd"),
            {},
            "tokens must be a list of strings",
        ),
        (
            change(["sentences", 0, "losses"], [1, 2]),
            {},
            "losses of sentence 0 has 2 numbers, not 3",
        ),
        (
            change(["sentences", 1, "first"], [101] * 6),
            {},
            "the first-token score of sentence 1 must be .* 100, not 101",
        ),
        (
            change(["sentences", 1, "chance"], {}),
            {},
            "chance lacks 'induction'",
        ),
        (
            change(["heads", 0, "layer"], 3),
            {},
            "layer must be a whole number from 0 to 2, not 3",
        ),
        (
            change(["heads", 0, "maps"], []),
            {},
            "has 0 maps for 2 sentences",
        ),
        (
            change(["heads", 0, "maps", 0, "hundredths", 1], [0, 0]),
            {},
            "row 1 of head .* has no number above 0",
        ),
        (
            change(["heads", 0, "maps", 0, "hundredths", 1], [1]),
            {},
            "row 1 of head . has 1 numbers, not 2",
        ),
        (
            change(["heads", 0, "maps", 0, "norms"], [1.0, 2.0, 0.0, 1.0]),
            {},
            r"needs 4 positive norms, one a token; it has \[1.0, 2.0, 0.0",
        ),
        (
            change(["heads", 0, "maps", 0, "norms", 0], float("nan")),
            {},
            "needs 4 positive norms",
        ),
        (
            change(["heads", 0, "maps", 0, "effects", 0], 1.5),
            {},
            "effects of head .* must be a whole number .* not 1.5",
        ),
        (make_maps(), {"sentence": 2}, "sentence is 2, but there are 2"),
        (make_maps(), {"layer": 3}, "layer is 3, but there are 3"),
        (make_maps(), {"head": -1}, "head is -1, but there are 2"),
        (make_maps(), {"query": 4}, "query is 4, but there are 4"),
        (make_maps(), {"score": "x"}, "score is 'x', not one of"),
        (make_maps(), {"measure": 3}, "'measure'|measure is"),
    ],
)
def test_invalid_values_are_refused(maps, given, message):
    kind = Exception if given.get("measure") == 3 else ValueError
    with pytest.raises(kind, match=message):
        HeadExplorer(maps, **given)


def test_what_is_given_is_not_changed():
    maps = make_maps()
    before = copy.deepcopy(maps)
    HeadExplorer(maps, sentence=1)
    assert maps == before


@pytest.fixture(scope="module")
def script():
    return Module("head_explorer")


@pytest.mark.javascript
def test_a_state_is_kept_as_it_is(script):
    for widget in widgets(10, seed=1):
        assert script.call("cleanState", widget.state()) == widget.state()
    whole = HeadExplorer(load_head_maps()).state()
    assert script.call("cleanState", whole) == whole


@pytest.mark.javascript
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


@pytest.mark.javascript
def test_the_pages_scores_of_weights_are_the_librarys(script):
    for widget in widgets(10, seed=3):
        T = len(widget.find_map()["norms"])
        rows = script.call("computeWeights", widget.find_map())
        whole = torch.zeros(T, T, dtype=torch.float64)
        for t, row in enumerate(rows):
            whole[t, : t + 1] = torch.tensor(row, dtype=torch.float64)
        marked = torch.ones(T, T, dtype=torch.bool).tril()
        assert float(score_pattern(whole, marked)) == pytest.approx(1)
        torch.testing.assert_close(
            score_previous_token(whole), score_previous_token(widget.weights())
        )


@pytest.mark.javascript
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


@pytest.mark.javascript
def test_the_grid_is_darkest_where_the_score_is_largest(script):
    for widget in widgets(12, seed=5):
        for score in SCORES:
            state = widget.state() | {"score": score}
            values = widget.read_scores(score).flatten().tolist()
            colors = script.call("colorHeads", state)
            shares = [x["share"] for x in colors]
            assert 0 <= min(shares) <= max(shares) <= 1
            assert [x["falls"] for x in colors] == [x < 0 for x in values]
            darkest = shares.index(max(shares))
            assert abs(values[darkest]) == max(abs(x) for x in values)


@pytest.mark.javascript
def test_arrow_keys_stay_in_the_grid(script):
    state = {"layers": 3, "per_layer": 2, "layer": 0, "head": 0}
    moves = {
        "ArrowLeft": [0, 0],
        "ArrowRight": [1, 0],
        "ArrowUp": [0, 0],
        "ArrowDown": [0, 1],
        "Home": [0, 0],
        "End": [2, 0],
        "Enter": None,
    }
    for key, place in moves.items():
        assert script.call("moveHead", state, key) == place
    last = state | {"layer": 2, "head": 1}
    assert script.call("moveHead", last, "ArrowRight") == [2, 1]
    assert script.call("moveHead", last, "ArrowDown") == [2, 1]


@pytest.mark.parametrize(
    ("layers", "ticks"),
    [
        (1, [[0, 1, 1]]),
        (7, [[0, 5, 7]]),
        (13, [[0, 5, 10], [5, 5, 0], [10, 3, 3]]),
        (20, [[0, 5, 10], [5, 5, 0], [10, 5, 10], [15, 5, 0]]),
    ],
)
def test_every_fifth_layer_is_named_where_its_number_has_room(script, layers, ticks):
    assert script.call("placeTicks", layers) == ticks


def describe(script, name, **given):
    maps = make_maps(lengths=(3,), recorded=1)
    head = maps["heads"][0]
    head["maps"][0] = {
        "hundredths": [[100], [60, 40], [70, 20, 10]],
        "norms": [1.0, 10.0, 2.0],
        "effects": [25, -10],
    }
    one = maps["sentences"][0]
    one |= {"tokens": ["<s>", " the", "\n"], "losses": [300, 200]}
    one["induction"] = [7] * 6
    one["effect"] = [75] * 6
    widget = HeadExplorer(maps, **given)
    more = [widget.find_map()] * (name != "describeHead")
    text = script.call(name, widget.state(), *more)
    return text.replace(f"Layer {head['layer']}, head {head['head']}", "It")


@pytest.mark.javascript
def test_a_head_is_described_in_words(script):
    assert describe(script, "describeHead") == (
        "It: induction score 0.07, rank 1 of 6. Without it, the mean loss of "
        "the tokens, 2.50 nats, rises by 0.075."
    )
    assert describe(script, "describeQuery") == (
        "The query “↵” at position 2 gives the largest weight, 0.70, to “<s>” "
        "at position 0. Weight \u00d7 value norm is largest for “the” at "
        "position 1 (0.69 of the sum over keys)."
    )
    assert describe(script, "describeQuery", query=0) == (
        "The query “<s>” at position 0 gives the largest weight, 1.00, to "
        "“<s>” at position 0. Weight \u00d7 value norm is largest there too "
        "(1.00 of the sum over keys)."
    )
    assert describe(script, "describeEffects") == (
        "Without this head, the loss rises most for “the” at position 1: from "
        "3.00 to 3.25 nats; it falls most for “↵” at position 2: from 2.00 to "
        "1.90 nats."
    )
    assert script.call("formatChange", -0.333, 2) == "\u22120.33"


@pytest.mark.javascript
def test_the_code_names_the_sentence_and_the_head(script):
    maps = load_head_maps()
    widget = HeadExplorer(maps, sentence=0, layer=16, head=0)
    code = script.call("formatCode", widget.state())
    compile(code, "code", "exec")
    text = "".join(maps["sentences"][0]["tokens"])
    assert f'tokenizer.encode("{text}").ids' in code
    assert "ablate_heads(model, [(16, 0)])" in code


@pytest.mark.javascript
def test_invalid_states_are_replaced_by_valid_ones(script):
    empty = script.call("cleanState", {})
    assert (empty["layers"], empty["sentences"], empty["heads"]) == (0, [], [])
    odd = make_maps() | {
        "layer": "Infinity",
        "head": "NaN",
        "sentence": 9,
        "score": "__proto__",
        "measure": None,
        "query": -3,
    }
    odd["sentences"].insert(0, {"tokens": ["alone"]})
    odd["sentences"][1]["effect"] = ["NaN", 1e308]
    odd["heads"].append(None)
    made = script.call("cleanState", odd)
    assert (made["layer"], made["head"]) == (0, 0) or made["layer"] == 2
    assert (made["score"], made["measure"]) == ("induction", "weight")
    assert (made["sentence"], made["query"]) == (1, 0)
    # The sentence of one token is left out, with the maps that belong to it.
    assert [len(x["tokens"]) for x in made["sentences"]] == [4, 7]
    assert made["sentences"][0]["effect"][:2] == [0, 99999]
    for head in made["heads"]:
        lengths = [len(one["norms"]) for one in head["maps"]]
        assert lengths == [4, 7]
    assert made["heads"][-1]["maps"][0]["hundredths"][1] == [0, 0]
    zero = script.call("computeWeightedNorms", made["heads"][-1]["maps"][0])
    assert zero[1] == [0, 0]
