"""Recorded heads of SmolLM2-135M-Instruct on four sentences.

Source: SmolLM2 of Allal et al. (2025), https://arxiv.org/abs/2502.02737; the
    numbers are made by `workshop.experiments`, in the run
    `smollm2_head_explorer`.
Axes: L layers, H heads, T positions
"""

from attnbook.records import read_record

# What the recorded heads were chosen for.
KINDS = {
    "previous": "previous token",
    "induction": "induction",
    "duplicate": "duplicate token",
    "first": "first token",
    "effect": "large ablation effect",
    "ordinary": "middle rank in every score",
}


def load_head_maps() -> dict:
    """Return the recorded heads, as `HeadExplorer` takes them.

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
                "title": name_head(one),
                **{name: one[name] for name in ("layer", "head", "maps")},
            }
            for one in results["heads"]
        ],
    }


def name_head(head: dict) -> str:
    """Return what a recorded head is called; layers and heads count from 0."""
    return f"layer {head['layer']}, head {head['head']}: {KINDS[head['kind']]}"
