"""What the experiments measure, where the answer is known."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from attnbook import masks
from attnbook.attention.scaled_dot_product import attend
from attnbook.data import grammar
from attnbook.data.spoken_digits import RATE, join_digits
from attnbook.diagnose.head_alarms import THRESHOLDS
from attnbook.diagnose.heads import mark_induction
from attnbook.models.bahdanau import BahdanauDecoder
from attnbook.models.devices import use_seed
from attnbook.models.listen_attend_spell import SECONDS
from attnbook.models.modern_block import RotaryAttention
from attnbook.models.modern_decoder import DecoderConfig, ModernDecoder
from attnbook.models.sequence_layers import SEQUENCE_LAYERS
from attnbook.records import read_record
from attnbook.training.loop import IGNORED_TARGET, make_batch
from workshop.experiments import (
    alignment,
    efficient,
    head_alarms,
    heads,
    length_costs,
    listen_attend_spell,
    mistakes,
    positions,
    self_attention,
    smollm2,
    smollm2_circuits,
    smollm2_heads,
    smollm2_keys,
    whisper,
)

RNG = torch.Generator().manual_seed(0)
V, C, T = 120, 16, 32
SPOKEN = join_digits([3, 1, 5], [0.3, 0.5, 0.4])


def build(attention=RotaryAttention):
    with use_seed(0):
        model = ModernDecoder(DecoderConfig(V, C, 4, 2, 10, 3), attention).eval()
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=0.4)
        return model


IDS = torch.randint(V, (T,), generator=RNG)


def test_no_link_crosses_a_cut():
    cuts = [(p, alignment.find_cut(p)) for p in grammar.load().test[:200]]
    cuts = [(p, cut) for p, cut in cuts if cut]
    assert cuts
    for p, (t, s) in cuts:
        assert all((a >= t) == (b >= s) for a, b in p.possible)


def test_only_the_right_decoder_computes_what_the_library_computes():
    task = mistakes.draw_task()
    made = make_batch(sorted(task.encode(task.splits.test[:9]), key=str))
    want = mistakes.build_model(task, BahdanauDecoder, 0)(*made[:3]).logits
    for name, decoder in mistakes.DECODERS.items():
        got = mistakes.build_model(task, decoder, 0)(*made[:3]).logits
        assert torch.allclose(got, want, atol=1e-6) == (name == "right"), name


def test_each_query_wants_the_value_of_its_key():
    ids, wanted = efficient.draw_pairs(3, 5, RNG)
    assert (wanted[:, :10] == IGNORED_TARGET).all()
    for row, targets in zip(ids.tolist(), wanted.tolist(), strict=True):
        stored = dict(zip(row[:10:2], row[1:10:2], strict=True))
        assert len(stored) == 5
        assert targets[10:] == [stored[key] for key in row[10:]]


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
    assert found["alone"] == [12.0, 4.0, 16.0, 8.0]
    gone = [p["gone"] for p in found["curve"]]
    assert gone[:4] == [[], [1], [1, 3], [0, 1, 3]]
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


@torch.no_grad()
def test_losses_are_those_of_the_second_copy():
    model = build()
    ids = torch.stack([smollm2.draw_repeated(seed, 5, V) for seed in range(2)])
    logits = model(ids)[:, 6:-1]
    wanted = F.cross_entropy(logits.mT, ids[:, 7:], reduction="none").mean(1)
    for layer, x in enumerate(smollm2.list_block_inputs(model, ids)):
        loss, _ = smollm2.measure_copying(model, ids, x, layer)
        torch.testing.assert_close(loss, wanted)


def test_pairs_differ_where_two_tokens_are_exchanged():
    pairs = smollm2_heads.draw_pairs(0, V, 3, smollm2_heads.PATCH_COUNT)
    places = smollm2_heads.list_places()
    differ = (pairs.clean != pairs.corrupted).nonzero()[:, 1].unique()
    assert differ.tolist() == places["exchanged"]
    for clean, corrupted, (b, c) in zip(*pairs, strict=True):
        for ids, answer in ((clean, b), (corrupted, c)):
            (marked,) = mark_induction(ids)[-1].nonzero().tolist()
            assert ids[marked] == answer and marked[0] in places["after"]


@torch.no_grad()
def test_scores_at_distances_are_those_of_the_layer():
    x, block = torch.randn(1, 9, C, generator=RNG), build().blocks[1]
    normed = block.norms[0](x)
    query, key, _ = block.attention.project(normed, normed)
    wanted = block.attention.scores(query, key)[0, 3]
    query, key = smollm2_circuits.project_unrotated(block, x)
    for t, s in [(8, 8), (7, 2), (5, 4)]:
        found = smollm2_circuits.score_at_distances(
            query[0, 3, t : t + 1], key[0, 3, s : s + 1], 1e4, 9
        )
        assert found[0, t - s].item() == pytest.approx(wanted[t, s].item(), rel=1e-4)


@torch.no_grad()
def test_a_window_gives_the_loss_of_the_model_with_its_mask():
    variant = smollm2_keys.keep_window(5, 2, T)
    plain = ModernDecoder(DecoderConfig(V, C, 4, 2, 10, 3)).eval()
    plain.load_state_dict(build().state_dict())
    mask = masks.window(T, T, 5) | masks.sinks(T, T, 2)
    logits = plain(IDS[None], mask)[0, T // 2 : -1]
    found = smollm2_keys.measure_selection(
        build(smollm2_keys.SelectedAttention), [IDS], variant.select
    )
    wanted = float(F.cross_entropy(logits, IDS[T // 2 + 1 :]))
    assert found["losses"] == [pytest.approx(wanted, abs=1e-4)]
    assert found["keys"] == found["group_keys"] == 7


@pytest.mark.parametrize(
    ("variant", "keys"),
    [
        (smollm2_keys.keep_top(3), 3),
        (smollm2_keys.keep_shared_top(3), 3),
        # The own block holds 2.5 keys up to the query, on average.
        (smollm2_keys.keep_mean_blocks(2, 4), 4 + 2.5),
        (smollm2_keys.keep_mean_blocks(2, 4, first=1), 4 + 2.5),
    ],
)
def test_a_selection_keeps_as_many_keys_as_it_says(variant, keys):
    found = smollm2_keys.measure_selection(
        build(smollm2_keys.SelectedAttention), [IDS], variant.select
    )
    assert found["keys"] == pytest.approx(keys)
    assert keys <= found["group_keys"] <= 2 * keys


@pytest.mark.parametrize("kind", length_costs.RULES)
def test_every_implementation_uses_its_mask(kind, monkeypatch):
    monkeypatch.setattr(length_costs.shutil, "which", lambda name: None)
    monkeypatch.setattr(length_costs, "MASK_WINDOW", 5)
    inputs = length_costs.draw_inputs(1, 8, 19, 64)[:3]
    mask = masks.causal(19, 19) if kind == "causal" else masks.window(19, 19, 5)
    for attention in length_costs.list_masked(kind, 19).values():
        torch.testing.assert_close(attention(*inputs), attend(*inputs, mask))


def point_at(seconds, step, keys):
    """Return weights whose rows are 1 on the key at a time, and 0 elsewhere."""
    return F.one_hot((torch.tensor(seconds) / step).long(), keys).float()


def test_whispers_heads_are_scored_by_the_digit_at_their_peak():
    positions = round(len(SPOKEN.sound) / RATE / whisper.SECONDS)
    empty = torch.empty(0)
    heard = whisper.Heard(SPOKEN, empty, empty, positions, empty)
    middles = [(begin + end) / 2 for begin, end in SPOKEN.intervals]
    late = [middles[0], *middles[:2]]
    for times, inside, previous in ((middles, 1, 0), (late, 1 / 3, 1)):
        found = whisper.score_maps(point_at(times, whisper.SECONDS, positions), heard)
        assert found["inside"] == found["mass"] == pytest.approx(inside)
        assert found["previous"] == previous


def test_letters_are_scored_by_the_digit_whose_name_they_spell():
    states = -(-len(SPOKEN.sound) // round(SECONDS * RATE))
    middles = [(begin + end) / 2 for begin, end in SPOKEN.intervals]
    times = [middles[0]] * 6 + [middles[1]] * 4 + [middles[2]] * 5
    found = listen_attend_spell.score_weights(point_at(times, SECONDS, states), SPOKEN)
    assert [found[x] for x in ("peak", "nearest", "first", "mass")] == [1.0] * 4
    assert 0 < found["uniform"] < 1


@pytest.mark.parametrize("kind", SEQUENCE_LAYERS)
def test_the_recorded_gradients_are_reproduced(kind):
    record = read_record("path_length")
    found = self_attention.measure_gradient_norms_at_ends(kind, 32, 1)
    for end, value in zip(("first", "last"), found, strict=True):
        stored = record["results"][end][kind][record["lengths"].index(32)]
        assert value == pytest.approx(stored[1], rel=1e-3)
