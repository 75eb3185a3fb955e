"""The head explorer: choose a sentence and a head of a recorded model.

It shows the weights as a map over tokens, the weights times the norms of the
transformed values, and how the loss of each token changes without the head. A
grid of all heads is colored by a score.

Source: weights times norms: Kobayashi et al. (2020),
    https://arxiv.org/abs/2004.10102
Axes: L layers, H heads, T positions
"""

from collections.abc import Mapping
from html import escape
from pathlib import Path

import torch
import traitlets
from jaxtyping import Float
from torch import Tensor

from attnbook.widgets.base import BookWidget
from attnbook.widgets.examples import require_choice

HERE = Path(__file__)
MOST = 24  # tokens of a sentence
SCORES = {
    "induction": "induction score",
    "previous": "previous-token score",
    "first": "first-token score",
    "effect": "ablation effect",
}


class HeadExplorer(BookWidget):
    """Recorded heads of a model: weights, value norms and ablation effects.

    Layers and heads count from 0.

    Args:
        maps: a dict with `layers`, `per_layer`, `sentences` and `heads`, as
            `attnbook.data.recorded_maps.load_head_maps` returns it.
        sentence: which is shown first.
        layer: of the head that is shown first, and its
        head: unless given, the recorded head with the largest score.
        score: colors the grid: "induction", "previous", "first" or "effect".
        measure: of the map: "weight", or "norm" for the weight times the norm.
        query: whose keys are listed; the last one unless given.

    Raises:
        ValueError: if there is no such sentence; traitlets.TraitError if there
            is no such score or measure.
    """

    _esm = HERE.with_suffix(".js")
    _css = HERE.with_suffix(".css")
    layers = traitlets.Int().tag(sync=True)
    per_layer = traitlets.Int().tag(sync=True)
    sentences = traitlets.List().tag(sync=True)
    heads = traitlets.List().tag(sync=True)
    sentence = traitlets.Int().tag(sync=True)
    layer = traitlets.Int().tag(sync=True)
    head = traitlets.Int().tag(sync=True)
    score = traitlets.Enum(tuple(SCORES)).tag(sync=True)
    measure = traitlets.Enum(("weight", "norm"), "weight").tag(sync=True)
    query = traitlets.Int().tag(sync=True)

    def __init__(
        self,
        maps: Mapping,
        sentence: int = 0,
        layer: int | None = None,
        head: int | None = None,
        score: str = "induction",
        query: int | None = None,
        **traits,
    ):
        made = {name: maps[name] for name in ("layers", "per_layer", "heads")}
        made["sentences"] = [order_sentence(x) for x in maps["sentences"]]
        require_choice("sentence", sentence, len(made["sentences"]))
        if score not in SCORES:
            raise ValueError(f"score is {score!r}, not one of {[*SCORES]}")
        one = made["sentences"][sentence]
        best = max(
            ((x["layer"], x["head"]) for x in made["heads"]),
            key=lambda at: one[score][at[0] * made["per_layer"] + at[1]],
        )
        super().__init__(
            **made,
            sentence=sentence,
            layer=best[0] if layer is None else layer,
            head=best[1] if head is None else head,
            score=score,
            query=len(one["tokens"]) - 1 if query is None else query,
            **traits,
        )

    def read_scores(self, score: str) -> Float[Tensor, "L H"]:
        """Return a score of all heads; the ablation effect is in nats."""
        one = self.sentences[self.sentence]
        scores = torch.tensor(one[score], dtype=torch.float64)
        divisor = 1000 if score == "effect" else 100
        return scores.reshape(self.layers, self.per_layer) / divisor

    def describe_finding(self) -> str:
        """Return which head has the largest score, and its ablation effect."""
        one = self.sentences[self.sentence]
        effects = self.read_scores("effect")
        largest = int(effects.argmax())
        end = f"the largest rise is {float(effects.max()):.2f} nats, without "
        end += f"{name_place(largest, self.per_layer)}"
        if self.score == "effect":
            return f"when one head is removed, {end}"
        scores = self.read_scores(self.score)
        best = int(scores.argmax())
        effect = float(effects.flatten()[best])
        change = f"{'rises' if effect >= 0 else 'falls'} by {abs(effect):.2f}"
        return (
            f"{name_place(best, self.per_layer)} has the largest "
            f"{SCORES[self.score]} ({float(scores.max()):.2f}; equal weights "
            f"would give {one['chance'][self.score] / 100:.2f}); without it, "
            f"the mean loss {change} nats; {end}"
        )

    def fallback(self) -> str:
        """Return what the scores of the recorded heads are, as a table."""
        one = self.sentences[self.sentence]
        top = "".join(f"<th>{name}</th>" for name in SCORES.values())
        body = ""
        for head in self.heads:
            at = head["layer"], head["head"]
            cells = "".join(
                f"<td>{float(self.read_scores(name)[at]):{form}}</td>"
                for name, form in zip(SCORES, [".2f"] * 3 + ["+.3f"], strict=True)
            )
            body += f"<tr><th>{escape(head['title'])}</th>{cells}</tr>"
        count = self.layers * self.per_layer
        return (
            f"<figure><figcaption>Of {count} heads on one sentence of "
            f"{len(one['tokens'])} tokens ({escape(one['title'])}), "
            f"{self.describe_finding()}. The table has the heads whose maps "
            f"were recorded; the ablation effect is the change of the mean "
            f"loss in nats.</figcaption><table><thead><tr><th>head</th>{top}"
            f"</tr></thead><tbody>{body}</tbody></table></figure>"
        )


def order_sentence(sentence: Mapping) -> dict:
    """Return a sentence whose scores are in the order in which they are shown."""
    order = "title", "tokens", "losses", "induction_queries", "chance", *SCORES
    made = {name: sentence[name] for name in order}
    shares = [name for name in SCORES if name != "effect"]
    return made | {"chance": {name: made["chance"][name] for name in shares}}


def name_place(index: int, per_layer: int) -> str:
    """Return the layer and the head of an index into all heads."""
    layer, head = divmod(index, per_layer)
    return f"layer {layer}, head {head}"
