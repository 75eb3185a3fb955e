"""What the head explorer's record is made of, on a small random model."""

import pytest
import torch
import torch.nn.functional as F

from attnbook.data import libreoffice
from attnbook.models.modern_decoder import DecoderConfig, ModernDecoder
from attnbook.models.smollm2 import SHA256
from attnbook.records import read_record
from workshop.experiments import smollm2_head_explorer as explorer
from workshop.experiments.smollm2_map import choose_heads

CONFIG = DecoderConfig(symbols=23, width=24, heads=6, groups=3, hidden=10, blocks=2)
TEXTS = [torch.tensor([3, 1, 4, 1, 5, 9]), torch.tensor([2, 7, 1])]


@pytest.fixture
def model():
    torch.manual_seed(0)
    made = ModernDecoder(CONFIG).eval()
    for block in made.blocks:  # else all weights are nearly equal
        torch.nn.init.normal_(block.attention.query.weight)
    return made


def test_words_are_drawn_once_and_repeated_in_order():
    text = "Some words of a Text, some of them twice: words, them, twice"
    found = explorer.draw_words(text, lambda w: w != "twice", count=2, seed=1)
    words = found.split()
    assert words[:2] == words[2:]
    assert {*words} <= {"words", "them", "some"}
    assert len({*words}) == 2
    with pytest.raises(ValueError, match="9 words are to be drawn from 4"):
        explorer.draw_words(text, lambda w: True, count=9)


def test_weights_and_norms_are_those_of_the_layer(model):
    ids = TEXTS[0]
    weights, norms = explorer.observe_heads(model, ids)
    assert weights.shape == (2, 6, 6, 6)
    sums = weights.sum(dim=-1)
    torch.testing.assert_close(sums, torch.ones_like(sums))
    assert not weights.triu(1).any()
    # In the first layer: the output of a head is the sum of what is weighted.
    block = model.blocks[0]
    x = block.norms[0](model.embed(ids[None]))
    value = block.attention.project(x, x)[2]
    for head in range(6):
        moved = torch.zeros(6, 6, 4)
        moved[head] = value[0, head // 2]
        merged = moved.transpose(0, 1).reshape(6, 24)
        wanted = block.attention.output(merged).norm(dim=-1)
        torch.testing.assert_close(norms[0, head], wanted)


def test_losses_do_not_depend_on_the_other_texts(model):
    together = explorer.compute_token_losses(model, TEXTS)
    for ids, losses in zip(TEXTS, together, strict=True):
        logits = model(ids[None])[0, :-1]
        wanted = F.cross_entropy(logits, ids[1:], reduction="none")
        torch.testing.assert_close(losses, wanted)


def test_effects_are_the_change_of_the_loss_without_a_head(model):
    losses, effects = explorer.measure_effects(model, TEXTS, 6)
    assert [x.shape for x in effects] == [(2, 6, 5), (2, 6, 2)]
    layer, head = 1, 4
    attention = model.blocks[layer].attention
    with torch.no_grad():
        columns = attention.output.weight.unflatten(1, (6, 4))
        columns[:, head] = 0.0
    without = explorer.compute_token_losses(model, TEXTS)
    for change, before, after in zip(effects, losses, without, strict=True):
        torch.testing.assert_close(
            change[layer, head], after - before, atol=1e-5, rtol=1e-4
        )


def test_several_heads_of_a_kind_are_chosen_and_none_twice():
    first = torch.tensor([[0.9, 0.8, 0.1], [0.2, 0.3, 0.7]])
    kinds = {"a": first, "b": first}
    chosen = choose_heads(kinds, {"a": 2})
    places = [(x["layer"], x["head"], x["kind"]) for x in chosen]
    assert places == [(0, 0, "a"), (0, 1, "a"), (1, 2, "b")]


def test_an_ordinary_head_has_the_middle_rank_in_every_score():
    up = torch.tensor([[0.0, 1.0, 2.0, 3.0, 4.0]])
    found = explorer.find_ordinary([up, -up])
    assert int(found.argmax()) == 2
    mixed = torch.tensor([[1.0, 0.0, 4.0, 2.0, 3.0]])
    assert int(explorer.find_ordinary([up, mixed]).argmax()) == 3


def test_weights_are_recorded_in_hundredths_of_the_lower_triangle():
    made = explorer.describe_map(
        torch.tensor([[1.0, 0.0], [0.256, 0.744]]),
        torch.tensor([12.34, 0.0567]),
        torch.tensor([-0.126]),
    )
    assert made == {
        "hundredths": [[100], [26, 74]],
        "norms": [12.0, 0.057],
        "effects": [-13],
    }


def read():
    record = read_record("smollm2_head_explorer")
    assert record["sha256"] == SHA256
    assert record["cpu_s"] <= 240
    return record["results"]


def test_the_record_has_four_sentences_and_all_heads():
    results = read()
    texts = [one["text"] for one in results["sentences"]]
    assert texts[0] == explorer.NAME
    assert texts[2:] == [explorer.ORDINARY, explorer.HELP]
    words = texts[1].split()
    assert words[:10] == words[10:] and len({*words}) == 10
    for one in results["sentences"]:
        assert "".join(one["tokens"]) == one["text"]
        assert len(one["tokens"]) <= 24
        for name in ("first", "previous", "induction", "effect"):
            assert len(one[name]) == 270
    lines = [pair.source[0] for pair in libreoffice.load_text().test]
    assert explorer.HELP in lines


def test_an_induction_head_matters_for_the_repeated_words():
    """Of the recorded sentence alone; section 1 has many more."""
    results = read()
    one = results["sentences"][1]
    best = max(range(270), key=lambda i: one["induction"][i])
    assert one["induction"][best] > 80 > 10 * one["chance"]["induction"]
    (head,) = [x for x in results["heads"] if x["layer"] * 9 + x["head"] == best]
    effects = head["maps"][1]["effects"]
    # Tokens 11 to 19 repeat what followed the same token before.
    assert sum(effects[10:]) / 9 > 100 > 10 * abs(sum(effects[:10]) / 10)


def test_equal_maps_do_not_mean_equal_effects():
    """Heads 16.0 and 11.1 both attend to the previous token."""
    one = read()["sentences"][1]
    for index in (16 * 9, 11 * 9 + 1):
        assert one["previous"][index] >= 90
    assert one["effect"][16 * 9] > 500 > 0 > one["effect"][11 * 9 + 1]
