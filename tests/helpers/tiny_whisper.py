"""A tiny Whisper with random weights, and its file."""

import struct

import torch

from attnbook.models.pretrained_whisper import list_names
from attnbook.models.whisper import Whisper, WhisperConfig

CONFIG = WhisperConfig(
    mels=7,
    width=12,
    heads=3,
    hidden=10,
    blocks=2,
    positions=11,
    tokens=9,
    symbols=13,
)


def build(config=CONFIG):
    """Return a model whose key projections have a bias of zero."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        model = Whisper(config)
        with torch.no_grad():
            for name, p in model.named_parameters():
                p.add_(0.3 * torch.randn_like(p))
                if name.endswith("key.bias"):
                    p.zero_()
    return model.eval()


def make_records(model):
    """Return the weights under the names of CTranslate2, and a setting."""
    state, records = model.state_dict(), {"decoder/alibi": torch.tensor(0).char()}
    for theirs, ours in list_names(model.config.blocks).items():
        records[theirs] = torch.cat([state[name] for name in ours])
    return records


def pack_text(text):
    data = text.encode() + b"\0"
    return struct.pack("<H", len(data)) + data


def write_file(records):
    """Return the content of a file with these records."""
    numbers = {torch.float32: 0, torch.int8: 1, torch.float16: 4}
    parts = [struct.pack("<I", 6), pack_text("WhisperSpec")]
    parts.append(struct.pack("<II", 3, len(records)))
    for name, x in records.items():
        data = x.contiguous().numpy().tobytes()
        shape = struct.pack(f"<B{x.ndim}I", x.ndim, *x.shape)
        sizes = struct.pack("<BI", numbers[x.dtype], len(data))
        parts += [pack_text(name), shape, sizes, data]
    aliases = ("decoder/projection/weight", "decoder/embeddings/weight")
    return b"".join([*parts, struct.pack("<I", 1), *map(pack_text, aliases)])
