"""What the experiments measure, where the answer is known."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from attnbook import masks
from attnbook.data import grammar
from attnbook.data.spoken_digits import RATE, join_digits
from attnbook.diagnose.head_alarms import THRESHOLDS
from attnbook.diagnose.heads import mark_induction
from attnbook.models.devices import use_seed
from attnbook.models.listen_attend_spell import SECONDS
from attnbook.models.modern_decoder import DecoderConfig, ModernDecoder, RotaryAttention
from attnbook.models.recurrent import BahdanauDecoder
from attnbook.records import read_record
from attnbook.training.loop import make_batch
from workshop.experiments import attention_explanation as explanation
from workshop.experiments import (
    graphs,
    head_alarms,
    heads,
    mistakes,
    positions,
    smollm2,
    smollm2_heads,
    speech,
    trained_decoders,
)

RNG = torch.Generator().manual_seed(0)
V, C, T = 120, 16, 32
SPOKEN = join_digits([3, 1, 5], [0.3, 0.5, 0.4])
MIDDLES = [(begin + end) / 2 for begin, end in SPOKEN.intervals]


def build(attention=RotaryAttention):
    with use_seed(0):
        model = ModernDecoder(DecoderConfig(V, C, 4, 2, 10, 3), attention).eval()
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=0.4)
        return model


IDS = torch.randint(V, (T,), generator=RNG)


def test_no_link_crosses_a_cut():
    cuts = [(p, trained_decoders.find_cut(p)) for p in grammar.load().test[:200]]
    cuts = [(p, cut) for p, cut in cuts if cut]
    assert cuts
    for p, (t, s) in cuts:
        assert all((a >= t) == (b >= s) for a, b in p.possible)
    words, links = tuple("abcdefghijklmn"), frozenset((i, i) for i in range(14))
    # The longest second part that is allowed.
    in_order = grammar.Aligned(words, words, sure=links, possible=links)
    assert trained_decoders.find_cut(in_order) == (14 - trained_decoders.PART,) * 2


def test_only_the_right_decoder_computes_what_the_library_computes():
    task = mistakes.draw_task()
    made = make_batch(sorted(task.encode(task.splits.test[:9]), key=str))
    want = mistakes.build_model(task, BahdanauDecoder, 0)(*made[:3]).logits
    for name, decoder in mistakes.DECODERS.items():
        got = mistakes.build_model(task, decoder, 0)(*made[:3]).logits
        assert torch.allclose(got, want, atol=1e-6) == (name == "right"), name


@pytest.mark.parametrize(("off", "error"), [(0, 0), (1, 1)])
def test_a_model_that_copies_has_no_error(off, error):
    def copies(text):
        half = text.shape[1] // 2
        message = torch.zeros_like(text)
        message[:, half:] = text[:, :half]
        return F.one_hot(message, positions.SYMBOLS + 1).roll(off, dims=1)

    model = nn.Linear(1, 1)
    model.forward = copies
    assert positions.measure_copying_error(model, 64, count=16) == error


def test_the_greedy_order_removes_what_costs_least_first():
    layer = nn.Linear(8, 1, bias=False)
    with torch.no_grad():
        costs = torch.tensor([3.0, 1.0, 4.0, 2.0])
        layer.weight.copy_(costs.repeat_interleave(2)[None])

    def lost():
        return 20 - layer.weight.sum().item()

    found = heads.prune_greedily(layer, 4, lost, lambda: 2 * lost())
    assert [p["error"] for p in found["curve"]] == [0.0, 4.0, 12.0, 24.0, 40.0]
    assert lost() == 0


def test_the_librarys_thresholds_are_derived_from_the_recorded_heads():
    results = read_record("head_alarms")["results"]
    assert head_alarms.derive_thresholds(results["references"]) == THRESHOLDS


@pytest.mark.parametrize("fault", head_alarms.FAULTS)
def test_only_without_its_mask_a_decoder_leaks_and_a_fault_is_undone(fault):
    model, limits = build(), {"own": {"uniform": 0.9}}
    before = head_alarms.examine(model, IDS, limits)
    with head_alarms.FAULTS[fault](model):
        found = head_alarms.examine(model, IDS, limits)
    assert (found["leak"] > 1e-3) == (fault == "no causal mask")
    assert found["loss"] != before["loss"]
    assert head_alarms.examine(model, IDS, limits) == before


def test_pairs_differ_where_two_tokens_are_exchanged():
    clean, corrupted, answers = smollm2_heads.draw_pairs(
        0, V, 3, smollm2_heads.PATCH_COUNT
    )
    after = smollm2_heads.PLACES["after"]
    differ = (clean != corrupted).nonzero()[:, 1].unique()
    assert differ.tolist() == [x - 1 for x in after]
    for one, other, (b, c) in zip(clean, corrupted, answers, strict=True):
        for ids, answer in ((one, b), (other, c)):
            (marked,) = mark_induction(ids)[-1].nonzero().tolist()
            assert ids[marked] == answer and marked[0] in after


@torch.no_grad()
def test_a_window_gives_the_loss_of_the_model_with_its_mask():
    plain = ModernDecoder(DecoderConfig(V, C, 4, 2, 10, 3)).eval()
    plain.load_state_dict(build().state_dict())
    mask = masks.window(T, T, 5) | masks.sinks(T, T, 2)
    logits = plain(IDS[None], mask)[0, T // 2 : -1]
    selected = build(smollm2.SelectedAttention)
    found = smollm2.measure_selection(selected, [IDS], smollm2.keep_window(5, 2, T))
    wanted = float(F.cross_entropy(logits, IDS[T // 2 + 1 :]))
    assert found["losses"] == [pytest.approx(wanted, abs=1e-4)]
    assert found["keys"] == found["group_keys"] == 7


@pytest.mark.parametrize(
    ("select", "keys"),
    [
        (smollm2.keep_top(3), 3),
        (smollm2.keep_shared_top(3), 3),
        # The own block holds 2.5 keys up to the query, on average.
        (smollm2.keep_mean_blocks(2, 4), 4 + 2.5),
        (smollm2.keep_mean_blocks(2, 4, first=1), 4 + 2.5),
    ],
)
def test_a_selection_keeps_as_many_keys_as_it_says(select, keys):
    selected = build(smollm2.SelectedAttention)
    found = smollm2.measure_selection(selected, [IDS], select)
    assert found["keys"] == pytest.approx(keys)
    assert keys <= found["group_keys"] <= 2 * keys


def point_at(seconds, step, keys):
    """Return weights whose rows are 1 on the key at a time, and 0 elsewhere."""
    return F.one_hot((torch.tensor(seconds) / step).long(), keys).float()


def test_whispers_heads_are_scored_by_the_digit_at_their_peak():
    step = speech.POSITION_SECONDS
    positions, empty = round(len(SPOKEN.sound) / RATE / step), torch.empty(0)
    heard = speech.Heard(SPOKEN, empty, empty, positions)
    late = [MIDDLES[0], *MIDDLES[:2]]
    for times, inside, previous in ((MIDDLES, 1, 0), (late, 1 / 3, 1)):
        found = speech.score_maps(point_at(times, step, positions), heard)
        assert found["inside"] == pytest.approx(inside)
        assert found["previous"] == previous


def test_letters_are_scored_by_the_digit_whose_name_they_spell():
    states = -(-len(SPOKEN.sound) // round(SECONDS * RATE))
    times = [MIDDLES[0]] * 6 + [MIDDLES[1]] * 4 + [MIDDLES[2]] * 5
    found = speech.score_weights(point_at(times, SECONDS, states), SPOKEN)
    assert [found[x] for x in ("peak", "first", "mass")] == [1.0] * 3
    assert 0 < found["uniform"] < 1


def test_a_recorded_gradient_is_reproduced():
    record = read_record("path_length")
    stored = record["results"]["first"]["gru"][record["lengths"].index(32)][1]
    assert heads.measure_gradient_norm("gru", 32, 1) == pytest.approx(stored, rel=1e-3)


def test_a_graphs_weights_are_scored_and_shuffled_by_neighborhood():
    # Node 0 has the edges 0, 2 and 4; node 1 has 1 and 3; node 2 has none.
    target = torch.tensor([0, 1, 0, 1, 0])
    weights = torch.tensor([0.7, 0.9, 0.2, 0.1, 0.1])
    right = torch.tensor([False, False, True, True, True])
    found = graphs.measure_mass(weights, target, right, 3)
    wanted = torch.tensor([[0.3, 0.1, torch.nan], [2 / 3, 1 / 2, torch.nan]])
    torch.testing.assert_close(found, wanted, equal_nan=True)
    shuffled = graphs.shuffle_within_targets(weights[None], target, RNG)[0]
    for node in (0, 1):
        mine = target == node
        assert sorted(shuffled[mine].tolist()) == sorted(weights[mine].tolist())


def test_the_question_names_the_word_that_has_the_answer():
    batch = explanation.draw_question_task(50, 7, RNG)
    assert batch.words.shape == (50, 7)
    for words, question, answer, evidence in zip(
        *(x.tolist() for x in batch), strict=True
    ):
        names = [word // explanation.CLASSES for word in words]
        assert len({*names}) == 7
        assert names[evidence] == question
        assert words[evidence] % explanation.CLASSES == answer
    assert {*batch.answer.tolist()} == {*range(explanation.CLASSES)}
    assert {*batch.evidence.tolist()} == {*range(7)}


def test_one_word_of_the_keyword_task_has_a_class():
    batch = explanation.draw_keyword_task(50, 7, RNG)
    for words, question, answer, evidence in zip(
        *(x.tolist() for x in batch), strict=True
    ):
        assert question == explanation.FILLERS
        assert words.pop(evidence) == explanation.CLASSES * explanation.FILLERS + answer
        assert all(
            w % explanation.CLASSES == 0
            and w < explanation.CLASSES * explanation.FILLERS
            for w in words
        )
    assert batch.words.max() < explanation.WORDS
