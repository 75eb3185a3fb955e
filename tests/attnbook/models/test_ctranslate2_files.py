"""Reading Whisper from a tiny file that the tests write."""

import hashlib

import pytest
import torch

from attnbook.models.pretrained_whisper import read_records, read_whisper
from tiny_whisper import CONFIG, build, make_records, write_file


def write(path, change=None, drop=None, **more):
    """Write the tiny model; return the file's SHA-256."""
    records = make_records(build()) | (change or {})
    records.pop(drop, None)
    path.write_bytes(write_file(records, **more))
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_stored_model_comes_back(tmp_path):
    path = tmp_path / "tiny.bin"
    model = read_whisper(path, write(path))
    assert model.config == CONFIG
    assert not model.training
    wanted = build().state_dict()
    found = model.state_dict()
    assert found.keys() == wanted.keys()
    for name, x in found.items():
        assert torch.equal(x, wanted[name]), name


def test_half_precision_is_read_as_single(tmp_path):
    records = make_records(build())
    half = {n: x.half() for n, x in records.items() if x.is_floating_point()}
    path = tmp_path / "tiny.bin"
    model = read_whisper(path, write(path, change=half))
    table = model.decoder.embed.weight
    assert table.dtype == torch.float32
    assert torch.equal(table, half["decoder/embeddings/weight"].float())


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"kind": "TransformerSpec"},
            "'TransformerSpec' in version 6 .* 'WhisperSpec' in version 6",
        ),
        (
            {"change": {"decoder/activation": torch.tensor(0).char()}},
            "decoder/activation 0, but the model needs 3",
        ),
        ({"drop": "decoder/num_heads"}, "no value 'decoder/num_heads'"),
        (
            {"drop": "decoder/layer_1/attention/linear_1/bias"},
            "no weight 'decoder/layer_1/attention/linear_1/bias', but 2 blocks",
        ),
        (
            {"change": {"decoder/extra": torch.zeros(2)}},
            "the weight 'decoder/extra', for which a model of 2 blocks",
        ),
        (
            {"change": {"encoder/layer_0/ffn/linear_1/bias": torch.zeros(5)}},
            r"'encoder/layer_0/ffn/linear_1/bias' has shape \(5,\) .* \(12,\)",
        ),
    ],
)
def test_another_model_is_refused(change, message, tmp_path):
    path = tmp_path / "tiny.bin"
    sha256 = write(path, **change)
    with pytest.raises(ValueError, match=message):
        read_whisper(path, sha256)


@pytest.mark.refusal
def test_an_altered_file_is_refused_with_both_checksums(tmp_path):
    path = tmp_path / "tiny.bin"
    wanted = write(path)
    path.write_bytes(path.read_bytes()[:-7])
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    with pytest.raises(ValueError, match=f"{found}, not {wanted}"):
        read_whisper(path, wanted)


@pytest.mark.refusal
def test_a_file_that_ends_too_early_is_refused():
    data = write_file(make_records(build()))[:1000]
    with pytest.raises(ValueError, match=r"ends after 1,000 bytes, but .*"):
        read_records(data)
