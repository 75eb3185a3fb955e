"""Reading a pretrained decoder: tiny files that the tests write.

What is read is compared with transformers itself in
tests/oracles/against_transformers.py.
"""

import hashlib
import json
import sys
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file

from attnbook.models.modern_decoder import DecoderConfig
from attnbook.models.pretrained import (
    NAMES,
    convert_llama_weights,
    load_from_hub,
    read_llama_config,
    read_llama_folder,
)
from attnbook.positions.rotary import halves_permutation
from perturbed import build_decoder

# Heads of width 6: with 4, the order of rotary pairs is its own inverse.
CONFIG = DecoderConfig(11, 18, 3, 1, 5, 2, base=500.0, eps=1e-3)
THEIRS = {
    "model_type": "llama",
    "vocab_size": 11,
    "hidden_size": 18,
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
    "intermediate_size": 5,
    "num_hidden_layers": 2,
    "rms_norm_eps": 1e-3,
    "rope_theta": 500.0,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
}


def store(weight, heads):
    """Return rows in the order in which transformers stores them."""
    rows = weight.unflatten(0, (heads, -1))
    return rows[:, halves_permutation(rows.shape[1])].flatten(0, 1)


def rename(model):
    """Return the weights under the names of transformers."""
    found = {}
    for name, x in model.state_dict().items():
        block = name.split(".")[1]
        key = name.replace(f"blocks.{block}.", "blocks.{}.")
        if ".query." in name or ".key." in name:
            x = store(x, CONFIG.heads if ".query." in name else CONFIG.groups)
        found[NAMES[key].format(block)] = x.clone()
    return found


@pytest.fixture
def folder(tmp_path):
    save_file(rename(build_decoder(CONFIG)), tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(THEIRS))
    return tmp_path


def get_sha256(folder):
    data = (folder / "model.safetensors").read_bytes()
    return hashlib.sha256(data).hexdigest()


def test_a_stored_model_comes_back(folder):
    checkpoint = read_llama_folder(folder, get_sha256(folder).upper())
    assert checkpoint.config == CONFIG
    model, ids = build_decoder(CONFIG), torch.tensor([[3, 10, 0, 7]])
    for name, x in model.state_dict().items():
        assert torch.equal(checkpoint.weights[name], x), name
    built = checkpoint.build()
    assert torch.equal(built(ids), model(ids))
    assert not built.training
    assert all(p.requires_grad for p in built.parameters())


def test_a_model_of_the_hub_is_that_revision_and_checksum(folder, monkeypatch):
    asked = {}

    def snapshot_download(repo, revision, allow_patterns):
        asked.update(repo=repo, revision=revision, files=allow_patterns)
        return str(folder)

    hub = SimpleNamespace(snapshot_download=snapshot_download)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    found = load_from_hub("a/b", "c0ffee", get_sha256(folder))
    assert found.config == CONFIG
    assert (asked["repo"], asked["revision"]) == ("a/b", "c0ffee")
    with pytest.raises(ValueError, match="it is another file"):
        load_from_hub("a/b", "c0ffee", "0" * 64)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ModuleNotFoundError, match='install "huggingface_hub'):
        load_from_hub("a/b", "c0ffee", "0" * 64)


def test_both_generations_of_configurations_are_read():
    for change in (
        {"rope_theta": 1.0, "rope_parameters": {"rope_theta": 500}},
        {"rope_scaling": {"rope_type": "default"}, "head_dim": 6},
    ):
        assert read_llama_config(THEIRS | change) == CONFIG


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "gpt2"}, "model_type 'gpt2', but .* needs 'llama'"),
        ({"attention_bias": True}, "attention_bias True, but .* needs False"),
        ({"rope_scaling": {"type": "yarn"}}, "rope_type 'yarn'"),
        ({"head_dim": 8}, "8 wide, but 3 heads .* width 18 must be 6"),
    ],
)
def test_a_configuration_of_another_model_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        read_llama_config(THEIRS | change)


@pytest.mark.refusal
def test_an_output_layer_of_its_own_is_refused():
    tensors = rename(build_decoder(CONFIG))
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"] + 1
    message = "'lm_head.weight' differs from 'model.embed_tokens.weight'"
    with pytest.raises(ValueError, match=message):
        convert_llama_weights(tensors, CONFIG)
