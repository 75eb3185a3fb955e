import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

from attnbook.data.minilm import load_maps, load_value_norms
from workshop.experiments import minilm
from workshop.experiments.minilm import (
    SENTENCES,
    encode,
    load_weights,
    split_into_pieces,
)

WIDTH, INNER, HEADS, LAYERS = 12, 20, 3, 2


def random_weights():
    seed = torch.Generator().manual_seed(0)
    shapes = {
        "embeddings.word_embeddings.weight": (17, WIDTH),
        "embeddings.position_embeddings.weight": (9, WIDTH),
        "embeddings.token_type_embeddings.weight": (2, WIDTH),
        "embeddings.LayerNorm.weight": (WIDTH,),
        "embeddings.LayerNorm.bias": (WIDTH,),
    }
    square = (
        "attention.self.query",
        "attention.self.key",
        "attention.self.value",
        "attention.output.dense",
    )
    for i in range(LAYERS):
        own = f"encoder.layer.{i}"
        shapes |= {f"{own}.{n}.weight": (WIDTH, WIDTH) for n in square}
        shapes |= {f"{own}.{n}.bias": (WIDTH,) for n in square}
        shapes |= {
            f"{own}.{n}.LayerNorm.{part}": (WIDTH,)
            for n in ("attention.output", "output")
            for part in ("weight", "bias")
        }
        shapes |= {
            f"{own}.intermediate.dense.weight": (INNER, WIDTH),
            f"{own}.intermediate.dense.bias": (INNER,),
            f"{own}.output.dense.weight": (WIDTH, INNER),
            f"{own}.output.dense.bias": (WIDTH,),
        }
    return {n: torch.randn(*s, generator=seed) for n, s in shapes.items()}


def torch_layer(weights, i):
    """PyTorch's own encoder layer, with the same weights."""
    own = f"encoder.layer.{i}"
    layer = torch.nn.TransformerEncoderLayer(
        WIDTH, HEADS, INNER, 0.0, F.gelu, 1e-12, batch_first=True
    ).eval()
    parts = [f"{own}.attention.self.{p}" for p in ("query", "key", "value")]
    names = {
        "self_attn.out_proj": f"{own}.attention.output.dense",
        "linear1": f"{own}.intermediate.dense",
        "linear2": f"{own}.output.dense",
        "norm1": f"{own}.attention.output.LayerNorm",
        "norm2": f"{own}.output.LayerNorm",
    }
    state = {
        f"{ours}.{kind}": weights[f"{theirs}.{kind}"]
        for ours, theirs in names.items()
        for kind in ("weight", "bias")
    }
    for kind in ("weight", "bias"):
        whole = torch.cat([weights[f"{p}.{kind}"] for p in parts])
        state[f"self_attn.in_proj_{kind}"] = whole
    layer.load_state_dict(state)
    return layer


def test_the_encoder_equals_pytorchs():
    weights, ids = random_weights(), [3, 16, 1, 3, 8]
    x, looked, _ = encode(weights, ids, HEADS)
    assert looked.shape == (LAYERS, HEADS, 5, 5)
    y = weights["embeddings.word_embeddings.weight"][ids]
    y = y + weights["embeddings.position_embeddings.weight"][:5]
    y = y + weights["embeddings.token_type_embeddings.weight"][0]
    gain, bias = (weights[f"embeddings.LayerNorm.{p}"] for p in ("weight", "bias"))
    y = F.layer_norm(y, (WIDTH,), gain, bias, 1e-12)[None]
    for i in range(LAYERS):
        layer = torch_layer(weights, i)
        _, seen = layer.self_attn(y, y, y, average_attn_weights=False)
        torch.testing.assert_close(looked[i], seen[0], atol=1e-5, rtol=1e-4)
        y = layer(y)
    torch.testing.assert_close(x, y[0], atol=1e-5, rtol=1e-4)


def test_a_value_norm_is_the_output_norm_with_all_weight_on_one_position():
    weights, ids = random_weights(), [3, 16, 1, 3, 8]
    sizes = encode(weights, ids, HEADS)[2]
    assert sizes.shape == (LAYERS, HEADS, 5)
    own = "encoder.layer.0.attention"
    x = weights["embeddings.word_embeddings.weight"][ids]
    x = x + weights["embeddings.position_embeddings.weight"][:5]
    x = x + weights["embeddings.token_type_embeddings.weight"][0]
    gain, bias = (weights[f"embeddings.LayerNorm.{p}"] for p in ("weight", "bias"))
    x = F.layer_norm(x, (WIDTH,), gain, bias, 1e-12)
    matrix, shift = (weights[f"{own}.self.value.{p}"] for p in ("weight", "bias"))
    added = weights[f"{own}.output.dense.weight"]
    for h in range(HEADS):
        for t in range(5):
            only = torch.zeros(WIDTH)
            part = slice(h * WIDTH // HEADS, (h + 1) * WIDTH // HEADS)
            only[part] = (matrix @ x[t] + shift)[part]
            assert sizes[0, h, t] == pytest.approx(
                float((added @ only).norm()), rel=1e-4
            )


def test_words_are_split_into_their_longest_pieces():
    known = ("the", "un", "##happi", "##ness", ".", "u")
    vocabulary = {piece: i for i, piece in enumerate(known)}
    found = split_into_pieces("the unhappiness.", vocabulary)
    assert found == ["[CLS]", "the", "un", "##happi", "##ness", ".", "[SEP]"]


def test_the_recorded_maps_are_complete():
    found = load_maps()
    assert [one["title"] for one in found] == [*SENTENCES]
    for one, sizes in zip(found, load_value_norms(), strict=True):
        weights = torch.tensor(one["weights"])
        T = len(one["query"])
        assert sizes.shape == (6, 12, T)
        assert (sizes > 0).all()
        assert weights.shape == (6, 12, T, T)
        assert (weights >= 0).all()
        # Each of T numbers was rounded by at most half a thousandth.
        assert (weights.sum(-1) - 1).abs().max() <= T * 0.0005 + 1e-6
        assert one["query"][0] == "[CLS]"
        assert one["query"][-1] == "[SEP]"


def test_a_map_needs_no_model(monkeypatch):
    monkeypatch.delenv("ATTNBOOK_MINILM", raising=False)
    assert load_maps()


@pytest.mark.refusal
def test_a_missing_or_different_file_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"no .*model.safetensors: set ATTN"):
        load_weights(tmp_path)
    save_file({"x": torch.zeros(1)}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=f"has the SHA-256 .*{minilm.SHA256}"):
        load_weights(tmp_path)
    with pytest.raises(ValueError, match="begins 'xx' of the word 'axx'"):
        split_into_pieces("axx", {"a": 0})
