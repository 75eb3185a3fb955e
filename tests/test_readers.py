"""Small language models of the help texts: their text, training, records."""

import math

import pytest
import torch

from attnbook.evidence import RECORDS, language, norms, read_record, steady
from attnbook.evidence.longer_texts import characters
from attnbook.evidence.readers import (
    STRANGE,
    Course,
    fit,
    held_out,
    loss_by_guess,
    numbers,
    windows,
    written,
)
from attnbook.language_model import sample


def test_text_and_numbers_are_the_same_thing():
    text = "To insert a page break,\nchoose Insert."
    assert written(numbers(text)[0]) == text
    assert written(numbers("a\N{SNOWMAN}b")[0]) == f"a{STRANGE}b"
    assert int(numbers("\N{SNOWMAN}")) == characters("train")[1] - 1


def test_what_is_wanted_comes_one_place_later():
    read, wanted = windows("valid", torch.tensor([0, 5, 100]), 11)
    assert torch.equal(read[:, 1:], wanted[:, :-1])
    text = characters("valid")[0]
    assert torch.equal(wanted[2], text[101:112])


class Even(torch.nn.Module):
    """Guesses every symbol alike."""

    def forward(self, ids):
        return torch.zeros(*ids.shape, characters("train")[1])


def test_a_guess_of_everything_alike_costs_the_logarithm():
    even = math.log(characters("train")[1])
    assert held_out(Even(), "valid", 64, 16) == pytest.approx(even)
    guesses = loss_by_guess("test")
    assert guesses["even"] == pytest.approx(even)
    assert guesses["frequency"] < even


def test_training_is_the_same_from_the_same_seed():
    curves = []
    for _ in range(2):
        losses = []
        model = steady.steady("normed", 1)
        course = Course(3, 3e-3, size=4, window=16, clip=1.0)
        fit(model, course, 1, lambda step, loss, to=losses: to.append(loss))
        curves.append(losses)
    assert curves[0] == curves[1]
    assert len(curves[0]) == 3


def test_a_rate_that_warms_up_begins_at_zero():
    model = language.made_of(0, steady.SIZE)
    before = [p.clone() for p in model.parameters()]
    course = Course(1, 1.0, warmup=0.5, size=2, window=8)
    fit(model, course, 0, lambda step, loss: None)
    after = model.parameters()
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_ways_of_scoring_start_from_the_same_weights():
    states = [steady.steady(way, 0).state_dict() for way in steady.WAYS]
    for name, weight in states[0].items():
        assert all(torch.equal(weight, other[name]) for other in states)


def test_the_largest_score_and_entropy_are_of_visible_keys():
    found = steady.looked(steady.steady("capped", 0))
    assert all(x <= steady.WAYS["capped"]["cap"] for x in found["largest"])
    widest = sum(math.log(t) for t in range(1, 65)) / 64
    assert all(0 < x < widest for x in found["entropy"])


def test_slopes_are_one_a_block():
    model = language.made_of(0, norms.size_of("post", 3))
    read, _ = windows("valid", torch.tensor([0]), 8)
    model(read).square().mean().backward()
    assert len(norms.slopes(model)) == 3


def test_the_shipped_model_has_the_recorded_loss():
    record = read_record(language.NAME)
    model = language.shipped()
    loss = held_out(model, "test", record["window"])
    assert loss == pytest.approx(record["results"]["test_loss"], abs=1e-3)
    assert loss < 0.6 * record["results"]["guesses"]["frequency"]
    size = (RECORDS / f"{language.NAME}.safetensors").stat().st_size
    assert size < 400_000


def test_a_sample_is_the_same_from_the_same_seed():
    model, begin = language.shipped(), numbers("\nTo ")
    texts = {
        written(
            sample(
                model,
                begin,
                20,
                window=128,
                rng=torch.Generator().manual_seed(4),
            )[0]
        )
        for _ in range(2)
    }
    assert len(texts) == 1
    assert texts.pop().startswith("\nTo ")


def test_records_have_a_row_for_every_training():
    rows = read_record("norms_training")["results"]["rows"]
    kinds = {(r["around"], r["blocks"], r["warmup"], r["seed"]) for r in rows}
    assert len(kinds) == len(rows) == 24
    assert all(len(r["first_gradients"]) == r["blocks"] for r in rows)
    rows = read_record("steady_training")["results"]["rows"]
    kinds = {(r["way"], r["rate"], r["seed"]) for r in rows}
    assert len(kinds) == len(rows) == 27


def test_scores_run_away_at_the_high_rate_only_where_nothing_holds_them():
    rows = read_record("steady_training")["results"]["rows"]
    for row in rows:
        if row["rate"] == 0.1:
            last = max(row["largest"][-1])
            assert (last > 1000) == (row["way"] == "plain")
            assert (min(row["entropy"][-1]) < 0.1) == (row["way"] == "plain")


def test_deep_with_the_norm_after_is_what_gets_stuck():
    guess = loss_by_guess("valid")["frequency"]
    rows = read_record("norms_training")["results"]["rows"]
    stuck = {
        (r["around"], r["blocks"], r["warmup"], r["seed"])
        for r in rows
        if r["valid_loss"] > guess - 0.05
    }
    assert stuck
    assert all(kind[:2] == ("post", 8) for kind in stuck)
    colder = [kind for kind in stuck if not kind[2]]
    assert len(colder) > len(stuck) - len(colder)
