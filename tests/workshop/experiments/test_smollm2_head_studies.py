"""The studies of SmolLM2's heads, on a tiny model without its weights.

What they must find is known where the heads are made by hand.
"""

import pytest
import torch
import torch.nn.functional as F

from attnbook.diagnose.heads import mark_induction, uniform_causal_weights
from attnbook.models.head_edits import ablate_heads
from attnbook.models.modern_decoder import DecoderConfig, ModernDecoder
from attnbook.positions.rotary import rotate
from workshop.experiments import (
    smollm2_ablation,
    smollm2_circuits,
    smollm2_heads,
    smollm2_inputs,
    smollm2_patching,
    smollm2_sinks,
)

V, C, H, L = 120, 16, 4, 3
D = C // H


def build(attention=smollm2_sinks.ChangedAttention):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = DecoderConfig(V, C, H, 2, 10, L)
        model = ModernDecoder(config, attention)
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.4)
        return model.eval()


MODEL = build()
COPIES = smollm2_inputs.draw_batches(0, V, 2, (5, 7))
TEXTS = smollm2_inputs.draw_batches(9, V, 3, (6,))[0]


def test_repeated_tokens_are_the_same_twice_and_differ_in_a_copy():
    ids = smollm2_inputs.draw_repeated(3, 11, V)
    assert ids[0] == smollm2_inputs.START and len(ids) == 23
    assert ids[1:12].tolist() == ids[12:].tolist()
    assert len(set(ids[1:12].tolist())) == 11
    assert ids[1:].min() >= smollm2_inputs.SPECIAL
    again = smollm2_inputs.draw_repeated(3, 11, V)
    assert again.tolist() == ids.tolist()
    other = smollm2_inputs.draw_unrepeated(3, 11, V)
    assert other[:12].tolist() == ids[:12].tolist()
    assert len(set(other.tolist())) == 23


def test_sequences_of_a_batch_and_of_batches_differ():
    rows = [tuple(row) for batch in COPIES for row in batch.tolist()]
    assert len(set(rows)) == 4
    assert [batch.shape for batch in COPIES] == [(2, 11), (2, 15)]


@torch.no_grad()
def test_losses_are_those_of_the_second_copy_and_of_texts():
    ids = COPIES[0]
    likely = MODEL(ids).log_softmax(-1)
    wanted = -sum(
        likely[:, t].gather(1, ids[:, t + 1 :][:, :1])[:, 0] for t in range(6, 10)
    )
    loss, accuracy = smollm2_inputs.measure_copying(MODEL, ids)
    torch.testing.assert_close(loss, wanted / 4)
    best = likely[:, 6:10].argmax(-1) == ids[:, 7:]
    torch.testing.assert_close(accuracy, best.float().mean(1))
    wanted = F.cross_entropy(MODEL(TEXTS)[:, :-1].flatten(0, 1), TEXTS[:, 1:].flatten())
    found = smollm2_inputs.measure_text(MODEL, TEXTS)
    torch.testing.assert_close(found.mean(), wanted)


@torch.no_grad()
def test_a_model_that_goes_on_in_the_middle_gives_the_same():
    inputs = smollm2_inputs.list_block_inputs(MODEL, TEXTS)
    assert len(inputs) == L + 1
    for layer, x in enumerate(inputs):
        torch.testing.assert_close(
            smollm2_inputs.compute_logits(MODEL, x, layer), MODEL(TEXTS)
        )


def test_uniform_weights_have_the_chance_level_as_their_scores():
    ids = COPIES[0]
    uniform = uniform_causal_weights(ids.shape[1])
    weights = uniform.expand(L, 2, H, -1, -1)
    chance = smollm2_heads.measure_chance(ids)
    for name, pattern in smollm2_heads.PATTERNS.items():
        found = smollm2_heads.score_sequences(weights, ids, pattern)
        assert found.shape == (2, L, H)
        assert found.mean().item() == pytest.approx(chance[name], rel=1e-5)


def test_a_head_at_a_fixed_distance_has_all_weight_there():
    T = 9
    weights = torch.zeros(L, 1, H, T, T)
    for t in range(T):
        weights[..., t, max(t - 3, 0)] = 1.0
    found = smollm2_heads.score_distances(weights, 4)
    assert found[:, 0, 0].tolist() == [0, 0, 0, pytest.approx(1), 0]


def test_a_control_does_not_see_the_repetition():
    found = smollm2_heads.measure_scores(MODEL)
    assert found.keys() == {
        *("scores", "deviations", "controls", "distances", "chance")
    }
    # Nothing was trained: score and control differ by less than they vary.
    score = torch.tensor(found["scores"]["induction"])
    control = torch.tensor(found["controls"]["induction"])
    assert score.shape == control.shape == (L, H)
    assert (score - control).abs().max() < 0.1


def test_the_loss_without_a_head_is_that_of_the_edited_model():
    means = smollm2_ablation.compute_means(MODEL, COPIES)
    found = smollm2_ablation.measure_singles(MODEL, COPIES, means)
    assert len(found["whole"]) == 4
    whole = smollm2_ablation.measure_set(MODEL, [], COPIES, TEXTS)
    assert found["whole"] == pytest.approx(whole["copy"], abs=3e-4)
    for name, used in (("zero", None), ("mean", means)):
        rise = torch.tensor(found[name])
        assert rise.shape == (L, H, 4)
        for head in [(0, 1), (2, 3)]:
            one = smollm2_ablation.measure_set(MODEL, [head], COPIES, TEXTS, used)
            wanted = torch.tensor(one["copy"]) - torch.tensor(whole["copy"])
            torch.testing.assert_close(rise[head], wanted, atol=3e-4, rtol=0)
            with torch.no_grad(), ablate_heads(MODEL, [head], used):
                text = smollm2_inputs.measure_text(MODEL, TEXTS)
            assert one["text"] == pytest.approx(text.tolist(), abs=1e-4)


def test_heads_are_ranked_and_random_sets_have_as_many_in_each_layer():
    scores = torch.tensor([[0.1, 0.9, 0.3], [0.8, 0.2, 0.0]])
    ranked = smollm2_ablation.rank_heads(scores)
    assert ranked[:3] == [(0, 1), (1, 0), (0, 2)]
    chosen = [(3, 1), (3, 4), (7, 0)]
    seen = set()
    for seed in range(5):
        drawn = smollm2_ablation.draw_others(chosen, 9, seed, [(7, 1)])
        assert sorted(layer for layer, _ in drawn) == [3, 3, 7]
        assert not set(drawn) & {*chosen, (7, 1)}
        assert len(set(drawn)) == 3
        seen.add(tuple(drawn))
    assert len(seen) == 5


@pytest.mark.refusal
def test_a_layer_with_too_few_other_heads_is_refused():
    with pytest.raises(ValueError, match="layer 2 has 1 other heads, not 3"):
        smollm2_ablation.draw_others([(2, 0), (2, 1), (2, 2)], 4, 0)


def test_pairs_differ_only_where_two_tokens_are_exchanged():
    pairs = smollm2_patching.draw_pairs(0, V, 3)
    places = smollm2_patching.list_places()
    differ = (pairs.clean != pairs.corrupted).nonzero()[:, 1].unique()
    assert differ.tolist() == places["exchanged"]
    (last,) = places["last"]
    assert pairs.clean.shape == (3, last + 1)
    for clean, corrupted, (b, c) in zip(*pairs, strict=True):
        for ids, answer in ((clean, b), (corrupted, c)):
            (marked,) = mark_induction(ids)[-1].nonzero().tolist()
            assert ids[marked] == answer
            assert marked[0] in places["after"]


def test_patching_all_heads_restores_the_clean_run_unless_tokens_remain():
    pairs = smollm2_patching.draw_pairs(0, V, 3)
    last = [(L - 1, h) for h in range(H)]
    found = smollm2_patching.measure_patches(MODEL, pairs, last)
    together = smollm2_patching.measure_group(MODEL, pairs, last)
    lost = (found["clean"] - found["corrupted"]).mean()
    everyone = [(layer, h) for layer in range(L) for h in range(H)]
    # The last position has the same token in both runs: with the clean
    # outputs of all heads there, its stream is that of the clean run.
    assert lost != 0
    assert smollm2_patching.measure_group(MODEL, pairs, everyone) == pytest.approx(
        1, abs=1e-3
    )
    assert together != 0


def test_a_patch_at_positions_that_the_last_query_cannot_use_does_nothing():
    pairs = smollm2_patching.draw_pairs(0, V, 3)
    last = [(L - 1, h) for h in range(H)]
    found = smollm2_patching.measure_patches(MODEL, pairs, last, [8, 9])
    shares = smollm2_patching.compute_shares(found)
    torch.testing.assert_close(shares, torch.zeros(H), atol=1e-4, rtol=0)


@torch.no_grad()
def test_a_change_of_position_0_is_one_of_weights_and_values():
    x = torch.randn(2, 6, C, generator=torch.Generator().manual_seed(0))
    attention = MODEL.blocks[0].attention
    query, key, value = attention.project(x, x)
    mask = torch.ones(6, 6, dtype=torch.bool).tril()
    masked = mask.clone()
    masked[1:, 0] = False
    wanted, _ = attention.attend(query, key, value, masked)
    attention.change = smollm2_sinks.mask_out(0)
    found, _ = attention.attend(query, key, value, mask)
    torch.testing.assert_close(found, wanted)
    attention.change = smollm2_sinks.zero_value(0)
    found, _ = attention.attend(query, key, value, mask)
    attention.change = smollm2_sinks.leave
    first, _ = attention.attend(query, key, value, mask)
    value = value.clone()
    value[:, :, 0] = 0
    wanted, _ = attention.attend(query, key, value, mask)
    torch.testing.assert_close(found[:, 1:], wanted[:, 1:])
    torch.testing.assert_close(found[:, 0], first[:, 0])


def test_changes_are_taken_back():
    before = smollm2_sinks.measure_change(MODEL, TEXTS, smollm2_sinks.leave)
    after = smollm2_sinks.measure_change(MODEL, TEXTS, smollm2_sinks.zero_value(0))
    assert after != before
    assert smollm2_sinks.measure_change(MODEL, TEXTS, smollm2_sinks.leave) == (before)


def test_a_position_is_compared_with_the_median_of_the_later_ones():
    x = torch.ones(2, 5, 3)
    x[:, 0] = 10.0
    x[:, 4] = 99.0
    assert smollm2_sinks.compare_norms(x, 0).tolist() == pytest.approx([10, 10])
    found = smollm2_sinks.describe_position(MODEL, TEXTS)
    assert torch.tensor(found["stream"]).shape == (L,)
    assert torch.tensor(found["value"]).shape == (L, 2)
    masked = smollm2_sinks.describe_position(MODEL, TEXTS, 1, smollm2_sinks.mask_out(0))
    plain = smollm2_sinks.describe_position(MODEL, TEXTS, 1)
    assert masked["stream"][0] == plain["stream"][0]
    assert masked["stream"][-1] != plain["stream"][-1]


@torch.no_grad()
def test_scores_at_distances_are_those_of_the_layer():
    x = torch.randn(1, 9, C, generator=torch.Generator().manual_seed(0))
    block = MODEL.blocks[1]
    attention = block.attention
    normed = block.norms[0](x)
    query, key, _ = attention.project(normed, normed)
    wanted = attention.scores(query, key)[0, 3]
    free_query, free_key = smollm2_circuits.project_unrotated(block, x)
    for t, s in [(8, 8), (7, 2), (5, 4)]:
        found = smollm2_circuits.score_at_distances(
            free_query[0, 3, t : t + 1], free_key[0, 3, s : s + 1], 1e4, 9
        )
        assert found[0, t - s].item() == pytest.approx(wanted[t, s].item(), rel=1e-4)


def test_variance_belongs_to_distance_or_content():
    by_distance = torch.arange(5.0).expand(7, 5)
    assert smollm2_circuits.split_variance(by_distance) == pytest.approx(
        {"distance": 1, "content": 0, "both": 0}, abs=1e-6
    )
    by_content = by_distance.T.contiguous()
    assert smollm2_circuits.split_variance(by_content)["content"] == (pytest.approx(1))


def test_matching_pairs_are_those_of_an_induction_head():
    count = 7
    ids = smollm2_inputs.draw_repeated(0, count, V)
    marks = torch.arange(len(ids), dtype=torch.float)[None, :, None]
    pairs = smollm2_circuits.pair_up(marks, marks, count)
    for query, key in zip(*pairs["match"], strict=True):
        assert mark_induction(ids)[int(query), int(key)]
    for query, key in zip(*pairs["other"], strict=True):
        assert not mark_induction(ids)[int(query), int(key)]


@torch.no_grad()
def test_a_head_that_copies_is_found():
    model = build()
    attention = model.blocks[1].attention
    for projection in (attention.value, attention.output):
        projection.weight.zero_()
    ids = torch.arange(20, 24)
    # Head 1 of group 0 copies the four columns in which these tokens differ.
    attention.value.weight[:D, :D] = torch.eye(D)
    attention.output.weight[:D, D : 2 * D] = torch.eye(D)
    table = torch.zeros(V, C)
    table[ids, :D] = torch.eye(D)
    table[:, D:] = 0.1
    model.embed.table.weight.copy_(table)
    for norm in (*model.blocks[1].norms, model.norm):
        norm.weight.fill_(1.0)
    x = [model.embed(ids[None])[0]] * L
    found = smollm2_circuits.measure_copying_heads(model, x, ids)
    assert found["top"][1][1] == 1
    assert found["rank"][1][1] == 0


def test_inputs_of_tokens_are_those_of_their_positions(monkeypatch):
    monkeypatch.setattr(smollm2_circuits, "SYMBOLS", 20)
    inputs, ids = smollm2_circuits.list_token_inputs(MODEL, 0, length=5)
    assert len(inputs) == L and inputs[0].shape == (20, C)
    torch.testing.assert_close(inputs[0], MODEL.embed(ids[None])[0])


def test_rotating_query_alone_is_rotating_both():
    generator = torch.Generator().manual_seed(0)
    query, key = torch.randn(2, 1, D, generator=generator)
    found = smollm2_circuits.score_at_distances(query, key, 1e4, 6)
    both = [
        rotate(x[None, None], torch.tensor([place]), 1e4)[0, 0, 0]
        for x, place in ((query, 11), (key, 8))
    ]
    wanted = both[0] @ both[1] / D**0.5
    assert found[0, 3].item() == pytest.approx(wanted.item(), rel=1e-4)
