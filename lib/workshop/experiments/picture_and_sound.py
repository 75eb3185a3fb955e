"""Recorded attention beside its pictures and sounds, for a widget.

Nothing is trained here: the weights are the examples of two other records, and
the pictures and sounds are drawn again with the seeds of those runs.

Axes: H and W rows and columns of pixels, F frames, C mel bands, T symbols,
    S states
"""

from jaxtyping import Float
from torch import Tensor

from attnbook.data.cluttered_digits import CANVAS
from attnbook.models.listen_attend_spell import SECONDS
from attnbook.models.log_mel import RATE, STEP
from attnbook.records import read_record
from workshop.experiments.listen_attend_spell import (
    TEST_SEED,
    Utterance,
    draw_utterances,
    number_letters,
)
from workshop.experiments.record import recorded
from workshop.experiments.registry import experiment
from workshop.experiments.spatial_attention import GRID, TESTED, draw_split

LEVELS = 15  # of gray above the background
FRAMES, BANDS = 2, 2  # that become one column, and one row, of pixels
PIXEL = FRAMES * STEP / RATE  # seconds of a column


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


def draw_spectrogram(
    frames: Float[Tensor, "F C"], columns: int
) -> Float[Tensor, "H W"]:
    """Return a picture of a sound between 0 and 1, low frequencies below.

    Args:
        frames: log-mel frames of 10 ms.
        columns: W; what the frames do not fill is silence.
    """
    silence = frames.min()
    filled = silence.repeat(columns * FRAMES, frames.shape[1])
    filled[: len(frames)] = frames[: len(filled)]
    joined = filled.unflatten(0, (-1, FRAMES)).unflatten(-1, (-1, BANDS))
    image = joined.mean(dim=(1, 3)).T.flip(0)
    return (image - image.min()) / (image.max() - image.min())


def describe_sound(number: int, example: dict, one: Utterance) -> dict:
    """Return a spectrogram with the recorded weights of each letter.

    Args:
        number: in the title.
        example: of the record `listen_attend_spell`.
        one: the sequence that was recorded.

    Raises:
        ValueError: if the words are not those of the record.
    """
    words = list(one.spoken.words)
    if words != example["words"]:
        raise ValueError(f"the words {words} are not {example['words']}")
    states = len(example["thousandths"][0])
    image = draw_spectrogram(one.frames, round(states * SECONDS / PIXEL))
    text, steps = " ".join(words), []
    for row, word in number_letters(words):
        begin, end = (x / PIXEL for x in example["intervals"][word])
        steps.append(
            {
                "label": text[row],
                "part": words[word],
                "thousandths": example["thousandths"][row],
                "box": [0, round(begin, 2), len(image), round(end, 2)],
            }
        )
    return {
        "kind": "sound",
        "title": f"Sound {number}: {text}",
        "gray": write_gray(image),
        "grid": [1, states],
        "milliseconds": round(1000 * SECONDS * states),
        "steps": steps,
    }


@experiment(on_cpu=True)
@recorded(seeds=[0], canvas=CANVAS, levels=LEVELS + 1)
def picture_and_sound() -> dict:
    """Record pictures and sounds with the attention of two trained models."""
    pictures = read_record("spatial_attention")["results"]["examples"]
    heard = read_record("listen_attend_spell")["results"]
    sounds = heard.get("examples") or [heard["example"]]
    items = [describe_picture(i + 1, x) for i, x in enumerate(pictures)]
    for i, x in enumerate(sounds):
        count = len(x["words"])
        one = draw_utterances(TEST_SEED + count, 1, (count, count))[0]
        items.append(describe_sound(i + 1, x, one))
    return {"items": items}
