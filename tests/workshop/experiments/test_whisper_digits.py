"""Scores on maps made by hand, a tiny random model, and the record.

tests/oracles/against_recorded.py compares the record with the real weights.
"""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from attnbook.data.spoken_digits import RATE, join_digits
from attnbook.models.head_edits import ablate_heads
from attnbook.models.whisper_tiny import ALIGNMENT_HEADS, END, SHA256
from attnbook.records import read_record
from tiny_whisper import CONFIG, build
from workshop.experiments import spoken_attention, whisper_digits
from workshop.experiments.spoken_attention import (
    SECONDS,
    Heard,
    compare_maps,
    correlate_ranks,
    roll_out_decoder,
    score_maps,
    score_order_alone,
    score_steady_pace,
)
from workshop.experiments.whisper_digits import (
    PREDICTORS,
    SEEDS,
    choose_sets,
    compute_loss,
    correlate_predictors,
    cross_heads,
    find_digit_tokens,
    measure_everything,
    read_words,
)

SPOKEN = join_digits([3, 1, 5], [0.3, 0.5, 0.4])
POSITIONS = round(len(SPOKEN.sound) / RATE / SECONDS)
HEARD = Heard(SPOKEN, torch.empty(0), torch.empty(0), POSITIONS, torch.empty(0))
L, H, TOKENS = 4, 6, 50370  # as many blocks and heads as the listed ones need


def point_at(seconds):
    """Return weights whose rows are 1 on the key at a time, and 0 elsewhere."""
    keys = (torch.tensor(seconds) / SECONDS).long()
    return torch.nn.functional.one_hot(keys, POSITIONS).float()


MIDDLES = [(begin + end) / 2 for begin, end in SPOKEN.intervals]


def test_a_head_on_each_digit_has_the_best_scores():
    found = score_maps(point_at(MIDDLES), HEARD)
    assert {name: float(x) for name, x in found.items()} == {
        "inside": 1.0,
        "nearest": 1.0,
        "previous": 0.0,
        "next": 0.0,
        "forward": 1.0,
        "mass": 1.0,
    }


def test_a_head_one_digit_late_or_early_is_told_apart():
    late = score_maps(point_at([MIDDLES[0], *MIDDLES[:2]]), HEARD)
    assert late["previous"] == 1
    assert late["inside"] == pytest.approx(1 / 3)
    early = score_maps(point_at([*MIDDLES[1:], MIDDLES[0]]), HEARD)
    assert early["next"] == 1
    assert early["forward"] == 0.5
    assert early["inside"] == early["previous"] == 0


def test_a_peak_in_the_pause_counts_for_the_nearest_digit_only():
    times = [begin - 0.05 for begin, _ in SPOKEN.intervals]
    found = score_maps(point_at(times), HEARD)
    assert found["inside"] == found["mass"] == 0
    assert found["nearest"] == 1


def test_order_alone_is_scored_on_the_other_sequences():
    one, other = torch.tensor([[0.0, 1.0]]), torch.tensor([[2.0, 3.0]])
    times = [torch.tensor([0.5]), torch.tensor([0.7])]
    assert score_order_alone(times, [one, other]) == 0.5
    assert score_order_alone(times, [one, one]) == 1.0


@pytest.mark.parametrize(
    ("pauses", "share"), [([0.3, 0.3, 0.3], 1.0), ([0.2, 0.2, 3.0], 0.0)]
)
def test_a_steady_pointer_finds_digits_that_are_evenly_spoken(pauses, share):
    even = join_digits([1, 1, 1], pauses)
    positions = round(len(even.sound) / RATE / SECONDS)
    heard = replace(HEARD, spoken=even, positions=positions)
    assert score_steady_pace([heard]) == pytest.approx(share)


def test_what_is_said_without_the_truth_is_that_of_known_maps():
    maps = torch.zeros(1, 3, 2, 4)
    maps[0, 0, :, 1] = maps[0, 1, :, 1] = 1
    maps[0, 2] = 0.25
    found = compare_maps(maps, maps[0, 0])
    torch.testing.assert_close(found["entropy"], torch.tensor([[0.0, 0.0, 1.386294]]))
    # A uniform row has the cosine 1/2 with a row of one key of four.
    torch.testing.assert_close(found["similarity"], torch.tensor([[0.75, 0.75, 0.5]]))
    torch.testing.assert_close(found["rollout"], torch.tensor([[1.0, 1.0, 0.5]]))


def test_the_rollout_of_one_block_is_its_cross_attention():
    rng = torch.Generator().manual_seed(0)
    own = torch.rand(1, 2, 3, 3, generator=rng).tril().softmax(-1)
    cross = torch.rand(1, 2, 3, 5, generator=rng).softmax(-1)
    encoder = torch.rand(5, 5, generator=rng).softmax(-1)
    found = roll_out_decoder(own, cross, encoder)
    torch.testing.assert_close(found, cross[0].mean(0) @ encoder)


def test_the_rollout_of_two_blocks_passes_through_earlier_tokens():
    """The second block attends to nothing new, but to the first token."""
    own = torch.tensor([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [1.0, 0.0]]])
    cross = torch.tensor([[1.0, 0.0], [0.0, 1.0]]).expand(2, 2, 2)
    found = roll_out_decoder(own[:, None], cross[:, None], torch.eye(2))
    # Token 1: a half of block 1, of which a half is token 0's, and block 2.
    torch.testing.assert_close(found, torch.tensor([[1.0, 0.0], [1 / 6, 5 / 6]]))


@pytest.mark.parametrize(
    ("x", "y", "wanted"),
    [
        ([1.0, 2.0, 9.0], [0.1, 0.2, 0.21], 1.0),
        ([1.0, 2.0, 9.0], [5.0, 4.0, -8.0], -1.0),
        ([1.0, 1.0, 2.0, 3.0], [1.0, 2.0, 3.0, 4.0], 0.948683),
    ],
)
def test_ranks_are_correlated_with_shared_ranks(x, y, wanted):
    found = correlate_ranks(torch.tensor(x), torch.tensor(y))
    assert found == pytest.approx(wanted, abs=1e-5)


def test_digits_in_words_and_figures_are_the_same():
    assert read_words(" 1, 2-three!") == read_words("12 Three.") == [*"123"]
    assert read_words("Thank you. 7") == ["thank", "you", "7"]


class FakeTokenizer:
    """Digits are the tokens 101 to 109."""

    def encode(self, text, add_special_tokens):
        assert not add_special_tokens
        return SimpleNamespace(ids=[100 + int(text)])

    def decode(self, ids):
        return " ".join(str(i - 100) for i in ids)


@pytest.fixture(scope="module")
def tiny():
    sizes = replace(CONFIG, heads=H, blocks=L, positions=650, tokens=40, symbols=TOKENS)
    return build(sizes)


def test_the_ablated_heads_are_those_of_cross_attention(tiny):
    tokens = find_digit_tokens(FakeTokenizer())
    assert tokens == [*range(101, 110)]
    one, other = spoken_attention.draw_heard(tiny, tokens, 0, 2)
    swapped = replace(one, memory=other.memory)
    every = [(i, h) for i in range(L) for h in range(H)]
    losses = [compute_loss(tiny, [x]) for x in (one, swapped)]
    assert losses[0] != losses[1]
    with ablate_heads(tiny.decoder, cross_heads(every)):
        losses = [compute_loss(tiny, [x]) for x in (one, swapped)]
    assert losses[0] == losses[1]


def test_sets_of_heads_are_the_best_the_worst_and_drawn_ones():
    inside = torch.arange(L * H).reshape(L, H) / 100
    sets = choose_sets({"inside": inside, "previous": -inside})
    assert sets["none"] == ()
    assert sets["listed heads"] == ALIGNMENT_HEADS
    assert sets["8 most often on the digit"] == [(2, 4), (2, 5)] + [
        (3, h) for h in range(H)
    ]
    assert sets["8 least often on the digit"][0] == (0, 0)
    assert sets["2 most often on the digit"] == [(3, 4), (3, 5)]
    assert sets["2 most often on the previous digit"] == [(0, 0), (0, 1)]
    drawn = [heads for name, heads in sets.items() if "unlisted" in name]
    assert len(drawn) == len({tuple(heads) for heads in drawn}) == 3
    for heads in drawn:
        assert len({*heads}) == len(ALIGNMENT_HEADS)
        assert not {*heads} & {*ALIGNMENT_HEADS}
    pairs = [x for name, x in sets.items() if name.startswith("2 heads")]
    assert len({tuple(x) for x in pairs}) == 3
    assert len(sets["all heads"]) == L * H


@pytest.mark.long
def test_a_tiny_model_gives_a_complete_record(tiny, monkeypatch):
    monkeypatch.setattr(whisper_digits, "SEEDS", (0,))
    monkeypatch.setattr(whisper_digits, "LIMIT", 2)
    monkeypatch.setattr(
        whisper_digits,
        "draw_heard",
        lambda model, tokens, seed: spoken_attention.draw_heard(model, tokens, seed, 2),
    )
    check_results(measure_everything(tiny, FakeTokenizer()), 1)


def check_results(results, seeds):
    heads = results["heads"]
    assert [(x["layer"], x["head"]) for x in heads] == [
        (i, h) for i in range(L) for h in range(H)
    ]
    listed = [(x["layer"], x["head"]) for x in heads if x["listed"]]
    assert sorted(listed) == sorted(ALIGNMENT_HEADS)
    shares = ("inside", "nearest", "previous", "next", "forward", "mass")
    for row in heads:
        for name in (*shares, "order_alone", "on_sound"):
            assert len(row[name]) == seeds
            assert all(0 <= x <= 1 for x in row[name])
        pairs = zip(row["inside"], row["nearest"], strict=True)
        assert all(inside <= nearest for inside, nearest in pairs)
    assert {*results["correlations"]} == {*PREDICTORS}
    for values in results["correlations"].values():
        assert len(values) == seeds
        assert all(-1 <= x <= 1 for x in values)
    names = [row["name"] for row in results["sets"]]
    assert names[:2] == ["none", "listed heads"]
    assert names[-1] == "all heads"
    example = results["example"]
    assert len(example["intervals"]) == len(example["digits"])
    for one in example["maps"]:
        assert len(one["thousandths"]) == len(example["digits"])
        for row in one["thousandths"]:
            # Each number was rounded by at most half.
            assert abs(sum(row) - 1000) <= len(row) / 2


def test_the_record_is_complete_and_its_correlations_are_those_of_its_rows():
    record = read_record("whisper_digits")
    assert record["sha256"] == SHA256
    results = record["results"]
    check_results(results, len(SEEDS))
    again = correlate_predictors(results["heads"])
    for name, values in results["correlations"].items():
        assert again[name] == pytest.approx(values, abs=1e-5)
    assert END not in results["example"]["digits"]
