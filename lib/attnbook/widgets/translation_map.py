"""The map of a whole translation: every attention of a Transformer, by step.

Source: the three uses of attention in Vaswani et al. (2017), section 3.2.3,
    https://arxiv.org/abs/1706.03762
Axes: L blocks, H heads, S source words, T output words (the end included)
"""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

import traitlets

from attnbook.widgets.base import BookWidget
from attnbook.widgets.examples import read_weights, require_choice

HERE = Path(__file__)
START_LABEL = "(beginning)"


def list_decoder_inputs(output: Sequence[str]) -> list[str]:
    """Return what the decoder has read at each step, the last word unread."""
    return [START_LABEL, *output[:-1]]


def check_example(example: Mapping) -> dict:
    """Return an example with its weights to 3 digits.

    Raises:
        ValueError: if the maps do not fit the words.
    """
    source, output = list(example["source"]), list(example["output"])
    S, T = len(source), len(output)
    return {
        "title": str(example["title"]),
        "source": source,
        "output": output,
        "encoder": read_weights(example["encoder"], S, S),
        "decoder": read_weights(example["decoder"], T, T),
        "cross": read_weights(example["cross"], T, S),
    }


class TranslationMap(BookWidget):
    """All attention weights of a Transformer, step by step.

    Layers and heads count from 0 here, and from 1 on the screen.

    Args:
        examples: dicts with a title, the source and output words (the end of
            the output included), and the weights that
            `attnbook.models.hooks.collect_maps` returns: encoder (L,
            H, S, S), decoder (L, H, T, T), cross (L, H, T, S).
        layer: shown first.
        head: shown first; -1 is the mean of the heads.

    Raises:
        ValueError: if an example does not fit together, or has no such layer or
            head.
    """

    _esm = HERE.with_suffix(".js")
    _css = HERE.with_suffix(".css")
    examples = traitlets.List(minlen=1).tag(sync=True)
    layer = traitlets.Int(0).tag(sync=True)
    head = traitlets.Int(0).tag(sync=True)

    def __init__(self, examples: Sequence[Mapping], **traits):
        super().__init__(examples=list(examples), **traits)
        first = self.examples[0]["cross"]
        require_choice("layer", self.layer, len(first))
        require_choice("head", self.head, len(first[0]), low=-1)

    @traitlets.validate("examples")
    def _fitting(self, proposal) -> list[dict]:
        return [check_example(example) for example in proposal["value"]]

    def rows(self, example: Mapping, name: str) -> list[list[float]]:
        """Return the weights shown first of one of the three attentions."""
        heads = example[name][self.layer]
        if self.head >= 0:
            return heads[self.head]
        return [
            [sum(column) / len(heads) for column in zip(*rows, strict=True)]
            for rows in zip(*heads, strict=True)
        ]

    def fallback(self) -> str:
        """Return the first example as a table: what each step attended to."""
        first = self.examples[0]
        inputs = list_decoder_inputs(first["output"])
        lines = zip(
            first["output"],
            *(self.rows(first, name) for name in ("cross", "decoder")),
            strict=True,
        )
        body = "".join(
            f"<tr><td>{escape(word)}</td>"
            f"{format_largest_weight(cross, first['source'])}"
            f"{format_largest_weight(decoder, inputs)}</tr>"
            for word, cross, decoder in lines
        )
        head = f"head {self.head + 1}" if self.head >= 0 else "mean of heads"
        asking = "".join(
            f"<tr><td>{escape(word)}</td>"
            f"{format_largest_weight(row, first['source'])}</tr>"
            for word, row in zip(
                first["source"], self.rows(first, "encoder"), strict=True
            )
        )
        return (
            f"<figure><figcaption>{escape(first['title'])}: what the decoder "
            f"attends to at each step, and below it the encoder; layer "
            f"{self.layer + 1}, {head}</figcaption><table><thead><tr><th>output"
            "</th><th>attends most to source word</th><th>weight</th><th>looks "
            "most at word read</th><th>weight</th></tr></thead><tbody>"
            f"{body}</tbody></table><table><thead><tr><th>source word</th><th>"
            "attends most to</th><th>weight</th></tr></thead><tbody>"
            f"{asking}</tbody></table></figure>"
        )


def format_largest_weight(row: Sequence[float], words: Sequence[str]) -> str:
    """Return two cells: what a row attends to most, and the weight."""
    at = max(range(len(row)), key=row.__getitem__)
    return f"<td>{escape(words[at])}</td><td>{row[at]:.2f}</td>"
