"""Batches, scores on weights made by hand, and the records of spoken digits."""

from random import Random
from types import SimpleNamespace

import pytest
import torch

from attnbook.data.spoken_digits import RATE, join_digits
from attnbook.data.vocabulary import END, PAD, START
from attnbook.models.listen_attend_spell import SECONDS, compute_frames
from attnbook.records import read_record
from tiny_whisper import CONFIG, build
from workshop.experiments import listen_attend_spell as study
from workshop.experiments import whisper_varied_digits as whisper_study
from workshop.experiments.listen_attend_spell import (
    MODELS,
    VOCABULARY,
    Utterance,
    draw_batches,
    draw_utterances,
    join_utterances,
    make_weights_equal,
    number_letters,
    score_weights,
)
from workshop.experiments.listen_attend_spell_pauses import score_word_order

SPOKEN = join_digits([3, 1], [0.3, 0.5])
STATES = -(-len(SPOKEN.sound) // round(SECONDS * RATE))
SYMBOLS = len("three one") + 1  # and the end


def make_utterance(spoken=SPOKEN):
    symbols = VOCABULARY.encode(" ".join(spoken.words))
    return Utterance(spoken, compute_frames(spoken.sound, RATE), symbols)


def make_model(name="attention"):
    torch.manual_seed(0)
    return MODELS[name](40, len(VOCABULARY), hidden=4, decoder=6).eval()


def point_at(seconds):
    """Return weights with all of a row on the state at a time."""
    states = (torch.tensor(seconds) / SECONDS).long()
    return torch.nn.functional.one_hot(states, STATES).float()


MIDDLES = [(begin + end) / 2 for begin, end in SPOKEN.intervals]


def test_a_batch_holds_frames_and_letters_shifted_by_one():
    short = make_utterance(join_digits([6], [0.1]))
    batch = join_utterances([make_utterance(), short])
    frames = len(make_utterance().frames)
    assert batch.source.shape == (2, frames, 40)
    assert batch.lengths.tolist() == [frames, len(short.frames)]
    assert VOCABULARY.decode(batch.target[0]) == tuple("three one")
    assert batch.target[1, 3:5].tolist() == [END, PAD]
    assert (batch.previous[:, 0] == START).all()
    assert torch.equal(batch.previous[0, 1:], batch.target[0, :-1])


def test_training_and_test_sequences_differ_and_can_be_drawn_again():
    one, same, other = (draw_utterances(x, 2, (1, 2)) for x in (0, 0, 10**6))
    assert torch.equal(one[1].frames, same[1].frames)
    assert one[0].frames.shape != other[0].frames.shape
    assert all(1 <= len(x.spoken.digits) <= 2 for x in one + other)


def test_an_epoch_draws_each_sequence_once():
    drawn = draw_utterances(0, 20, (1, 1))
    batches = list(draw_batches(drawn, 4, Random(0)))
    assert [len(x.source) for x in batches] in ([4, 16] * 2, [16, 4] * 2) or {
        len(x.source) for x in batches
    } == {4, 16}
    sums = sorted(round(float(row.sum()), 1) for x in batches[:2] for row in x.source)
    assert sums == sorted(round(float(x.frames.sum()), 1) for x in drawn)


def test_the_first_steps_have_short_sequences():
    drawn = draw_utterances(0, 40, (1, 4))
    lessons = [*study.draw_lessons(drawn, 10, 0)]
    spaces = VOCABULARY.encode(" ")[0]
    most = [int((x.target == spaces).sum(1).max()) + 1 for x in lessons]
    assert len(most) == 10
    assert max(most[:3]) <= 2
    assert max(most[3:]) == 4


def test_letters_are_numbered_with_their_words():
    found = number_letters(["one", "six"])
    assert found == [(0, 0), (1, 0), (2, 0), (4, 1), (5, 1), (6, 1)]


def test_letters_on_their_digits_have_the_best_scores():
    times = [MIDDLES[0]] * 6 + [MIDDLES[1]] * 4
    found = score_weights(point_at(times), SPOKEN)
    assert [found[x] for x in ("peak", "nearest", "first", "mass")] == [1.0] * 4
    inside = sum(end - begin for begin, end in SPOKEN.intervals)
    seconds = len(SPOKEN.sound) / RATE
    assert 0 < found["uniform"] < inside / seconds


def test_letters_before_their_digits_are_near_but_not_inside():
    starts = [begin - 0.1 for begin, _ in SPOKEN.intervals]
    times = [starts[0]] * 6 + [starts[1]] * 4
    found = score_weights(point_at(times), SPOKEN)
    assert (found["peak"], found["mass"], found["nearest"]) == (0, 0, 1)


def test_only_first_letters_count_for_their_score():
    times = [MIDDLES[1]] * 10
    times[0], times[6] = MIDDLES
    found = score_weights(point_at(times), SPOKEN)
    assert found["first"] == 1.0
    assert found["peak"] == pytest.approx(4 / 8)


def test_order_alone_moves_evenly_through_the_sound():
    seconds = len(SPOKEN.sound) / RATE
    even = (torch.arange(SYMBOLS) + 0.5) / SYMBOLS * seconds
    found = score_weights(point_at(even.tolist()), SPOKEN)
    assert found["peak"] == pytest.approx(found["order_alone"], abs=0.13)
    other = score_weights(torch.rand(SYMBOLS, STATES), SPOKEN)
    assert other["order_alone"] == found["order_alone"]


def test_the_best_word_order_finds_digits_that_are_evenly_spaced():
    even = make_utterance(join_digits([6, 6, 6], [0.1, 0.1, 0.1]))
    assert score_word_order([even]) == 1.0
    late = make_utterance(join_digits([6, 6, 6], [3.0, 0.1, 0.1]))
    assert score_word_order([late]) < 0.7


def test_one_pause_can_be_longer():
    usual, longer = (
        draw_utterances(5, 1, (3, 3), more)[0].spoken for more in (0.0, 2.0)
    )
    assert usual.digits == longer.digits
    assert len(longer.sound) / RATE > 2.15


def test_equal_weights_score_the_chance_level():
    model = make_model()
    make_weights_equal(model)
    found = study.score_attention(model, [make_utterance()])
    assert found["mass"] == pytest.approx(found["uniform"])


def test_attention_has_a_row_for_each_symbol_and_for_the_end():
    [weights] = study.attend(make_model(), [make_utterance()])
    assert weights.shape == (SYMBOLS, STATES)
    shown = study.show_example(make_model(), make_utterance())
    assert shown["words"] == ["three", "one"]
    assert len(shown["thousandths"]) == SYMBOLS


@pytest.mark.long
@pytest.mark.parametrize("name", MODELS)
def test_a_short_training_lowers_the_loss(name):
    model, drawn = make_model(name), draw_utterances(0, 16, (1, 2))
    before = study.train(model, drawn, 0, 1)
    assert study.train(model, drawn, 0, 8) < before
    assert study.measure_word_errors(model, drawn[:2]) > 0


def test_whispers_words_are_compared_with_the_digits(monkeypatch):
    config = CONFIG.__class__(**{**vars(CONFIG), "positions": 1500})
    monkeypatch.setattr(whisper_study, "START", (1, 2))
    monkeypatch.setattr(whisper_study, "END", 9)
    monkeypatch.setattr(whisper_study, "LIMIT", 3)
    tokenizer = SimpleNamespace(decode=lambda _: " Three, 1")
    row = whisper_study.measure_row(build(config), tokenizer, [SPOKEN, SPOKEN])
    assert row["word_errors"] == 0
    assert row["digits"] == [[3, 1], [3, 1]]
    other = join_digits([3, 2], [0.1, 0.1])
    row = whisper_study.measure_row(build(config), tokenizer, [other])
    assert row["word_errors"] == 0.5


def test_the_record_has_both_models_for_every_seed():
    found = read_record("listen_attend_spell")["results"]
    rows = {(row["model"], row["seed"]): row for row in found["rows"]}
    assert {*rows} == {(x, seed) for x in MODELS for seed in study.SEEDS}
    assert found["counts"] == list(study.COUNTS)
    for row in rows.values():
        assert len(row["word_errors"]) == len(study.COUNTS)
    scored = {*rows["attention", 0]} - {*rows["one context vector", 0]}
    assert {"scores", "untrained", "equal_weights_word_errors"} == scored


def test_the_recorded_example_is_a_test_sequence():
    shown = read_record("listen_attend_spell")["results"]["example"]
    drawn = draw_utterances(study.TEST_SEED + 4, 1, (4, 4))[0].spoken
    assert shown["words"] == list(drawn.words)
    assert shown["seconds"] == pytest.approx(len(drawn.sound) / RATE, abs=1e-4)
    weights = torch.tensor(shown["thousandths"])
    assert weights.shape[0] == len(" ".join(drawn.words)) + 1
    assert (weights.sum(1) - 1000).abs().max() <= 20


def test_the_same_models_were_tested_after_a_longer_pause():
    found = read_record("listen_attend_spell_pauses")["results"]
    first = read_record("listen_attend_spell")["results"]["rows"]
    for row in found["rows"]:
        if row["test"] == "usual":
            [same] = [x for x in first if "scores" in x and x["seed"] == row["seed"]]
            assert row["first"] == pytest.approx(same["scores"]["4"]["first"])
    assert {*found["word_order"]} == {"usual", "longer"}


def test_whisper_was_recorded_on_the_same_sounds():
    found = read_record("whisper_varied_digits")["results"]
    assert found["tested"] == study.TESTED
    for row in found["rows"]:
        n = row["count"]
        drawn = draw_utterances(study.TEST_SEED + n, 2, (n, n))
        digits = [list(one.spoken.digits) for one in drawn]
        assert row["digits"][:2] == digits
