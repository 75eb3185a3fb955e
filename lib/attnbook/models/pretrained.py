"""Pretrained decoders: from the files of others to `ModernDecoder`.

A file is read only if its SHA-256 is the expected one: a file that was cut
short, or is another one, is refused before anything is read from it.

Source: names and layout of the weights: `LlamaForCausalLM` of transformers,
    https://huggingface.co/docs/transformers/model_doc/llama. It rotates columns
    i and i + D / 2 of a head, `ModernDecoder` columns 2i and 2i + 1.
Axes: H heads or groups, D width of a head, C model width
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from safetensors.torch import load
from torch import Tensor

from attnbook.models.modern_decoder import RotaryAttention
from attnbook.models.modern_decoder import DecoderConfig, ModernDecoder
from attnbook.positions.rotary import halves_permutation

# Our name of a weight of a block -> that of transformers.
BLOCK_NAMES = {
    "attention.query": "self_attn.q_proj",
    "attention.key": "self_attn.k_proj",
    "attention.value": "self_attn.v_proj",
    "attention.output": "self_attn.o_proj",
    "feed_forward.gate": "mlp.gate_proj",
    "feed_forward.up": "mlp.up_proj",
    "feed_forward.down": "mlp.down_proj",
    "norms.0": "input_layernorm",
    "norms.1": "post_attention_layernorm",
}
# The same of all weights; {} is the number of the block.
NAMES = {
    "embed.table.weight": "model.embed_tokens.weight",
    "norm.weight": "model.norm.weight",
} | {
    f"blocks.{{}}.{ours}.weight": f"model.layers.{{}}.{theirs}.weight"
    for ours, theirs in BLOCK_NAMES.items()
}
# Our name of a size -> that of transformers.
SIZES = {
    "symbols": "vocab_size",
    "width": "hidden_size",
    "heads": "num_attention_heads",
    "hidden": "intermediate_size",
    "blocks": "num_hidden_layers",
    "eps": "rms_norm_eps",
}
# What a configuration must say for its model to be a `ModernDecoder`.
REQUIRED = {
    "model_type": "llama",
    "hidden_act": "silu",
    "tie_word_embeddings": True,
    "attention_bias": False,
    "mlp_bias": False,
    "rope_type": "default",
}


@dataclass(frozen=True)
class Checkpoint:
    """The sizes and the weights of a pretrained decoder.

    Attributes:
        config: its sizes.
        weights: the state dict of a `ModernDecoder`.
    """

    config: DecoderConfig
    weights: dict[str, Tensor]

    def build(
        self, attention: type[RotaryAttention] = RotaryAttention
    ) -> ModernDecoder:
        """Return the model, which shares the weights with this checkpoint.

        Args:
            attention: the class of the attention, without weights of its own.
        """
        with torch.device("meta"):
            model = ModernDecoder(self.config, attention)
        model.load_state_dict(self.weights, assign=True)
        return model.eval()


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


def rename_weights(
    tensors: dict[str, Tensor], names: dict[str, str], config: DecoderConfig
) -> dict[str, Tensor]:
    """Return weights under our names, in single precision.

    Args:
        tensors: the weights under the names of their file.
        names: our name -> that of the file; {} is the number of the block.
        config: the sizes.

    Raises:
        ValueError: if a weight is missing, is unknown, or has another shape
            than the sizes ask for.
    """
    with torch.device("meta"):
        wanted = ModernDecoder(config).state_dict()
    renamed, left = {}, dict(tensors)
    for ours, theirs in names.items():
        for i in range(config.blocks if "{}" in ours else 1):
            name, theirs_i = ours.format(i), theirs.format(i)
            if theirs_i not in left:
                raise ValueError(
                    f"the file has no weight {theirs_i!r}, but {config.blocks} "
                    "blocks need it"
                )
            x = left.pop(theirs_i)
            if x.shape != wanted[name].shape:
                raise ValueError(
                    f"the weight {theirs_i!r} has shape {tuple(x.shape)}, but "
                    f"the sizes ask for {tuple(wanted[name].shape)}"
                )
            renamed[name] = x.float()
    if left:
        raise ValueError(
            f"the file has the weight {min(left)!r}, for which a decoder of "
            f"{config.blocks} blocks has no place"
        )
    return renamed


def pair_neighboring_rows(
    weight: Float[Tensor, "HD C"], heads: int
) -> Float[Tensor, "HD C"]:
    """Return a projection whose rotary pairs are (2i, 2i + 1).

    Args:
        weight: of queries or keys, with the pairs (i, i + D / 2) in each head.
        heads: H, into which the rows divide.
    """
    rows = weight.unflatten(0, (heads, -1))
    order = halves_permutation(rows.shape[1], device=weight.device)
    return rows[:, order.argsort()].flatten(0, 1)


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
    weights = rename_weights(tensors, NAMES, config)
    table = weights["embed.table.weight"]
    if output is not None and not torch.equal(output.float(), table):
        raise ValueError(
            "'lm_head.weight' differs from 'model.embed_tokens.weight', but "
            "the output layer must be tied to the embeddings"
        )
    for name in weights:
        for part, heads in ("query", config.heads), ("key", config.groups):
            if name.endswith(f"attention.{part}.weight"):
                weights[name] = pair_neighboring_rows(weights[name], heads)
    return weights


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
    said = {"attention_bias": False, "mlp_bias": False, **values}
    said["rope_type"] = kind
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


def read_llama_folder(folder: Path | str, sha256: str) -> Checkpoint:
    """Return a decoder that transformers stored with safetensors.

    Args:
        folder: with `config.json` and `model.safetensors`.
        sha256: of `model.safetensors`. The hub shows it on the page of a file;
            compare it with the one that its publisher names.

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
