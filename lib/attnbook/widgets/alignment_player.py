"""The alignment player: which source words the decoder attends to, by step.

Source: the alignment matrices of Bahdanau et al. (2015), figure 3,
    https://arxiv.org/abs/1409.0473
Axes: T output symbols (the end symbol included), S source symbols
"""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

import traitlets

from attnbook.widgets.base import BookWidget
from attnbook.widgets.examples import read_weights

HERE = Path(__file__)


def check_example(example: Mapping) -> dict:
    """Return an example with its weights to 3 digits.

    Raises:
        ValueError: if the weights are not one row for each output word (and one
            for the end, if you like) with one number for each source word.
    """
    source, output = list(example["source"]), list(example["with"]["output"])
    weights = example["with"]["weights"]
    rows = len(output) + (len(weights) == len(output) + 1)
    return {
        "title": str(example["title"]),
        "source": source,
        "reference": list(example["reference"]),
        "with": {
            "output": output,
            "weights": read_weights(weights, rows, len(source)),
        },
        "without": {"output": list(example["without"]["output"])},
    }


class AlignmentPlayer(BookWidget):
    """Real outputs of two models for the same inputs.

    Args:
        examples: dicts with a title, the source and reference words,
            `with` (output, weights (T, S)) and `without` (output) attention.

    Raises:
        ValueError: if an example does not fit together.
    """

    _esm = HERE.with_suffix(".js")
    _css = HERE.with_suffix(".css")
    examples = traitlets.List(minlen=1).tag(sync=True)

    def __init__(self, examples: Sequence[Mapping], **traits):
        super().__init__(examples=list(examples), **traits)

    @traitlets.validate("examples")
    def _fitting(self, proposal) -> list[dict]:
        return [check_example(example) for example in proposal["value"]]

    def fallback(self) -> str:
        """Return the first example as a table: what each word attended to."""
        first = self.examples[0]
        rows = "".join(
            f"<tr><td>{escape(word)}</td><td>{escape(at)}</td>"
            f"<td>{weight:.2f}</td></tr>"
            for word, at, weight in list_largest_weights(first)
        )
        lines = (
            ("Input", first["source"]),
            ("With attention", first["with"]["output"]),
            ("Without attention", first["without"]["output"]),
            ("Reference", first["reference"]),
        )
        items = "".join(
            f"<li>{name}: {escape(' '.join(line))}</li>" for name, line in lines
        )
        return (
            f"<figure><figcaption>{escape(first['title'])}</figcaption>"
            f"<ul>{items}</ul><table><thead><tr><th>output</th>"
            "<th>attends most to</th><th>weight</th></tr></thead>"
            f"<tbody>{rows}</tbody></table></figure>"
        )


def list_largest_weights(example: dict) -> list[tuple[str, str, float]]:
    """Return each output word, the source word of most weight, the weight."""
    found = []
    output = example["with"]["output"]
    rows = example["with"]["weights"][: len(output)]
    pairs = zip(output, rows, strict=True)
    for word, row in pairs:
        best = max(range(len(row)), key=row.__getitem__)
        found.append((word, example["source"][best], row[best]))
    return found
