"""Weights that are read, and heads that are edited, ablated and patched, by hooks."""

import pytest
import torch
from torch import nn

from attnbook.attention.self_attention import causal_mask
from attnbook.data.vocabulary import PAD
from attnbook.models.hooks import (
    ablate_heads,
    collect_maps,
    find_attention_layers,
    patch_heads,
    record_heads,
)
from attnbook.models.modern_decoder import DecoderConfig, ModernDecoder
from attnbook.models.recurrent import EncoderDecoder
from attnbook.models.transformer import Size, transformer

B, T, C, H, L, V = 2, 7, 20, 5, 3, 11
D = C // H
RNG = torch.Generator().manual_seed(0)
IDS = torch.randint(V, (B, T), generator=RNG)
OTHER = torch.randint(V, (B, T), generator=RNG)
SEQUENCES = (
    torch.tensor([[4, 9, 18, 5, 6], [7, 8, 9, PAD, PAD]]),
    torch.tensor([5, 3]),
    torch.tensor([[1, 11, 12, 13], [1, 22, 21, 5]]),
)


def test_maps_are_the_weights_of_every_attention_and_the_model_stays_as_it_was():
    torch.manual_seed(5)
    model = transformer(19, 23, Size(12, 3, 17, 2)).eval()
    before = model(*SEQUENCES)
    found = collect_maps(model, *SEQUENCES)
    assert found.encoder.shape == (2, 2, 3, 5, 5)
    assert found.decoder.shape == (2, 2, 3, 4, 4)
    assert found.cross.shape == (2, 2, 3, 4, 5)
    for weights in found:
        rows = weights.sum(-1)
        torch.testing.assert_close(rows, torch.ones_like(rows))
    assert found.decoder.triu(1).abs().max() == 0
    assert found.encoder[1, ..., 3:].abs().max() == 0
    assert found.cross[1, ..., 3:].abs().max() == 0
    torch.testing.assert_close(found.cross[:, -1].mean(1), before.weights)
    assert torch.equal(model(*SEQUENCES).logits, before.logits)
    assert not any(m._forward_pre_hooks for m in model.modules())


@pytest.mark.refusal
def test_maps_of_a_model_without_blocks_are_refused():
    whole = EncoderDecoder(torch.nn.Linear(2, 3), torch.nn.GRU(2, 3))
    with pytest.raises(ValueError, match="these are Linear and GRU"):
        collect_maps(whole, *SEQUENCES)


@pytest.fixture
def model():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        made = ModernDecoder(DecoderConfig(V, C, H, 1, 13, L))
        for parameter in made.parameters():
            nn.init.normal_(parameter, std=0.5)
        return made.eval()


@torch.no_grad()
def run(model, ids=IDS):
    return model(ids)


def test_an_ablated_head_has_no_columns_in_the_output_projection(model):
    before = run(model)
    with ablate_heads(model, [(1, 3), (2, 0)]):
        ablated = run(model)
    assert torch.equal(run(model), before)
    with torch.no_grad():
        model.blocks[1].attention.output.weight[:, 3 * D : 4 * D] = 0
        model.blocks[2].attention.output.weight[:, :D] = 0
    torch.testing.assert_close(ablated, run(model))
    assert (ablated - before).abs().max() > 0.1


def test_recorded_outputs_are_weights_times_values(model):
    with record_heads(model) as outputs:
        run(model)
    block, mask = model.blocks[0], causal_mask(T, T)
    with torch.no_grad():
        x = block.norms[0](model.embed(IDS))
        query, key, value = block.attention.project(x, x)
        _, weights = block.attention.attend(query, key, value, mask)
    assert [len(calls) for calls in outputs] == [1] * L
    torch.testing.assert_close(outputs[0][0], weights @ value)


def test_mean_ablation_replaces_by_the_mean(model):
    with record_heads(model) as outputs:
        run(model)
        run(model, OTHER)
    mean = [torch.cat(calls).mean(dim=(0, 2)) for calls in outputs]
    with ablate_heads(model, [(2, 1)], mean), record_heads(model) as after:
        run(model)
    torch.testing.assert_close(
        after[2][0][:, 1], mean[2][1].expand(B, T, D).contiguous()
    )


def test_a_patch_at_some_positions_leaves_the_others(model):
    with record_heads(model) as other:  # the last call counts
        run(model)
        run(model, OTHER)
    with (
        record_heads(model) as before,
        patch_heads(model, [(0, 2)], other, positions=[1, 4]),
        record_heads(model) as after,
    ):
        run(model)
    expected = before[0][0][:, 2].clone()
    expected[:, [1, 4]] = other[0][1][:, 2][:, [1, 4]]
    torch.testing.assert_close(after[0][0][:, 2], expected)


@pytest.mark.refusal
def test_heads_that_are_not_there_are_refused(model):
    with pytest.raises(ValueError, match=r"no layer 3 .* has 3 attention"):
        ablate_heads(model, [(L, 0)]).__enter__()
    with pytest.raises(ValueError, match=r"no head 5 in layer 1.* has 5 heads"):
        ablate_heads(model, [(1, H)]).__enter__()
    with pytest.raises(ValueError, match="Linear has no attention layer"):
        find_attention_layers(nn.Linear(2, 3))


@pytest.mark.refusal
def test_lists_of_other_lengths_and_shapes_are_refused(model):
    with record_heads(model) as other:
        run(model, OTHER[:, 1:])
    with (
        pytest.raises(ValueError, match=r"\(2, 6, 4\).* has \(2, 7, 4\)"),
        patch_heads(model, [(0, 0)], other),
    ):
        run(model)
    with pytest.raises(ValueError, match=r"2 layers are given.* has 3"):
        patch_heads(model, [(0, 0)], other[:2])
