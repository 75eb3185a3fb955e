"""Recorded attention maps of a language model, SmolLM2-135M-Instruct.

Source: SmolLM2 of Allal et al. (2025), https://arxiv.org/abs/2502.02737; the
    maps are made by `workshop.experiments`, in the run `smollm2_map`.
Axes: T positions
"""

from attnbook.records import read_record

# What the recorded heads were chosen for: where most of the weight is.
KINDS = {
    "sink": "the first token",
    "previous": "the token before",
    "local": "the last four tokens",
    "induction": "after an earlier copy",
    "far": "far back",
    "spread": "many tokens",
}


def load_maps() -> list[dict]:
    """Return the recorded maps, as `PatternExplorer` takes them.

    Returns:
        One dict a passage: its title; its tokens; and "heads", each with a
        title and its "thousandths": row t holds 1000 times the weights that the
        query at t gives the keys 0 to t, rounded.
    """
    examples = read_record("smollm2_map")["results"]["examples"]
    return [
        {
            "title": one["title"],
            "tokens": one["tokens"],
            "heads": [
                {"title": name_head(head), "thousandths": head["thousandths"]}
                for head in one["heads"]
            ],
        }
        for one in examples
    ]


def name_head(head: dict) -> str:
    """Return what a recorded head is called; layers and heads count from 1."""
    if head["layer"] is None:
        return "mean of all heads"
    place = f"layer {head['layer'] + 1}, head {head['head'] + 1}"
    return f"{place}: {KINDS[head['kind']]}"
