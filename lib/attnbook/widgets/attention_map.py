"""The attention map: choose a word, and see the weights of each head.

Source: the head view of Vig (2019), section 2.1,
    https://arxiv.org/abs/1906.05714
Axes: L layers, H heads, T queries, S keys
"""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

import traitlets

from attnbook.widgets.base import BookWidget
from attnbook.widgets.examples import read_weights, require_choice

HERE = Path(__file__)


def check_example(example: Mapping) -> dict:
    """Return an example with its weights to 3 digits.

    Raises:
        ValueError: if the weights are not (L, H, T, S).
    """
    query = list(example["query"])
    key = list(example.get("key", query))
    weights = read_weights(example["weights"], len(query), len(key))
    title = str(example["title"])
    return {"title": title, "query": query, "key": key, "weights": weights}


class AttentionMap(BookWidget):
    """Real weights of one or many heads; layers and heads count from 0 here.

    On the screen they count from 1, and say of how many.

    Args:
        examples: dicts with a title, the words `query` and `key` (the same
            unless given), and `weights` (L, H, T, S).
        layer: shown first.
        head: shown first.
        heads: "one" shows a head at a time, "all" a layer's heads side by side.

    Raises:
        ValueError: if an example does not fit together, or has no such layer or
            head.
    """

    _esm = HERE.with_suffix(".js")
    _css = HERE.with_suffix(".css")
    examples = traitlets.List(minlen=1).tag(sync=True)
    layer = traitlets.Int(0).tag(sync=True)
    head = traitlets.Int(0).tag(sync=True)
    heads = traitlets.Enum(("one", "all"), "one").tag(sync=True)

    def __init__(self, examples: Sequence[Mapping], **traits):
        super().__init__(examples=list(examples), **traits)
        first = self.examples[0]["weights"]
        require_choice("layer", self.layer, len(first))
        require_choice("head", self.head, len(first[0]))

    @traitlets.validate("examples")
    def _fitting(self, proposal) -> list[dict]:
        return [check_example(example) for example in proposal["value"]]

    def fallback(self) -> str:
        """Return the first map shown as a table of numbers."""
        first = self.examples[0]
        rows = first["weights"][self.layer][self.head]
        top = "".join(f"<th>{escape(word)}</th>" for word in first["key"])
        body = "".join(
            f"<tr><th>{escape(word)}</th>"
            + "".join(f"<td>{weight:.2f}</td>" for weight in row)
            + "</tr>"
            for word, row in zip(first["query"], rows, strict=True)
        )
        return (
            f"<figure><figcaption>{escape(first['title'])}: the weight "
            f"that the query of a row gives each key above, layer "
            f"{self.layer + 1}, head {self.head + 1}</figcaption>"
            f"<table><thead><tr><th></th>{top}"
            f"</tr></thead><tbody>{body}</tbody></table></figure>"
        )
