"""The recorded attention maps of a pretrained encoder, all-MiniLM-L6-v2.

Source: MiniLM of Wang et al. (2020), https://arxiv.org/abs/2002.10957; the
    maps are made by `workshop.experiments.minilm`.
Axes: L layers, H heads, T positions
"""

import torch
from jaxtyping import Float
from torch import Tensor

from attnbook.records import read_record


def load_maps() -> list[dict]:
    """Return the recorded maps, as `AttentionMap` takes them.

    Returns:
        One dict a sentence: its title; its tokens as "query"; and "weights",
        nested lists [layer][head][query position][key position] of numbers
        to 3 digits.
    """
    examples = read_record("minilm_maps")["results"]["examples"]
    return [
        {
            "title": one["title"],
            "query": one["tokens"],
            "weights": (torch.tensor(one["thousandths"]) / 1000)
            .double()
            .round(decimals=3)
            .tolist(),
        }
        for one in examples
    ]


def load_value_norms() -> list[Float[Tensor, "L H T"]]:
    """Return, for each of `load_maps()`, the norms of every head's values.

    A value is measured after the output projection, as the vector that the
    head would add to a state if all of its weight were on this position.
    """
    examples = read_record("minilm_maps")["results"]["examples"]
    return [torch.tensor(one["sizes"], dtype=torch.double) for one in examples]
