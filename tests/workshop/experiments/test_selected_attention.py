"""The experiments with selected keys, on a tiny model without its weights."""

from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F

from attnbook import masks
from attnbook.models.modern_decoder import DecoderConfig, ModernDecoder
from workshop.experiments import (
    smollm2_indexer,
    smollm2_keys,
    smollm2_map,
    smollm2_text,
)
from workshop.experiments.selected_attention import (
    SelectedAttention,
    compute_losses,
    count_keys,
    measure_selection,
    select_all,
    select_in_chunks,
    set_selection,
)

T, HEADS, GROUPS = 32, 4, 2
CONFIG = DecoderConfig(11, 16, HEADS, GROUPS, 10, 2)
IDS = torch.randint(11, (T,), generator=torch.Generator().manual_seed(1))


def build(attention=SelectedAttention):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = ModernDecoder(CONFIG, attention).eval()
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.4)
        return model


def run(variant):
    return measure_selection(build(), [IDS], variant.select)


def test_without_a_selection_the_loss_is_that_of_the_plain_model():
    plain = ModernDecoder(CONFIG).eval()
    plain.load_state_dict(build().state_dict())
    logits = plain(IDS[None])[0, T // 2 : -1]
    wanted = F.cross_entropy(logits, IDS[T // 2 + 1 :], reduction="none")
    found = compute_losses(build(), IDS)
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_a_window_gives_the_loss_of_the_model_with_its_mask():
    variant = smollm2_keys.keep_window(5, 2, T)
    plain = ModernDecoder(CONFIG).eval()
    plain.load_state_dict(build().state_dict())
    mask = masks.window(T, T, 5) | masks.sinks(T, T, 2)
    logits = plain(IDS[None], mask)[0, T // 2 : -1]
    found = run(variant)
    wanted = float(F.cross_entropy(logits, IDS[T // 2 + 1 :]))
    assert found["losses"] == [pytest.approx(wanted, abs=1e-4)]
    assert found["keys"] == found["group_keys"] == 7
    assert variant.name == "window 5, 2 sinks"


@pytest.mark.parametrize(
    "variant",
    [
        smollm2_keys.keep_top(T),
        smollm2_keys.keep_top_blocks(T // 4, 4),
        smollm2_keys.keep_mean_blocks(T // 4, 4),
        smollm2_indexer.keep_shared_top(T),
        smollm2_keys.keep_window(T, 0, T),
    ],
    ids=lambda variant: variant.name,
)
def test_a_selection_of_all_keys_changes_nothing(variant):
    wanted, found = measure_selection(build(), [IDS], select_all), run(variant)
    assert found["losses"] == pytest.approx(wanted["losses"], abs=1e-4)
    assert found["keys"] == wanted["keys"] == sum(range(17, 33)) / 16


@pytest.mark.parametrize(
    ("variant", "keys"),
    [
        (smollm2_keys.keep_top(3), 3),
        (smollm2_indexer.keep_shared_top(3), 3),
        # The own block holds 2.5 keys up to the query, on average.
        (smollm2_keys.keep_mean_blocks(2, 4), 4 + 2.5),
        (smollm2_keys.keep_mean_blocks(2, 4, first=1), 4 + 2.5),
    ],
    ids=lambda x: getattr(x, "name", None),
)
def test_a_selection_keeps_as_many_keys_as_it_says(variant, keys):
    found = run(variant)
    assert found["keys"] == pytest.approx(keys)
    assert keys <= found["group_keys"] <= keys * HEADS / GROUPS
    assert found["group_blocks"] >= 1


def test_the_first_block_is_kept_where_it_is_asked_for():
    kept = []
    select = smollm2_keys.keep_mean_blocks(2, 4, first=1).select
    model = build()
    set_selection(model, lambda x: kept.append(select(x)) or kept[-1])
    model(IDS[None])
    for mask in kept:
        assert mask[0, :, :, 0].all()
        assert mask[0].diagonal(dim1=-2, dim2=-1).all()


@pytest.mark.parametrize(
    "variant",
    [
        smollm2_keys.keep_top(3),
        smollm2_keys.keep_top_blocks(2, 4),
        smollm2_indexer.keep_shared_top(3),
    ],
    ids=lambda variant: variant.name,
)
@torch.no_grad()
def test_chunks_of_queries_select_the_same_keys(variant):
    model, pairs = build(), []

    def look(layer):
        some = select_in_chunks(variant.select, 8)(layer)
        pairs.append((variant.select(layer), some))
        return layer.causal

    set_selection(model, look)
    model(IDS[None])
    assert len(pairs) == 2
    for whole, chunks in pairs:
        assert (whole == chunks).all()


def test_heads_that_keep_the_same_keys_share_them():
    kept = torch.zeros(1, 4, 32, 32, dtype=torch.bool)
    kept[:, :2, :, :3] = True  # one group, the same three keys
    kept[:, 2, :, 0] = kept[:, 3, :, 31] = True  # the other: different ones
    keys, shared, blocks = count_keys(kept, groups=2).tolist()
    assert keys == (3 + 3 + 1 + 1) / 4
    assert shared == (3 + 2) / 2
    assert blocks == (1 + 2) / 2


@pytest.mark.refusal
def test_a_model_with_other_attention_is_refused():
    with pytest.raises(ValueError, match="SelectedAttention, not with Rotary"):
        set_selection(ModernDecoder(CONFIG), select_all)


def test_the_keys_that_a_share_of_the_weight_needs_are_counted():
    weights = torch.tensor([[0.5, 0.1, 0.4, 0.0], [0.0, 0.0, 0.0, 1.0]])
    assert smollm2_keys.count_needed_keys(weights, 0.85).tolist() == [2, 1]
    assert smollm2_keys.count_needed_keys(weights, 0.95).tolist() == [3, 1]
    rest = smollm2_keys.drop_first(weights)
    torch.testing.assert_close(rest[0], torch.tensor([0.2, 0.8, 0.0]))


def test_what_full_attention_does_is_observed():
    variants = [
        smollm2_keys.Variant("full", select_all),
        smollm2_keys.keep_top(1),
        smollm2_keys.keep_window(3, 0, T),
    ]
    model = build()
    found = smollm2_keys.observe_weights(model, IDS, variants)
    maps = smollm2_map.compute_maps(model, IDS)[:, :, T // 2 :: 4]
    wanted = maps[..., 0].mean(-1)
    got = torch.tensor(found["first_token_weight"])
    torch.testing.assert_close(got, wanted, atol=1e-5, rtol=1e-4)
    full, top, window = found["kept_weight"]
    assert full == pytest.approx(1)
    assert top == pytest.approx(float(maps.amax(-1).mean()), abs=1e-5)
    rows = [
        maps[:, :, i, t - 2 : t + 1].sum(-1) for i, t in enumerate(range(T // 2, T, 4))
    ]
    mean = float(torch.stack(rows).mean())
    assert window == pytest.approx(mean, abs=1e-5)
    assert torch.tensor(found["needed_keys"]).shape == (2, HEADS)


@pytest.mark.long
def test_indexers_learn_the_weights_of_their_own_layer():
    model = build()
    indexers = smollm2_indexer.build_indexers(model, 0)
    losses = smollm2_indexer.train_indexers(model, indexers, [IDS] * 40, 0)
    assert len(losses) == 40
    assert losses[-1] < 0.7 * losses[0]
    again = smollm2_indexer.build_indexers(model, 0)
    assert losses == smollm2_indexer.train_indexers(model, again, [IDS] * 40, 0)


def test_the_variants_keep_as_many_keys_as_they_are_compared_at():
    for budget, variant in smollm2_indexer.list_variants([]):
        assert str(budget) in variant.name or variant.name in (
            "mean keys, 2 blocks of 16",
            f"window {budget - 1}, 1 sink",
        )


def test_an_indexer_selects_the_same_keys_for_all_heads():
    model = build()
    indexers = smollm2_indexer.build_indexers(model, 0)
    found = measure_selection(
        model, [IDS], smollm2_indexer.keep_indexed(indexers, 5).select
    )
    assert found["keys"] == found["group_keys"] == 5


def test_heads_are_chosen_by_what_they_do():
    ids = torch.tensor([3, 1, 2, *range(10, 36), 3, 1, 4])
    maps = torch.zeros(1, 6, 32, 32)
    i = torch.arange(32)
    maps[0, 0, :, 0] = 1.0
    maps[0, 1, i[1:], i[:-1]] = 1.0
    maps[0, 2, i, i] = 1.0
    maps[0, 3, 30, 2] = maps[0, 3, 29, 1] = 1.0  # after 1, 2; after 3, 1
    maps[0, 4, 16:, 1] = 0.9
    maps[0, 5, 16:, 1:17] = 1 / 16
    kinds = smollm2_map.describe_heads(maps, ids)
    chosen = smollm2_map.choose_heads(kinds)
    assert {x["kind"]: x["head"] for x in chosen} == {
        "sink": 0,
        "previous": 1,
        "local": 2,
        "induction": 3,
        "far": 4,
        "spread": 5,
    }
    assert chosen[0]["share"] == 1.0


def test_a_map_keeps_the_lower_triangle_in_thousandths():
    weights = torch.tensor([[1.0, 0.0], [0.2504, 0.7496]])
    assert smollm2_map.to_thousandths(weights) == [[1000], [250, 750]]


class Words:
    """A tokenizer of words."""

    def encode(self, text):
        self.ids = [len(word) for word in text.split()]
        return self

    def id_to_token(self, i):
        return "x" * i


def test_passages_are_cut_from_the_line_where_they_start():
    lines = [f"{'a' * i} b c" for i in range(1, 9)]
    found = smollm2_text.cut_passage(Words(), lines, 2, 5)
    assert found.tolist() == [3, 1, 1, 4, 1]
    assert smollm2_text.count_bytes(Words(), found) == 10
    assert smollm2_text.list_sections(10, 4) == [0, 2, 5, 7]


@pytest.mark.refusal
def test_a_text_that_is_too_short_for_a_passage_is_refused():
    wanted = "needs 9 symbols, but the text from line 1 on has 6"
    with pytest.raises(ValueError, match=wanted):
        smollm2_text.cut_passage(Words(), ["a b c"] * 3, 1, 9)


def test_no_passage_overlaps_another():
    lines = smollm2_text.read_lines()
    starts = smollm2_text.list_sections(len(lines))
    used = sorted(a + b for a in starts for b in (0, *smollm2_text.TRAINING, 1200))
    # In these lines lie more words than a passage has symbols.
    for start, end in pairwise(used):
        words = sum(len(x.split()) for x in lines[start:end])
        assert words > smollm2_text.LENGTH
    tail = lines[used[-1] :]
    assert sum(len(x.split()) for x in tail) > smollm2_map.LENGTH
