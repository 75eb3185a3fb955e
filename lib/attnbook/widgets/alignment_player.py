"""The alignment player: step through an output, see where the decoder looks.

Chapter: chapters/01_bottleneck
Source: the alignment matrices of Bahdanau et al. (2015), figure 3,
    https://arxiv.org/abs/1409.0473
Axes: T output symbols (the end symbol included), S source symbols
"""

from collections.abc import Sequence
from html import escape
from pathlib import Path

import traitlets

from attnbook.widgets.base import BookWidget

HERE = Path(__file__)
LABELS = ("source", "reference")


def words(value, what: str) -> list[str]:
    """Return a list of words, or say what is no list of words."""
    if isinstance(value, str) or not all(isinstance(w, str) for w in value):
        raise ValueError(f"{what} must be a list of strings, not {value!r:.60}")
    return list(value)


def checked(example: dict) -> dict:
    """Return an example with its weights to 3 digits.

    Raises:
        ValueError: if a part is missing, or the weights are not one row for
            each output word (and one for the end, if you like) with one number
            for each source word.
    """
    missing = {"title", *LABELS, "with", "without"} - set(example)
    if missing:
        raise ValueError(
            f"an example lacks {sorted(missing)}; it has {sorted(example)}"
        )
    made = {name: words(example[name], name) for name in LABELS}
    if not made["source"]:
        raise ValueError("the source has 0 words; a player needs at least 1")
    output = words(example["with"]["output"], "output")
    rows = [[float(x) for x in row] for row in example["with"]["weights"]]
    if len(rows) - len(output) not in (0, 1):
        raise ValueError(
            f"there are {len(rows)} rows of weights for {len(output)} output "
            "words; one each, and one more for the end, is right"
        )
    for row in rows:
        if len(row) != len(made["source"]):
            raise ValueError(
                f"a row has {len(row)} weights for {len(made['source'])} "
                "source words"
            )
    return {
        "title": str(example["title"]),
        **made,
        "with": {
            "output": output,
            "weights": [[round(x, 3) for x in row] for row in rows],
        },
        "without": {"output": words(example["without"]["output"], "output")},
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

    def __init__(self, examples: Sequence[dict], **traits):
        made = [checked(example) for example in examples]
        if not made:
            raise ValueError("0 examples given; a player needs at least 1")
        super().__init__(examples=made, **traits)

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
