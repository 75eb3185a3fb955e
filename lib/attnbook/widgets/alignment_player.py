"""The alignment player: step through an output, see where the decoder looks.

Chapter: chapters/01_bottleneck
Source: the alignment matrices of Bahdanau et al. (2015), figure 3,
    https://arxiv.org/abs/1409.0473
Axes: T output symbols (the end symbol included), S source symbols
"""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

import traitlets

from attnbook.widgets.base import BookWidget
from attnbook.widgets.examples import part, weighed, words

HERE = Path(__file__)


def checked(example: Mapping) -> dict:
    """Return an example with its weights to 3 digits.

    Raises:
        ValueError: if a part is missing, or the weights are not one row for
            each output word (and one for the end, if you like) with one number
            for each source word.
    """
    title = part(example, "title", "an example")
    source, reference = (
        words(part(example, name, "an example"), name)
        for name in ("source", "reference")
    )
    looking, blind = (
        part(example, name, "an example") for name in ("with", "without")
    )
    if not source:
        raise ValueError("the source has 0 words; a player needs at least 1")
    output = words(part(looking, "output", "`with`"), "output")
    rows = list(part(looking, "weights", "`with`"))
    if len(rows) - len(output) not in (0, 1):
        raise ValueError(
            f"there are {len(rows)} rows of weights for {len(output)} output "
            "words; one each, and one more for the end, is right"
        )
    return {
        "title": str(title),
        "source": source,
        "reference": reference,
        "with": {
            "output": output,
            "weights": [weighed(row, source, t) for t, row in enumerate(rows)],
        },
        "without": {
            "output": words(part(blind, "output", "`without`"), "output")
        },
    }


class AlignmentPlayer(BookWidget):
    """Real outputs of two models for the same inputs.

    Args:
        examples: dicts with a title, the source and reference words,
            `with` (output, weights (T, S)) and `without` (output) attention.

    Raises:
        ValueError: if there is no example, or one does not fit together.
    """

    _esm = HERE.with_suffix(".js")
    _css = HERE.with_suffix(".css")
    examples = traitlets.List().tag(sync=True)

    def __init__(self, examples: Sequence[Mapping], **traits):
        super().__init__(examples=list(examples), **traits)

    @traitlets.validate("examples")
    def _fitting(self, proposal) -> list[dict]:
        """Check examples whenever they are set, at the start and later."""
        if not proposal["value"]:
            raise ValueError("0 examples given; a player needs at least 1")
        return [checked(example) for example in proposal["value"]]

    def fallback(self) -> str:
        """Return the first example as a table: where each word looked."""
        first = self.examples[0]
        rows = "".join(
            f"<tr><td>{escape(word)}</td><td>{escape(at)}</td>"
            f"<td>{weight:.2f}</td></tr>"
            for word, at, weight in looked(first)
        )
        lines = (
            ("Input", first["source"]),
            ("With attention", first["with"]["output"]),
            ("Without attention", first["without"]["output"]),
            ("Reference", first["reference"]),
        )
        said = "".join(
            f"<li>{name}: {escape(' '.join(line))}</li>" for name, line in lines
        )
        return (
            f"<figure><figcaption>{escape(first['title'])}</figcaption>"
            f"<ul>{said}</ul><table><thead><tr><th>output word</th>"
            "<th>looks most at</th><th>weight</th></tr></thead>"
            f"<tbody>{rows}</tbody></table></figure>"
        )


def looked(example: dict) -> list[tuple[str, str, float]]:
    """Return each output word, the source word it looks at most, the weight."""
    found = []
    output = example["with"]["output"]
    rows = example["with"]["weights"][: len(output)]
    pairs = zip(output, rows, strict=True)
    for word, row in pairs:
        best = max(range(len(row)), key=row.__getitem__)
        found.append((word, example["source"][best], row[best]))
    return found
