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
from attnbook.widgets.examples import (
    read_fields,
    read_words,
    require_choice,
    require_length,
)

HERE = Path(__file__)
MOST = 24  # tokens of a sentence
SCORES = {
    "induction": "induction score",
    "previous": "previous-token score",
    "first": "first-token score",
    "effect": "ablation effect",
}
MEASURES = ("weight", "norm")
SENTENCE = ("title", "tokens", "losses", "induction_queries", "chance", *SCORES)
HEAD = ("title", "layer", "head", "maps")
MAP = ("hundredths", "norms", "effects")


def check_maps(maps: Mapping) -> dict:
    """Return what the explorer shows: recorded numbers whose counts fit."""
    made = read_fields(maps, ("layers", "per_layer", "sentences", "heads"), "maps")
    if not made["sentences"] or not made["heads"]:
        raise ValueError(
            f"there are {len(made['sentences'])} sentences and "
            f"{len(made['heads'])} heads; the explorer needs at least 1 of each"
        )
    made["sentences"] = [
        read_fields(x, SENTENCE, "a sentence") for x in made["sentences"]
    ]
    made["heads"] = [read_fields(x, HEAD, "a head") for x in made["heads"]]
    for sentence in made["sentences"]:
        title, T = sentence["title"], len(read_words(sentence["tokens"], "tokens"))
        if not 2 <= T <= MOST:
            raise ValueError(f"{title} has {T} tokens; a map shows 2 to {MOST}")
        require_length(sentence["losses"], T - 1, f"losses of {title}")
        for name, what in SCORES.items():
            count = made["layers"] * made["per_layer"]
            require_length(sentence[name], count, f"the {what} of {title}")
        shares = [name for name in SCORES if name != "effect"]
        sentence["chance"] = read_fields(sentence["chance"], shares, title)
    lengths = [len(x["tokens"]) for x in made["sentences"]]
    for head in made["heads"]:
        title = head["title"]
        head["maps"] = [read_fields(x, MAP, title) for x in head["maps"]]
        for T, one in zip(lengths, head["maps"], strict=True):
            require_length(one["norms"], T, f"norms of {title}")
            require_length(one["effects"], T - 1, f"effects of {title}")
            require_length(one["hundredths"], T, f"rows of {title}")
            for t, row in enumerate(one["hundredths"]):
                require_length(row, t + 1, f"row {t} of {title}")
    return made


class HeadExplorer(BookWidget):
    """Recorded heads of a model: weights, value norms and ablation effects.

    Layers and heads count from 0.

    Args:
        maps: a dict with `layers`, `per_layer`, `sentences` and `heads`, as
            `attnbook.data.smollm2_head_maps.load_head_maps` returns it.
        sentence: which is shown first.
        layer: of the head that is shown first, and its
        head: unless given, the recorded head with the largest score.
        score: colors the grid: "induction", "previous", "first" or "effect".
        measure: of the map: "weight", or "norm" for the weight times the norm.
        query: whose keys are listed; the last one unless given.

    Raises:
        ValueError: if the maps do not fit together, or there is no such
            sentence, layer, head, score, measure or query.
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
    score = traitlets.Unicode().tag(sync=True)
    measure = traitlets.Unicode().tag(sync=True)
    query = traitlets.Int().tag(sync=True)

    def __init__(
        self,
        maps: Mapping,
        sentence: int = 0,
        layer: int | None = None,
        head: int | None = None,
        score: str = "induction",
        measure: str = "weight",
        query: int | None = None,
        **traits,
    ):
        made = check_maps(maps)
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
            measure=measure,
            query=len(one["tokens"]) - 1 if query is None else query,
            **traits,
        )

    @traitlets.validate("sentence", "layer", "head", "query")
    def _exists(self, proposal) -> int:
        name = proposal["trait"].name
        counts = {
            "sentence": len(self.sentences),
            "layer": self.layers,
            "head": self.per_layer,
            "query": MOST,
        }
        if name == "query" and self.sentence < len(self.sentences):
            counts["query"] = len(self.sentences[self.sentence]["tokens"])
        require_choice(name, proposal["value"], counts[name])
        return proposal["value"]

    @traitlets.validate("score", "measure")
    def _known(self, proposal) -> str:
        name = proposal["trait"].name
        known = [*(SCORES if name == "score" else MEASURES)]
        if proposal["value"] not in known:
            raise ValueError(f"{name} is {proposal['value']!r}, not one of {known}")
        return proposal["value"]

    def read_scores(self, score: str) -> Float[Tensor, "L H"]:
        """Return a score of all heads; the ablation effect is in nats."""
        one = self.sentences[self.sentence]
        scores = torch.tensor(one[score], dtype=torch.float64)
        divisor = 1000 if score == "effect" else 100
        return scores.reshape(self.layers, self.per_layer) / divisor

    def rank_head(self, score: str) -> int:
        """Return 1 plus the number of heads with a larger score."""
        scores = self.read_scores(score)
        return 1 + int((scores > scores[self.layer, self.head]).sum())

    def find_map(self) -> dict:
        """Return what is recorded of the shown head on the shown sentence.

        Raises:
            ValueError: if nothing is recorded of this head.
        """
        for one in self.heads:
            if (one["layer"], one["head"]) == (self.layer, self.head):
                return one["maps"][self.sentence]
        known = ", ".join(f"{x['layer']}.{x['head']}" for x in self.heads)
        raise ValueError(
            f"the map of layer {self.layer}, head {self.head} is not recorded; "
            f"those of these heads are: {known}"
        )

    def weights(self) -> Float[Tensor, "T T"]:
        """Return the weights of the shown head; each row sums to 1."""
        rows = self.find_map()["hundredths"]
        whole = torch.zeros(len(rows), len(rows), dtype=torch.float64)
        for t, row in enumerate(rows):
            whole[t, : t + 1] = torch.tensor(row, dtype=torch.float64)
        return whole / whole.sum(dim=-1, keepdim=True)

    def weighted_norms(self) -> Float[Tensor, "T T"]:
        """Return weights times value norms, each row divided by its sum."""
        norms = torch.tensor(self.find_map()["norms"], dtype=torch.float64)
        products = self.weights() * norms
        return products / products.sum(dim=-1, keepdim=True)

    def effects(self) -> Float[Tensor, "_"]:
        """Return how the loss of each token but the first changes, in nats."""
        effects = self.find_map()["effects"]
        return torch.tensor(effects, dtype=torch.float64) / 100

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


def name_place(index: int, per_layer: int) -> str:
    """Return the layer and the head of an index into all heads."""
    layer, head = divmod(index, per_layer)
    return f"layer {layer}, head {head}"
