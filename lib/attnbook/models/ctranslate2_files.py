"""Whisper models in the binary files of CTranslate2.

Such a file is a header, then one record per weight: its name, its shape, the
number of its data type and its values. All numbers are little-endian. The
query, key and value projections of a self-attention are stacked in one matrix,
and so are the key and value projections of a cross-attention.

Source: `model_spec.py` (writing) and `src/models/model.cc` (reading) of
    https://github.com/OpenNMT/CTranslate2, version 6 of the format
"""

import struct
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from attnbook.models.pretrained import read_verified
from attnbook.models.whisper import Whisper, WhisperConfig

VERSION, SPECIFICATION = 6, "WhisperSpec"
# The number of a data type -> the data type.
TYPES = {
    0: torch.float32,
    1: torch.int8,
    2: torch.int16,
    3: torch.int32,
    4: torch.float16,
    5: torch.bfloat16,
}
# What a file must say for its model to be a `Whisper`.
REQUIRED = {
    "decoder/activation": 3,  # GELU
    "decoder/alibi": 0,
    "decoder/pre_norm": 1,
    "decoder/scale_embeddings": 0,
    "decoder/start_from_zero_embedding": 0,
}
# What a file says beyond `REQUIRED` and the weights.
OTHERS = {
    "decoder/alignment_heads",
    "decoder/alignment_layer",
    "decoder/num_heads",
    "encoder/num_heads",
}
# Our name -> that of the file. {} is the number of a block; where the file has
# several projections in one matrix, there is a tuple of our names.
ATTENTION = {
    ("query", "key", "value"): "self_attention/linear_0",
    ("output",): "self_attention/linear_1",
}
CROSS = {
    ("query",): "attention/linear_0",
    ("key", "value"): "attention/linear_1",
    ("output",): "attention/linear_2",
}
NORMS = {
    "encoder": ("self_attention", "ffn"),
    "decoder": ("self_attention", "attention", "ffn"),
}
NAMES = {
    "decoder.embed.weight": "decoder/embeddings/weight",
    "decoder.positions": "decoder/position_encodings/encodings",
    "encoder.positions": "encoder/position_encodings/encodings",
    "encoder.first.weight": "encoder/conv1/weight",
    "encoder.first.bias": "encoder/conv1/bias",
    "encoder.second.weight": "encoder/conv2/weight",
    "encoder.second.bias": "encoder/conv2/bias",
}


def read_records(data: bytes) -> dict[str, Tensor]:
    """Return the weights and settings of a file by their names.

    Raises:
        ValueError: if the file has another version of the format, is of
            another kind of model, or ends too early.
    """
    reader = Reader(data)
    version, kind = reader.read_number("I"), reader.read_text()
    if (version, kind) != (VERSION, SPECIFICATION):
        raise ValueError(
            f"the file is a {kind!r} in version {version} of the format, but "
            f"a {SPECIFICATION!r} in version {VERSION} is expected"
        )
    reader.read_number("I")  # the revision of the specification
    return dict(reader.read_record() for _ in range(reader.read_number("I")))


class Reader:
    """Reads numbers, texts and tensors one after the other.

    Args:
        data: the content of a file.
    """

    def __init__(self, data: bytes):
        self.data, self.start = data, 0

    def take(self, size: int) -> bytes:
        """Return the next bytes.

        Raises:
            ValueError: if fewer are left.
        """
        part = self.data[self.start : self.start + size]
        if len(part) < size:
            raise ValueError(
                f"the file ends after {len(self.data):,} bytes, but its next "
                f"part needs {self.start + size:,}"
            )
        self.start += size
        return part

    def read_number(self, kind: str) -> int:
        """Return an unsigned integer: of 1 (B), 2 (H) or 4 bytes (I)."""
        form = f"<{kind}"
        return int(struct.unpack(form, self.take(struct.calcsize(form)))[0])

    def read_text(self) -> str:
        """Return a text, which begins with its length and ends with a zero."""
        return self.take(self.read_number("H")).rstrip(b"\0").decode("utf8")

    def read_record(self) -> tuple[str, Tensor]:
        """Return a name and its tensor."""
        name, rank = self.read_text(), self.read_number("B")
        shape = [self.read_number("I") for _ in range(rank)]
        dtype, size = TYPES[self.read_number("B")], self.read_number("I")
        # A copy, because the tensor would share read-only memory.
        values = torch.frombuffer(bytearray(self.take(size)), dtype=dtype)
        return name, values.reshape(shape)


def list_layers(blocks: int) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield our names of layers and that of the file in which they are.

    Args:
        blocks: L, of the encoder and of the decoder.
    """
    for part, norms in NORMS.items():
        yield (f"{part}.norm",), f"{part}/layer_norm"
        for i in range(blocks):
            ours, theirs = f"{part}.blocks.{i}", f"{part}/layer_{i}"
            for k, name in enumerate(norms):
                norm = f"{ours}.residuals.{k}.norm"
                yield (norm,), f"{theirs}/{name}/layer_norm"
            for k, name in enumerate(("up", "down")):
                layer = f"{ours}.feed_forward.{name}"
                yield (layer,), f"{theirs}/ffn/linear_{k}"
            kinds = {"attention": ATTENTION, "cross": CROSS}
            for kind, table in kinds.items():
                if kind == "attention" or part == "decoder":
                    for names, theirs_too in table.items():
                        layers = tuple(f"{ours}.{kind}.{x}" for x in names)
                        yield layers, f"{theirs}/{theirs_too}"


def rename_weights(
    records: dict[str, Tensor], config: WhisperConfig
) -> dict[str, Tensor]:
    """Return the weights under our names, in single precision.

    Raises:
        ValueError: if a weight is missing, is unknown, or has another shape
            than the sizes ask for.
    """
    with torch.device("meta"):
        wanted = Whisper(config).state_dict()
    left, renamed = dict(records), {}

    def take(name: str, *ours: str) -> None:
        if name not in left:
            raise ValueError(
                f"the file has no weight {name!r}, but {config.blocks} blocks need it"
            )
        parts = left.pop(name).float().chunk(len(ours))
        for our, x in zip(ours, parts, strict=True):
            if x.shape != wanted[our].shape:
                raise ValueError(
                    f"the weight {name!r} has shape {tuple(x.shape)} for "
                    f"{our!r}, but the sizes ask for {tuple(wanted[our].shape)}"
                )
            renamed[our] = x

    for our, theirs in NAMES.items():
        take(theirs, our)
    for layers, theirs in list_layers(config.blocks):
        norm = theirs.endswith("layer_norm")
        kinds = ("gamma", "beta") if norm else ("weight", "bias")
        for our, kind in zip(("weight", "bias"), kinds, strict=True):
            take(f"{theirs}/{kind}", *(f"{layer}.{our}" for layer in layers))
    unknown = left.keys() - REQUIRED.keys() - OTHERS
    if unknown:
        raise ValueError(
            f"the file has the weight {min(unknown)!r}, for which a model of "
            f"{config.blocks} blocks has no place"
        )
    return renamed


def read_config(records: dict[str, Tensor]) -> WhisperConfig:
    """Return the sizes of a model.

    Raises:
        ValueError: if a value or weight that tells them is missing, or the
            model is no `Whisper`.
    """

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


def read_whisper(path: Path | str, sha256: str) -> Whisper:
    """Return the model of a file, in single precision and evaluation mode.

    Args:
        path: of the file.
        sha256: its checksum.

    Raises:
        ValueError: if there is no such file, it has another SHA-256, or its
            model is no `Whisper`.
    """
    records = read_records(read_verified(Path(path), sha256))
    config = read_config(records)
    with torch.device("meta"):
        model = Whisper(config)
    weights = rename_weights(records, config)
    model.load_state_dict(weights, assign=True)
    return model.eval()
