"""Recorded attention maps, as the widgets take them.

Those of the encoder all-MiniLM-L6-v2, of the language model
SmolLM2-135M-Instruct, and of models that read pictures and sounds.

Source: MiniLM of Wang et al. (2020), https://arxiv.org/abs/2002.10957; SmolLM2
    of Allal et al. (2025), https://arxiv.org/abs/2502.02737. The maps are made
    by `workshop.experiments`, in the runs that the functions read.
Axes: L layers, H heads, T positions
"""

import torch
from jaxtyping import Float
from torch import Tensor

from attnbook.records import read_record

# Where a head of `load_smollm2_maps` puts most of its weight.
MAP_KINDS = {
    "sink": "the first token",
    "previous": "the token before",
    "local": "the last four tokens",
    "induction": "after an earlier copy",
    "far": "far back",
    "spread": "many tokens",
}
# What a head of `load_head_maps` was chosen for.
HEAD_KINDS = {
    "previous": "previous token",
    "induction": "induction",
    "duplicate": "duplicate token",
    "first": "first token",
    "effect": "large ablation effect",
    "ordinary": "middle rank in every score",
}


def load_maps() -> list[dict]:
    """Return MiniLM's recorded maps, as `AttentionMap` takes them.

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


def load_smollm2_maps() -> list[dict]:
    """Return SmolLM2's recorded maps, as `PatternExplorer` takes them.

    Returns:
        One dict a passage: its title; its tokens; and "heads", each with a
        title and its "thousandths": row t holds 1000 times the weights that the
        query at t gives the keys 0 to t, rounded.
    """

    def name(head: dict) -> str:
        if head["layer"] is None:
            return "mean of all heads"
        place = f"layer {head['layer'] + 1}, head {head['head'] + 1}"
        return f"{place}: {MAP_KINDS[head['kind']]}"

    return [
        {
            "title": one["title"],
            "tokens": one["tokens"],
            "heads": [
                {"title": name(head), "thousandths": head["thousandths"]}
                for head in one["heads"]
            ],
        }
        for one in read_record("smollm2_map")["results"]["examples"]
    ]


def load_head_maps() -> dict:
    """Return SmolLM2's recorded heads, as `HeadExplorer` takes them.

    Returns:
        `layers` (L) and `per_layer` (H); the `sentences`, each with scores and
        the ablation effect of all heads; and the `heads` whose maps were
        recorded, with a title and one map a sentence. Layers and heads count
        from 0.
    """
    results = read_record("smollm2_head_explorer")["results"]
    return {
        "layers": results["layers"],
        "per_layer": results["heads_per_layer"],
        "sentences": [
            {name: x for name, x in one.items() if name != "text"}
            for one in results["sentences"]
        ],
        "heads": [
            {
                "title": f"layer {one['layer']}, head {one['head']}: "
                f"{HEAD_KINDS[one['kind']]}",
                **{name: one[name] for name in ("layer", "head", "maps")},
            }
            for one in results["heads"]
        ],
    }


def load_examples() -> list[dict]:
    """Return pictures and sounds of digits, as `PictureAndSound` takes them.

    Returns:
        Dicts with `kind`, `title`, `gray`, `grid`, `milliseconds` and `steps`;
        each step has a `label`, a `part`, `thousandths` and a `box`.
    """
    return read_record("picture_and_sound")["results"]["items"]
