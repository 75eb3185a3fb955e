"""The head explorer: choose a sentence and a head of a recorded model.

It shows the weights as a map over tokens, the weights times the norms of the
transformed values, and how the loss of each token changes without the head. A
grid of all heads is colored by a score.

Source: weights times norms: Kobayashi et al. (2020),
    https://arxiv.org/abs/2004.10102
Axes: L layers, H heads, T positions
"""

import math
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path

import torch
import traitlets
from jaxtyping import Float
from torch import Tensor

from attnbook.widgets.base import BookWidget
from attnbook.widgets.examples import read_field, read_words, require_choice
from attnbook.widgets.mask_builder import read_integer

HERE = Path(__file__)
MOST = 24  # tokens of a sentence
LARGEST = 99_999  # a loss, or a change of one
SCORES = {
    "induction": "induction score",
    "previous": "previous-token score",
    "first": "first-token score",
    "effect": "ablation effect",
}
MEASURES = ("weight", "norm")


def read_integers(
    given: Iterable, count: int, low: int, high: int, what: str
) -> list[int]:
    """Return a list of so many whole numbers, or say what is wrong.

    Raises:
        ValueError: if there are more or fewer numbers, or one is no whole
            number from `low` to `high`.
    """
    numbers = list(given)
    if len(numbers) != count:
        raise ValueError(f"{what} has {len(numbers)} numbers, not {count}")
    return [read_integer(x, low, high, f"a number of {what}") for x in numbers]


def check_sentence(sentence: Mapping, heads: int) -> dict:
    """Return a sentence with its losses and the scores of all heads.

    Args:
        sentence: with `title`, `tokens`, `losses`, `induction_queries`,
            `chance` and the scores.
        heads: of all layers, L · H.

    Raises:
        ValueError: if a part is missing or does not fit.
    """
    title = str(read_field(sentence, "title", "a sentence"))

    def read(name: str):
        return read_field(sentence, name, title)

    tokens = read_words(read("tokens"), "tokens")
    T = len(tokens)
    if not 2 <= T <= MOST:
        raise ValueError(f"{title} has {T} tokens; a map shows 2 to {MOST}")
    chance = {
        name: read_integer(read_field(read("chance"), name, "chance"), 0, 100, name)
        for name in SCORES
        if name != "effect"
    }
    scores = {
        name: read_integers(
            read(name),
            heads,
            -LARGEST if name == "effect" else 0,
            LARGEST if name == "effect" else 100,
            f"the {SCORES[name]} of {title}",
        )
        for name in SCORES
    }
    return {
        "title": title,
        "tokens": tokens,
        "losses": read_integers(
            read("losses"), T - 1, 0, LARGEST, f"losses of {title}"
        ),
        "induction_queries": read_integer(
            read("induction_queries"), 0, T, "induction_queries"
        ),
        "chance": chance,
        **scores,
    }


def check_map(one: Mapping, T: int, title: str) -> dict:
    """Return what is recorded of a head on a sentence of T tokens.

    Raises:
        ValueError: if a part is missing, row t does not hold t + 1 whole
            numbers of which one is above 0, or a norm is not a positive number.
    """
    rows = list(read_field(one, "hundredths", title))
    if len(rows) != T:
        raise ValueError(f"{title} has {len(rows)} rows for {T} tokens")
    hundredths = [
        read_integers(row, t + 1, 0, 100, f"row {t} of {title}")
        for t, row in enumerate(rows)
    ]
    empty = [t for t, row in enumerate(hundredths) if not any(row)]
    if empty:
        raise ValueError(f"row {empty[0]} of {title} has no number above 0")
    norms = [float(x) for x in read_field(one, "norms", title)]
    if len(norms) != T or not all(0 < x < math.inf for x in norms):
        raise ValueError(
            f"{title} needs {T} positive norms, one a token; it has {norms!s:.60}"
        )
    effects = read_field(one, "effects", title)
    return {
        "hundredths": hundredths,
        "norms": norms,
        "effects": read_integers(
            effects, T - 1, -LARGEST, LARGEST, f"effects of {title}"
        ),
    }


def check_head(head: Mapping, layers: int, per_layer: int, lengths: list[int]) -> dict:
    """Return a head with a title, its place, and a map for each sentence.

    Raises:
        ValueError: if a part is missing or does not fit.
    """
    title = str(read_field(head, "title", "a head"))
    place = {
        "layer": read_integer(read_field(head, "layer", title), 0, layers - 1, "layer"),
        "head": read_integer(read_field(head, "head", title), 0, per_layer - 1, "head"),
    }
    maps = list(read_field(head, "maps", title))
    if len(maps) != len(lengths):
        raise ValueError(f"{title} has {len(maps)} maps for {len(lengths)} sentences")
    checked = [check_map(one, T, title) for one, T in zip(maps, lengths, strict=True)]
    return {"title": title, **place, "maps": checked}


def check_maps(maps: Mapping) -> dict:
    """Return what the explorer shows, checked.

    Raises:
        ValueError: if a part is missing or does not fit.
    """
    layers = read_integer(read_field(maps, "layers", "maps"), 1, 48, "layers")
    per_layer = read_integer(read_field(maps, "per_layer", "maps"), 1, 16, "per_layer")
    sentences = [
        check_sentence(one, layers * per_layer)
        for one in read_field(maps, "sentences", "maps")
    ]
    lengths = [len(one["tokens"]) for one in sentences]
    heads = [
        check_head(head, layers, per_layer, lengths)
        for head in read_field(maps, "heads", "maps")
    ]
    if not sentences or not heads:
        raise ValueError(
            f"there are {len(sentences)} sentences and {len(heads)} heads; "
            "the explorer needs at least 1 of each"
        )
    return {
        "layers": layers,
        "per_layer": per_layer,
        "sentences": sentences,
        "heads": heads,
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
