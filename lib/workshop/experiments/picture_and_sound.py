"""Recorded attention beside its pictures, for a widget.

Nothing is trained here: the weights are the examples of another record, and the
pictures are drawn again with the seed of that run.

Axes: H and W rows and columns of pixels
"""

from jaxtyping import Float
from torch import Tensor

from attnbook.data.cluttered_digits import CANVAS
from attnbook.records import read_record
from workshop.experiments.record import recorded
from workshop.experiments.registry import experiment
from workshop.experiments.spatial_attention import GRID, TESTED, draw_split

LEVELS = 15  # of gray above the background


def write_gray(image: Float[Tensor, "H W"]) -> list[str]:
    """Return rows of hexadecimal digits for numbers between 0 and 1."""
    levels = (image * LEVELS).round().int().tolist()
    return ["".join(f"{x:x}" for x in row) for row in levels]


def describe_picture(number: int, example: dict) -> dict:
    """Return a canvas with the recorded weights, as the widget takes it.

    Args:
        number: in the title.
        example: of the record `spatial_attention`.
    """
    tests = draw_split("test", TESTED)
    label, predicted = str(example["label"]), str(example["predicted"])
    step = {
        "label": predicted,
        "part": label,
        "thousandths": [x for row in example["thousandths"] for x in row],
        "box": example["box"],
    }
    return {
        "kind": "picture",
        "title": f"Picture {number}: the digit {label}, read as {predicted}",
        "gray": write_gray(tests.images[example["index"], 0]),
        "grid": [GRID, GRID],
        "milliseconds": 0,
        "steps": [step],
    }


@experiment(on_cpu=True)
@recorded(seeds=[0], canvas=CANVAS, levels=LEVELS + 1)
def picture_and_sound() -> dict:
    """Record pictures with the attention of a trained model."""
    pictures = read_record("spatial_attention")["results"]["examples"]
    items = [describe_picture(i + 1, x) for i, x in enumerate(pictures)]
    return {"items": items}
