"""Pretrained decoders and their tokenizers in GGUF files, those of llama.cpp.

A GGUF file holds the sizes, the vocabulary and the weights of a model; most
weights are quantized: 32 neighboring numbers share a scale (Q8_0), or a scale
and a minimum (Q4_1). They are read as single precision. llama.cpp permutes
the rows of query and key projections, so that rotary embeddings rotate
neighboring columns, as `ModernDecoder` does.

Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md; read with
    the package gguf of llama.cpp, tokenized with Hugging Face's tokenizers.
"""

from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

from attnbook.models.modern_decoder import DecoderConfig
from attnbook.models.pretrained import (
    Checkpoint,
    read_verified,
    rename_weights,
)

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# Our name of a weight -> that of the file; {} is the number of the block.
NAMES = {
    "embed.table.weight": "token_embd.weight",
    "norm.weight": "output_norm.weight",
    "blocks.{}.attention.query.weight": "blk.{}.attn_q.weight",
    "blocks.{}.attention.key.weight": "blk.{}.attn_k.weight",
    "blocks.{}.attention.value.weight": "blk.{}.attn_v.weight",
    "blocks.{}.attention.output.weight": "blk.{}.attn_output.weight",
    "blocks.{}.feed_forward.gate.weight": "blk.{}.ffn_gate.weight",
    "blocks.{}.feed_forward.up.weight": "blk.{}.ffn_up.weight",
    "blocks.{}.feed_forward.down.weight": "blk.{}.ffn_down.weight",
    "blocks.{}.norms.0.weight": "blk.{}.attn_norm.weight",
    "blocks.{}.norms.1.weight": "blk.{}.ffn_norm.weight",
}
# Our name of a size -> that of the file.
SIZES = {
    "symbols": "llama.vocab_size",
    "width": "llama.embedding_length",
    "heads": "llama.attention.head_count",
    "groups": "llama.attention.head_count_kv",
    "hidden": "llama.feed_forward_length",
    "blocks": "llama.block_count",
    "base": "llama.rope.freq_base",
    "eps": "llama.attention.layer_norm_rms_epsilon",
}
# The vocabularies that `read_gguf_tokenizer` knows how to use.
TOKENIZER = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm"}
CONTROL = 3  # the type of a token that no text contains


def require_package(name: str) -> ModuleType:
    """Return an optional package.

    Raises:
        ModuleNotFoundError: if it is not installed.
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"this model needs the package {name!r}, which is not installed: "
            'pip install "gguf>=0.17" "tokenizers>=0.22"'
        ) from error


class Fields:
    """The named values of a GGUF file.

    Args:
        reader: the package's reader of the file.
    """

    def __init__(self, reader: Any):
        self.fields = reader.fields

    def __getitem__(self, name: str) -> Any:
        """Return a value.

        Raises:
            ValueError: if the file has none of this name.
        """
        if name not in self.fields:
            raise ValueError(f"the GGUF file has no value {name!r}")
        return self.fields[name].contents()

    def require(self, name: str, wanted: object) -> None:
        """Raise ValueError if a value that is there is not the wanted one."""
        if name in self.fields and self[name] != wanted:
            raise ValueError(
                f"the GGUF file has {name} {self[name]!r}, but the decoder "
                f"needs {wanted!r}"
            )


def open_gguf(path: Path | str, sha256: str) -> Any:
    """Return the package's reader of a file, if it is the expected one.

    Raises:
        ValueError: if there is no such file, or it has another SHA-256.
        ModuleNotFoundError: if the package gguf is not installed.
    """
    gguf = require_package("gguf")
    read_verified(Path(path), sha256)
    return gguf.GGUFReader(path)


def read_gguf(path: Path | str, sha256: str) -> Checkpoint:
    """Return the decoder of a GGUF file.

    Args:
        path: of the file.
        sha256: its checksum.

    Raises:
        ValueError: if there is no such file, it has another SHA-256, or its
            model is no `ModernDecoder`.
        ModuleNotFoundError: if the package gguf is not installed.
    """
    reader = open_gguf(path, sha256)
    gguf = require_package("gguf")
    fields = Fields(reader)
    fields.require("general.architecture", "llama")
    fields.require("llama.rope.scaling.type", "none")
    config = DecoderConfig(**{x: fields[name] for x, name in SIZES.items()})
    width = config.width // config.heads
    fields.require("llama.rope.dimension_count", width)
    fields.require("llama.attention.key_length", width)
    tensors = {
        x.name: torch.from_numpy(gguf.dequantize(x.data, x.tensor_type).copy())
        for x in reader.tensors
    }
    return Checkpoint(config, rename_weights(tensors, NAMES, config))


def read_gguf_tokenizer(path: Path | str, sha256: str) -> "Tokenizer":
    """Return the tokenizer of a GGUF file: byte-level BPE.

    Every digit is a piece of its own, and the control tokens of a
    conversation, such as <|im_start|>, are one symbol each.

    Args:
        path: of the file.
        sha256: its checksum.

    Raises:
        ValueError: if there is no such file, it has another SHA-256, or
            another kind of vocabulary.
        ModuleNotFoundError: if gguf or tokenizers is not installed.
    """
    tokenizers = require_package("tokenizers")
    fields = Fields(open_gguf(path, sha256))
    for name, wanted in TOKENIZER.items():
        fields.require(name, wanted)
    tokens = fields["tokenizer.ggml.tokens"]
    merges = [tuple(x.split(" ")) for x in fields["tokenizer.ggml.merges"]]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    parts = tokenizers.pre_tokenizers
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.BPE(vocab=vocabulary, merges=merges)
    )
    tokenizer.pre_tokenizer = parts.Sequence(
        [
            parts.Digits(individual_digits=True),
            parts.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    kinds = fields["tokenizer.ggml.token_type"]
    control = [t for t, k in zip(tokens, kinds, strict=True) if k == CONTROL]
    tokenizer.add_special_tokens(control)
    return tokenizer
